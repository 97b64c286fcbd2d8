"""Compute the cross-entropy per token: the sum over all tokens that are not padding, divided by their number.

    loss_t = logsumexp(z) - z_y                                          z: logits [V] in float32, y: target; in nats
    loss   = sum over tokens of w_t loss_t / sum over tokens of w_t      w: weights; 0 without tokens

Label smoothing puts (1 - e) on the target plus e / V on every id, the target included (Szegedy et al., 2016,
arXiv:1512.00567; Vaswani et al., 2017, arXiv:1706.03762):

    loss_t = (1 - e) (logsumexp(z) - z_y) + e / V sum over v of (logsumexp(z) - z_v)

A target is padding if it is below zero or equals `ignore_class`, or if a mask says so. Logits at padding are not read.
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.ops import replicas, tensor_checks
from keras_seq.ops.tensor_checks import keras_mask

REDUCTIONS = ("mean_with_sample_weight", "sum", "none", None)


def token_losses(logits, targets, label_smoothing: float = 0.0):
    """Compute the cross-entropy at every position, without weights; 0 where the target is below zero.

    >>> round(float(token_losses(ops.zeros((1, 1, 8)), [[3]])[0, 0]), 3)  # log 8
    2.079
    """
    checks.fraction("label_smoothing", label_smoothing)
    logits, targets = ops.cast(logits, "float32"), as_targets(targets)
    if len(logits.shape) < 1 or len(logits.shape) != len(targets.shape) + 1:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} for targets of shape {tuple(targets.shape)}; "
            "expected [..., V] for [...]: give one row of logits for every target."
        )
    is_token, size = targets >= 0, logits.shape[-1]
    in_vocabulary = targets < size
    targets = ops.clip(targets, 0, size - 1)
    logits = ops.where(ops.expand_dims(is_token, -1), logits, 0.0)  # at padding even the gradient of NaN is zero
    losses = ops.sparse_categorical_crossentropy(targets, logits, from_logits=True)
    if label_smoothing:
        differences = logits - ops.take_along_axis(logits, targets[..., None], axis=-1)  # z_v - z_y
        losses = losses - label_smoothing * ops.mean(differences, axis=-1)
    return ops.where(is_token, ops.where(in_vocabulary, losses, float("nan")), 0.0)


def token_weights(targets, mask=None, sample_weight=None, ignore_class: int | None = None):
    """Compute the weight of each target: 0 for padding, otherwise its sample weight or 1.

    >>> ops.convert_to_numpy(token_weights([[4, 0, 7]], ignore_class=0)).tolist()
    [[1.0, 0.0, 1.0]]
    """
    targets, mask_argument = as_targets(targets), mask
    is_token = targets >= 0
    if ignore_class is not None:
        is_token = ops.logical_and(is_token, targets != ignore_class)
    if mask is not None:
        mask = tensor_checks.boolean_mask("mask", ops.convert_to_tensor(mask), ranks=range(len(targets.shape) + 1))
        is_token = ops.logical_and(is_token, over_targets("mask", mask, targets))
    weights = ops.cast(is_token, "float32")
    if sample_weight is not None:
        sample_weight = ops.cast(over_targets("sample_weight", sample_weight, targets), "float32")
        weights = ops.where(is_token, sample_weight, 0.0)
    return tensor_checks.where_boolean(weights, mask_argument)


def token_cross_entropy(logits, targets, mask=None, ignore_class: int | None = None, label_smoothing: float = 0.0):
    """Compute the mean cross-entropy of the tokens that are not padding.

    >>> round(float(token_cross_entropy(ops.zeros((1, 3, 8)), [[3, 1, 0]], ignore_class=0)), 3)  # log 8
    2.079
    """
    weights = token_weights(targets, mask, ignore_class=ignore_class)
    losses = token_losses(logits, ops.where(weights != 0, as_targets(targets), -1), label_smoothing)
    return ops.divide_no_nan(ops.sum(losses * weights), ops.sum(weights))


def as_targets(targets):
    """Return targets as int32; raise a ValueError if they are not integers."""
    return tensor_checks.integers("targets", replicas.whole_numbers(ops.convert_to_tensor(targets)))


def over_targets(name, values, targets):
    """Broadcast values per row or per token to the shape of the targets, such as `[B, T]`."""
    values = ops.convert_to_tensor(values)
    shape, axes = tuple(values.shape), len(targets.shape)
    if shape:
        values = ops.reshape(values, ops.shape(values) + (1,) * (axes - len(shape)))  # [B] -> [B, 1]
    pairs = zip(shape, targets.shape, strict=False)
    if len(shape) > axes or any(size not in (1, None, expected) and expected is not None for size, expected in pairs):
        raise ValueError(
            f"{name} of shape {shape} for targets of shape {tuple(targets.shape)}; "
            "expected one value per token or per row, such as in the targets' shape."
        )
    return ops.broadcast_to(values, ops.shape(targets))


class WeightedMean(keras.losses.Loss):
    """Base class of losses that are a sum divided by the sum of its weights, over all replicas too."""

    def __init__(self, reduction, name, **kwargs):
        if reduction not in REDUCTIONS:
            raise ValueError(
                f"reduction={reduction!r}; expected 'mean_with_sample_weight', 'sum' or 'none': "
                "other reductions count padding in the divisor."
            )
        super().__init__(name=name, reduction=reduction, dtype="float32", **kwargs)

    def weighted(self, y_true, y_pred, weights):
        """Compute the reduced loss; `weights` have the shape of what `call` returns."""
        if self.reduction in ("mean_with_sample_weight", "sum") and replicas.in_replica():
            return self._over_replicas(y_true, y_pred, weights)
        return keras.losses.Loss.__call__(self, y_true, y_pred, weights)

    def _over_replicas(self, y_true, y_pred, weights):
        """Compute the loss of the tokens of all replicas, divided by their number: Keras adds losses and gradients."""
        own, num_tokens = ops.sum(self.call(y_true, y_pred) * weights), ops.sum(weights)
        total, num_tokens = replicas.sums([ops.stop_gradient(own), num_tokens])
        if self.reduction == "sum":
            num_tokens = ops.ones_like(num_tokens)
        own = ops.divide_no_nan(own, num_tokens)
        return ops.divide_no_nan(total, num_tokens) / replicas.count() + own - ops.stop_gradient(own)


@keras.saving.register_keras_serializable(package="keras_seq")
class TokenCrossEntropy(WeightedMean):
    """Compute `token_cross_entropy` as a Keras loss of logits `[B, T, V]` and targets `[B, T]`.

    It takes logits only. By default it is the mean over tokens: Keras's mask of the logits and the sample weights count
    in the sum and in its divisor. (Keras's `SparseCategoricalCrossentropy()` divides the weighted sum by all B T
    positions.) The `loss` that `fit` shows for several batches is their mean weighted by rows; `Perplexity` uses the
    mean over tokens. `class_weight` of `fit` is for targets `[B]`: Keras takes `[B, T]` for one-hot rows, so weigh the
    classes of tokens by sample weights `[B, T]`.

    Args:
        label_smoothing: e in the formula, at least 0 and below 1.
        ignore_class: Id that counts as padding.
        reduction: "mean_with_sample_weight" for the mean over tokens, "sum", or "none" for `[B, T]`.
        name: Name in Keras's logs.
        **kwargs: Further arguments of `keras.losses.Loss`.

    Raises:
        ValueError: If an argument is out of its range, or the reduction is another one: that would count padding.

    >>> loss = TokenCrossEntropy(ignore_class=0)
    >>> round(float(loss([[3, 1, 0]], ops.zeros((1, 3, 8)))), 3)  # log 8
    2.079
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        ignore_class: int | None = None,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "token_cross_entropy",
        **kwargs,
    ):
        checks.fraction("label_smoothing", label_smoothing)
        super().__init__(reduction, name, **kwargs)
        self.label_smoothing = label_smoothing
        self.ignore_class = ignore_class

    def __call__(self, y_true, y_pred, sample_weight=None):
        """Compute the reduced loss.

        Args:
            y_true: Targets `[B, T]`.
            y_pred: Logits `[B, T, V]`, with their Keras mask.
            sample_weight: The sample weights of `fit`, `[B]` or `[B, T]`, or None.
        """
        targets = as_targets(y_true)
        weights = token_weights(targets, keras_mask(y_pred), sample_weight, self.ignore_class)
        targets = ops.where(weights != 0, targets, -1)
        return self.weighted(targets, y_pred, weights)

    def call(self, y_true, y_pred):
        """Compute the loss of each token, which Keras then averages."""
        return token_losses(y_pred, ops.cast(y_true, "int32"), self.label_smoothing)  # Keras casts them to float

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {**super().get_config(), "label_smoothing": self.label_smoothing, "ignore_class": self.ignore_class}
