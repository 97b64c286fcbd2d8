"""Compute streaming metrics over tokens: sums divided by counts at the end, never a mean over batches.

    total, count      <-  total + sum w loss_t,   count + sum w count_t     over the non-padding tokens t of a batch
    Perplexity        = exp(total / count)                                  count_t = 1
    BitsPerCharacter  = total / (ln 2 count)                                count_t = characters of the target id

Perplexities compare only under one tokenizer; bits per character compare across tokenizers. A float32 sum stops growing
at 2^24 times the size of an addend. So each sum keeps its rounding error in a second float32 (Knuth's TwoSum; Neumaier,
1974), and its relative error stays that of one batch, however many there are.
"""

import math

import keras
import numpy as np
from keras import ops

from keras_seq.evaluation.losses import as_targets, token_losses, token_weights
from keras_seq.ops.tensor_checks import keras_mask


def two_sum(a, b):
    """Return the rounded sum of two tensors and its exact rounding error: `s + error = a + b`."""
    s = a + b
    b_part = s - a
    return s, (a - (s - b_part)) + (b - b_part)


class SumRatio(keras.metrics.Metric):
    """Add up pairs of a total and a count, with their rounding errors."""

    def __init__(self, name=None, dtype=None):
        super().__init__(name=name, dtype=dtype or "float32")
        self.sums = self.add_variable((2,), initializer="zeros", dtype="float32", name="sums")  # total, count
        self.compensation = self.add_variable((2,), initializer="zeros", dtype="float32", name="compensation")

    def add(self, total, count):
        """Add the total and the count of a batch."""
        sums, compensation = two_sum(ops.convert_to_tensor(self.sums), ops.stack([total, count]))
        self.sums.assign(sums)
        self.compensation.assign_add(compensation)

    def ratio(self):
        """Return total / count; 0 before the first count."""
        sums = self.sums + self.compensation
        return ops.divide_no_nan(sums[0], sums[1])


class _LossRatio(SumRatio):
    """Sum losses and counts over non-padding tokens; subclasses define the result, and another count than tokens."""

    def __init__(self, ignore_class=None, name=None, dtype=None):
        super().__init__(name, dtype)
        self.ignore_class = ignore_class

    def counts(self, targets):
        """Return the count of each target, float32 `[B, T]`."""
        return ops.ones_like(targets, dtype="float32")

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Add a batch."""
        targets = as_targets(y_true)
        weights = token_weights(targets, keras_mask(y_pred), sample_weight, self.ignore_class)
        targets = ops.where(weights != 0, targets, -1)
        total = ops.sum(weights * token_losses(y_pred, targets))
        self.add(total, ops.sum(weights * self.counts(ops.maximum(targets, 0))))

    def get_config(self):
        return {**super().get_config(), "ignore_class": self.ignore_class}


@keras.saving.register_keras_serializable(package="keras_seq")
class Perplexity(_LossRatio):
    """Compute exp(mean loss per non-padding token) over all batches since the last reset; 1 before the first token.

    In `compile(metrics=[...])` it uses the mask that Keras passes along with the logits; as one of `weighted_metrics`
    it uses the sample weights too. It takes logits only. On JAX, Keras passes no mask to metrics in `fit` (it does in
    `evaluate`): give `ignore_class` or sample weights there.

    Args:
        ignore_class: Id that counts as padding; targets below zero do too.
        name: Name in Keras's logs.
        dtype: Dtype of Keras's metric; the sums are always float32.

    Raises:
        ValueError: On update, if the shapes of logits, weights or mask do not match the targets'.

    >>> perplexity = Perplexity()
    >>> perplexity.update_state([[3, 1, 0]], ops.zeros((1, 3, 8)))
    >>> round(float(perplexity.result()), 3)
    8.0
    """

    def __init__(self, ignore_class: int | None = None, name: str = "perplexity", dtype: str | None = None):
        super().__init__(ignore_class=ignore_class, name=name, dtype=dtype)

    def result(self):
        """Return the perplexity."""
        return ops.exp(self.ratio())


@keras.saving.register_keras_serializable(package="keras_seq")
class BitsPerCharacter(_LossRatio):
    """Compute bits per character of the text that the non-padding tokens stand for; 0 before the first character.

    Args:
        characters_per_token: `[V]`, characters of each id: 1 for every id of a `CharacterTokenizer`; 0 for an id that
            is not in the text, such as an end token, whose loss counts all the same. With numbers of bytes instead, the
            result is in bits per byte.
        ignore_class: Id that counts as padding; targets below zero do too.
        name: Name in Keras's logs.
        dtype: Dtype of Keras's metric; the sums are always float32.

    Raises:
        ValueError: If `characters_per_token` is not one axis of numbers of at least 0; on update, as `Perplexity`.

    >>> bits = BitsPerCharacter(characters_per_token=[1, 1, 2, 4])
    >>> bits.update_state([[3, 0, 1]], ops.zeros((1, 3, 4)))  # 3 tokens of 2 bits for 4 + 1 + 1 characters
    >>> round(float(bits.result()), 3)
    1.0
    """

    def __init__(
        self,
        characters_per_token,
        ignore_class: int | None = None,
        name: str = "bits_per_character",
        dtype: str | None = None,
    ):
        super().__init__(ignore_class=ignore_class, name=name, dtype=dtype)
        table = np.asarray(characters_per_token)
        if table.ndim != 1 or not table.size or table.dtype.kind not in "iuf" or not (table >= 0).all():
            raise ValueError(
                f"characters_per_token of type {table.dtype} and shape {table.shape}; "
                "expected one number of at least 0 for each id of the vocabulary: the length of its text."
            )
        self.characters_per_token = table

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Add a batch."""
        size, expected = ops.convert_to_tensor(y_pred).shape[-1], len(self.characters_per_token)
        if size not in (None, expected):
            raise ValueError(f"The logits are of {size} ids; expected {expected}, those of characters_per_token.")
        super().update_state(y_true, y_pred, sample_weight)

    def counts(self, targets):
        """Return the characters of each target."""
        return ops.take(ops.convert_to_tensor(self.characters_per_token, "float32"), targets)

    def result(self):
        """Return the bits per character."""
        return self.ratio() / math.log(2)

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {**super().get_config(), "characters_per_token": self.characters_per_token.tolist()}
