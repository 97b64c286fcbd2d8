"""Losses of whole rows: of a CRF's tagging, and of labels that are aligned to frames (CTC).

    CRF:  loss = -log p(y_1, ..., y_T | x)                               Lafferty et al., 2001; `keras_seq.ops.crf`
    CTC:  loss = -log sum over alignments a with collapse(a) = y of softmax(z_1)_{a_1} ... softmax(z_T)_{a_T}

`collapse` merges equal neighbors, then removes blanks (Graves et al., 2006). In nats. `keras.ops.ctc_loss` computes the
sum; `keras.losses.CTC` reads frames that are padding, and fails behind a layer that hands its mask on, and what no
alignment fits has another large number on each backend. Here a masked row is a shorter row, and its loss is infinite.
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.evaluation.losses import WeightedMean, as_targets
from keras_seq.evaluation.metrics import SumRatio
from keras_seq.ops import tensor_checks
from keras_seq.ops.crf import crf_log_likelihood, crf_mask, viterbi
from keras_seq.ops.linear_recurrence import LOG_ZERO
from keras_seq.ops.tensor_checks import at_least_float32, keras_mask, where_valid


@keras.saving.register_keras_serializable(package="keras_seq")
class CRFLoss(WeightedMean):
    """Compute -log p(tags) of the potentials that a `CRF` layer returns, per tag, as a Keras loss.

    By default it is the sum over all rows divided by the number of their tags, so that it compares with the
    `TokenCrossEntropy` of a tagger without a CRF. A tag below zero is unknown: the probabilities of all its values are
    added. Potentials say themselves where padding is. Sample weights weigh whole rows.

    Args:
        reduction: "mean_with_sample_weight" for the mean over tags, "sum" over rows, or "none" for `[B]`: the mean of
            each row times its number of tags and its sample weight, which is -log p.
        name: Name in Keras's logs.
        **kwargs: Further arguments of `keras.losses.Loss`.

    Raises:
        ValueError: If the reduction is another one, or shapes do not match.

    >>> loss = CRFLoss()
    >>> round(float(loss([[3, 1, 0]], ops.zeros((1, 3, 4, 4)))), 3)  # log 4
    1.386
    """

    def __init__(self, reduction: str | None = "mean_with_sample_weight", name: str = "crf_loss", **kwargs):
        super().__init__(reduction, name, **kwargs)

    def __call__(self, y_true, y_pred, sample_weight=None):
        """Compute the reduced loss.

        Args:
            y_true: Tags `[B, T]`.
            y_pred: Potentials `[B, T, K, K]`.
            sample_weight: The sample weights of `fit`, `[B]`, or None.
        """
        potentials = ops.maximum(y_pred, LOG_ZERO)  # a tensor without Keras's mask, which is one of tags, not of rows
        row_weights = _row_weights(sample_weight, potentials[:, 0, 0, 0])
        counts = row_weights != 0  # a row of weight 0 counts nowhere, whatever it holds
        potentials = ops.where(counts[:, None, None, None], potentials, 0)
        weights = row_weights * ops.sum(ops.cast(crf_mask(potentials), "float32"), axis=1)
        return self.weighted(ops.where(counts[:, None], as_targets(y_true), -1), potentials, weights)

    def call(self, y_true, y_pred):
        """Compute the mean of each row `[B]`, of which Keras makes a weighted mean."""
        num_tags = ops.sum(ops.cast(crf_mask(y_pred), "float32"), axis=1)
        return -crf_log_likelihood(y_pred, ops.cast(y_true, "int32")) / ops.maximum(num_tags, 1.0)


@keras.saving.register_keras_serializable(package="keras_seq")
class ViterbiAccuracy(SumRatio):
    """Compute the fraction of tags that a CRF's likeliest tagging has right; tags below zero do not count.

    It is for `compile(metrics=[...])` of a model whose output is that of a `CRF` layer.

    Args:
        name: Name in Keras's logs.
        dtype: Dtype of Keras's metric; the sums are always float32.

    >>> accuracy = ViterbiAccuracy()
    >>> accuracy.update_state([[1, 1]], ops.convert_to_tensor([[[[0.0, 2.0]] * 2, [[0.0, 0.0], [3.0, 1.0]]]]))
    >>> float(accuracy.result())
    0.5
    """

    def __init__(self, name: str = "viterbi_accuracy", dtype: str | None = None):
        super().__init__(name, dtype)

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Add a batch."""
        targets, (tags, _) = as_targets(y_true), viterbi(y_pred)
        weights = ops.cast(ops.logical_and(targets >= 0, tags >= 0), "float32")
        weights = weights * _row_weights(sample_weight, weights[:, 0])[:, None]
        self.add(ops.sum(weights * ops.cast(targets == tags, "float32")), ops.sum(weights))

    def result(self):
        """Return the accuracy."""
        return self.ratio()


def _row_weights(sample_weight, rows):
    """Return sample weights `[B]`, `[B, 1]` or of one number as float32 `[B]`, ones for None."""
    if sample_weight is None:
        return ops.ones_like(rows)
    weights = ops.cast(ops.convert_to_tensor(sample_weight), "float32")
    weights = ops.squeeze(weights, -1) if len(weights.shape) == 2 and weights.shape[-1] == 1 else weights
    if len(weights.shape) > 1:
        expected = "[B], a weight for each row; targets below 0 do not count"
        raise ValueError(f"sample_weight has shape {tuple(weights.shape)}; expected {expected}.")
    return ops.broadcast_to(weights, ops.shape(rows))


def ctc_losses(logits, targets, mask=None, blank: int = 0):
    """Compute -log p(labels) of each row: the sum over all alignments of its labels to its frames.

    A mask of lengths is `ops.arange(T) < lengths[:, None]`; `ops.where(mask, targets, -1)` takes that of targets.

    Args:
        logits: `[B, T, V]`, a row for each frame; computed in float32 (in float64 on torch, if they are).
        targets: Integers `[B, L]`. Those below zero, and blanks, are padding, wherever they stand.
        mask: `[B, T]`, true at frames, or None. Other positions are left out, wherever they stand.
        blank: Id of the blank, from 0 to V - 1.

    Returns:
        `[B]`; infinite, with a gradient of zero, where there are fewer frames than labels and, between equal ones,
        blanks; NaN where a label is V or more.

    Raises:
        ValueError: Shapes or dtypes are others.

    >>> losses = ctc_losses(ops.zeros((1, 3, 2)), [[1, -1]])  # 6 of 8 alignments: 1--, -1-, --1, 11-, -11, 111
    >>> round(float(losses[0]), 3)
    0.288
    """
    logits, targets = ops.convert_to_tensor(logits), as_targets(targets)
    if len(logits.shape) != 3 or len(targets.shape) != 2:
        shapes = f"logits of shape {tuple(logits.shape)} for targets of shape {tuple(targets.shape)}"
        raise ValueError(f"{shapes}; expected [B, T, V] for [B, L].")
    checks.integer("blank", blank, 0, logits.shape[-1] - 1)
    logits = tensor_checks.real("logits", logits, "float32")
    logits = ops.cast(logits, at_least_float32(logits.dtype))
    logits, mask = tensor_checks.masked("mask", logits, mask)
    logits = where_valid(mask, logits)
    mask = ops.ones_like(logits[..., 0], dtype="bool") if mask is None else mask
    is_label = ops.logical_and(targets >= 0, targets != blank)
    logits, num_frames = ops.take_along_axis(logits, _true_first(mask)[..., None], axis=1), _count(mask)
    targets, num_labels = ops.take_along_axis(targets, _true_first(is_label), axis=1), _count(is_label)
    is_label = ops.arange(targets.shape[1]) < num_labels[:, None]  # [B, L], labels first
    targets = ops.where(is_label, targets, blank)
    repeats = ops.logical_and(targets[:, 1:] == targets[:, :-1], is_label[:, 1:])
    fits = num_frames >= num_labels + _count(repeats)
    is_known = ops.all(targets < logits.shape[-1], axis=1)
    num_labels = ops.where(ops.logical_and(fits, is_known), num_labels, 0)  # so that no gradient is NaN
    # a row without frames gets one, which its result does not depend on
    losses = ops.ctc_loss(
        ops.where(is_known[:, None], targets, blank), logits, num_labels, ops.maximum(num_frames, 1), mask_index=blank
    )
    losses = ops.where(num_frames > 0, losses, 0.0)
    return ops.where(is_known, ops.where(fits, losses, float("inf")), float("nan"))


def _true_first(mask):
    """Return the indices `[B, T]` that move the positions where a mask is true to the front, in their order."""
    length = ops.shape(mask)[1]
    return ops.argsort(ops.where(mask, ops.arange(length), ops.arange(length) + length), axis=1)


def _count(mask):
    return ops.sum(ops.cast(mask, "int32"), axis=1)


@keras.saving.register_keras_serializable(package="keras_seq")
class CTC(keras.losses.Loss):
    """Compute `ctc_losses` as a Keras loss of logits `[B, T, V]`, with their Keras mask, and targets `[B, L]`.

    As in `keras.losses.CTC`, blank is 0 by default, and the loss is the mean over rows.

    Args:
        blank: Id of the blank. Targets that equal it, or are below zero, are padding.
        reduction: "sum_over_batch_size" for the mean over rows, or another one of `keras.losses.Loss`.
        name: Name in Keras's logs.
        **kwargs: Further arguments of `keras.losses.Loss`.

    Raises:
        ValueError: If an argument is out of its range.

    >>> loss = CTC()
    >>> round(float(loss([[1, 0]], ops.zeros((1, 3, 2)))), 3)
    0.288
    """

    def __init__(self, *, blank: int = 0, reduction: str | None = "sum_over_batch_size", name: str = "ctc", **kwargs):
        super().__init__(name=name, reduction=reduction, dtype="float32", **kwargs)
        self.blank = checks.integer("blank", blank, 0)

    def __call__(self, y_true, y_pred, sample_weight=None):
        """Compute the reduced loss.

        Args:
            y_true: Targets `[B, L]`.
            y_pred: Logits `[B, T, V]`, with their Keras mask.
            sample_weight: The sample weights of `fit`, `[B]`, or None.
        """
        y_true, mask = as_targets(y_true), keras_mask(y_pred)
        if sample_weight is not None:  # a row of weight 0 counts nowhere, also where no alignment fits it
            y_pred = ops.convert_to_tensor(y_pred)
            counts = _row_weights(sample_weight, y_pred[:, 0, 0])[:, None] != 0
            y_true, frames = ops.where(counts, y_true, -1), ops.ones_like(y_pred[..., 0], dtype="bool")
            mask = ops.logical_and(counts, frames if mask is None else mask)
        y_pred = (y_pred,) if mask is None else (y_pred, mask)  # a mask of frames is none of losses
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true, y_pred):
        """Compute the loss of each row `[B]`, of logits or of a pair of logits and mask."""
        logits, *mask = y_pred if isinstance(y_pred, tuple) else (y_pred,)
        return ctc_losses(logits, ops.cast(y_true, "int32"), *(each > 0 for each in mask), blank=self.blank)

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {**super().get_config(), "blank": self.blank}
