"""Cross-entropy per real token: the sum over the real tokens, divided by their number.

    nats = logsumexp(z) - z_y                          z: logits [V] in float32, y: target
    loss = sum over tokens of w nats / sum over tokens of w      w: weights; 0 tokens -> 0

Label smoothing aims at (1 - e) on the target plus e / V on every id, the target among them:

    nats = (1 - e) (logsumexp(z) - z_y) + e / V sum over v of (logsumexp(z) - z_v)

Szegedy et al. (2016, https://arxiv.org/abs/1512.00567), Vaswani et al. (2017, https://arxiv.org/abs/1706.03762).
A token is real unless its target is below zero or is `ignore`, or a mask says that it is padding.
"""

from numbers import Real

import keras
from keras import ops

from keras_seq import checks

REDUCTIONS = ("mean_with_sample_weight", "sum", "none", None)


def token_losses(logits, targets, label_smoothing=0.0):
    """The cross-entropy at every position, before any weights.

    Args:
        logits: `[B, T, V]`, of any float type. With smoothing they have to be finite.
        targets: ids `[B, T]`; one below zero is no target and costs nothing, one past V gives NaN.
        smoothing: e in the formula, at least 0 and below 1.

    Returns:
        float32 `[B, T]`, in nats.

    Raises:
        ValueError: the shapes do not belong together, the targets are no integers, or `smoothing` is out of its range.

    >>> round(float(token_nats(ops.zeros((1, 1, 8)), [[3]])[0, 0]), 3)  # log 8
    2.079
    """
    _check_label_smoothing(label_smoothing)
    logits, targets = ops.cast(logits, "float32"), _integers(targets)
    if len(logits.shape) < 1 or len(logits.shape) != len(targets.shape) + 1:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} for targets of shape {tuple(targets.shape)}; "
            "expected [..., V] for [...]: give one row of logits for every target."
        )
    real, size = targets >= 0, logits.shape[-1]
    known = targets < size
    targets = ops.clip(targets, 0, size - 1)
    nats = ops.sparse_categorical_crossentropy(targets, logits, from_logits=True)
    if label_smoothing:
        above = logits - ops.take_along_axis(logits, targets[..., None], axis=-1)  # z_v - z_y
        nats = nats - label_smoothing * ops.mean(above, axis=-1)
    return ops.where(real, ops.where(known, nats, float("nan")), 0.0)


def token_weights(targets, mask=None, sample_weight=None, ignore_class=None):
    """What each token counts: 0 where it is not real, else its sample weight, else 1.

    Args:
        targets: ids `[B, T]`; one below zero is no token.
        mask: bool `[B, T]`, True at real tokens, or 1 and 0; None for all.
        sample_weight: `[B, T]`, or `[B]` or `[B, 1]` for all tokens of a row, or one number; none of them below zero.
        ignore: an id that is no token either, such as that of the padding.

    Returns:
        float32 `[B, T]`.

    Raises:
        ValueError: a mask or weights of another number of axes, a mask of floats (which may be sample weights),
            targets that are no integers.

    >>> ops.convert_to_numpy(token_weights([[4, 0, 7]], ignore=0)).tolist()
    [[1.0, 0.0, 1.0]]
    """
    targets, given = _integers(targets), mask
    real = targets >= 0
    if ignore_class is not None:
        real = ops.logical_and(real, targets != ignore_class)
    if mask is not None:
        mask = checks.boolean_mask("mask", ops.convert_to_tensor(mask), ranks=range(len(targets.shape) + 1))
        real = ops.logical_and(real, _over_tokens("mask", mask, targets))
    weights = ops.cast(real, "float32")
    if sample_weight is not None:
        weights = ops.where(real, ops.cast(_over_tokens("sample_weight", sample_weight, targets), "float32"), 0.0)
    return checks.where_boolean(weights, given)


def token_cross_entropy(logits, targets, mask=None, ignore_class=None, label_smoothing=0.0):
    """The mean cross-entropy of the real tokens.

    Args:
        logits: `[B, T, V]`, of any float type.
        targets: ids `[B, T]`; one below zero is no token.
        mask: bool `[B, T]`, True at real tokens, or 1 and 0; None for all.
        ignore: an id that is no token either, such as that of the padding.
        smoothing: e in the formula, at least 0 and below 1.

    Returns:
        float32 scalar, in nats per token; 0 where no token is real.

    Raises:
        ValueError: as for `token_nats` and `token_weights`.

    >>> round(float(token_cross_entropy(ops.zeros((1, 3, 8)), [[3, 1, 0]], ignore=0)), 3)  # log 8
    2.079
    """
    weights = token_weights(targets, mask, ignore_class=ignore_class)
    nats = token_losses(logits, ops.where(weights > 0, _integers(targets), -1), label_smoothing)
    return ops.divide_no_nan(ops.sum(nats * weights), ops.sum(weights))


@keras.saving.register_keras_serializable(package="keras_seq")
class TokenCrossEntropy(keras.losses.Loss):
    """`token_cross_entropy` as a Keras loss of logits `[B, T, V]` and targets `[B, T]`.

    The mask that Keras carries along with the logits and the sample weights both count, in the sum and in what it is
    divided by. (Keras's `SparseCategoricalCrossentropy()` divides the weighted sum by all B T tokens.) A `loss` that
    `fit` shows for several batches is their mean by rows; for one by tokens see `Perplexity`.

    Args:
        smoothing: e in the formula, at least 0 and below 1.
        ignore: an id that is no token, such as that of the padding.
        reduction: "mean_with_sample_weight" for the mean over the tokens, "sum", or "none" for `[B, T]`.
        name: the name in Keras's logs.

    Raises:
        ValueError: an argument out of its range; another reduction, such as one that counts padding as tokens.

    >>> loss = TokenCrossEntropy(ignore=0)
    >>> round(float(loss([[3, 1, 0]], ops.zeros((1, 3, 8)))), 3)  # log 8
    2.079
    """

    def __init__(
        self,
        label_smoothing=0.0,
        ignore_class=None,
        reduction="mean_with_sample_weight",
        name="token_cross_entropy",
        **kwargs,
    ):
        if reduction not in REDUCTIONS:
            raise ValueError(
                f"reduction={reduction!r}; expected 'mean_with_sample_weight', 'sum' or 'none': "
                "any other would divide by padding too."
            )
        _check_label_smoothing(label_smoothing)
        super().__init__(name=name, reduction=reduction, dtype="float32", **kwargs)
        self.label_smoothing = label_smoothing
        self.ignore_class = ignore_class

    def __call__(self, y_true, y_pred, sample_weight=None):
        """The loss; Keras calls it with the sample weights of `fit`, `[B]` or `[B, T]`, or None."""
        targets = _integers(y_true)
        weights = token_weights(targets, getattr(y_pred, "_keras_mask", None), sample_weight, self.ignore_class)
        return super().__call__(ops.where(weights > 0, targets, -1), y_pred, weights)

    def call(self, y_true, y_pred):
        return token_losses(y_pred, ops.cast(y_true, "int32"), self.label_smoothing)  # Keras made floats of them

    def get_config(self):
        return {**super().get_config(), "label_smoothing": self.label_smoothing, "ignore_class": self.ignore_class}


def _check_label_smoothing(label_smoothing):
    if isinstance(label_smoothing, bool) or not isinstance(label_smoothing, Real) or not 0 <= label_smoothing < 1:
        raise ValueError(f"smoothing={label_smoothing!r}; expected a number from 0 to below 1, such as 0.1.")


def _integers(targets):
    return checks.integers("targets", ops.convert_to_tensor(targets))


def _over_tokens(name, values, targets):
    """Values per row or per token as values per token `[B, T]`."""
    values = ops.convert_to_tensor(values)
    shape, axes = tuple(values.shape), len(targets.shape)
    if shape:
        values = ops.reshape(values, ops.shape(values) + (1,) * (axes - len(shape)))
    pairs = zip(shape, targets.shape, strict=False)
    if len(shape) > axes or any(own not in (1, None, whole) and whole is not None for own, whole in pairs):
        raise ValueError(
            f"{name} of shape {shape} for targets of shape {tuple(targets.shape)}; "
            "expected one value per token or one per row: give it the targets' shape."
        )
    return ops.broadcast_to(values, ops.shape(targets))
