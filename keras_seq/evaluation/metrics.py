"""Streaming metrics over tokens: sums, divided by counts at the very end, never a mean over batches.

    nats, units   <-  nats + sum w nats_t,   units + sum w units_t          over the real tokens t of a batch
    Perplexity        = exp(nats / tokens)                                  units_t = 1
    BitsPerCharacter  = nats / (ln 2 characters)                            units_t = characters of the target id

Perplexities compare only under one tokenizer; bits per character compare across tokenizers, for the text's characters
are the same whatever they were cut into. A float32 sum stops growing at 2^24 times what is added to it. Here each sum
keeps, in a second float32, what rounding took from it (Knuth's TwoSum; Neumaier, 1974), so that its error stays that
of the sum over one batch, however many batches there are.
"""

import math

import keras
import numpy as np
from keras import ops

from keras_seq import checks
from keras_seq.evaluation.losses import token_losses, token_weights


def two_sum(a, b):
    """`(s, rest)`: `s = a + b` rounded, and the `rest` that the rounding lost, exactly: `s + rest = a + b`."""
    s = a + b
    of_b = s - a
    return s, (a - (s - of_b)) + (b - of_b)


class _NatsPerUnit(keras.metrics.Metric):
    """Sums nats and units over real tokens; a subclass says what a unit is, and what becomes of their ratio."""

    def __init__(self, ignore_class=None, name=None, dtype=None):
        super().__init__(name=name, dtype=dtype or "float32")
        self.ignore_class = ignore_class
        self.sums = self.add_variable((2,), initializer="zeros", dtype="float32", name="sums")  # nats, units
        self.compensation = self.add_variable((2,), initializer="zeros", dtype="float32", name="rests")

    def units(self, targets):
        """What each target counts in the divisor: float32 `[B, T]`."""
        raise NotImplementedError

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds a batch: targets `[B, T]`, logits `[B, T, V]` and their Keras mask, weights `[B, T]`, `[B]` or None."""
        targets = checks.integers("targets", ops.convert_to_tensor(y_true))
        weights = token_weights(targets, getattr(y_pred, "_keras_mask", None), sample_weight, self.ignore_class)
        targets = ops.where(weights > 0, targets, -1)
        nats = ops.sum(weights * token_losses(y_pred, targets))
        units = ops.sum(weights * self.units(ops.maximum(targets, 0)))
        sums, compensation = two_sum(ops.convert_to_tensor(self.sums), ops.stack([nats, units]))
        self.sums.assign(sums)
        self.compensation.assign_add(compensation)

    def nats_per_unit(self):
        """The ratio of the sums, 0 before the first token."""
        totals = self.sums + self.compensation
        return ops.divide_no_nan(totals[0], totals[1])

    def get_config(self):
        return {**super().get_config(), "ignore_class": self.ignore_class}


@keras.saving.register_keras_serializable(package="keras_seq")
class Perplexity(_NatsPerUnit):
    """exp of the nats per real token, over all batches since the last reset; 1 before the first token.

    In `compile(metrics=[...])` it heeds the mask that Keras carries along with the logits; to have it heed sample
    weights too, give it as one of `weighted_metrics`.

    Args:
        ignore: an id that is no token, such as that of the padding; targets below zero are none either.
        name: the name in Keras's logs.
        dtype: Keras's; the sums are float32 always.

    Raises:
        ValueError: on update, logits, weights or masks whose shapes do not belong to those of the targets.

    >>> perplexity = Perplexity()
    >>> perplexity.update_state([[3, 1, 0]], ops.zeros((1, 3, 8)))
    >>> round(float(perplexity.result()), 3)
    8.0
    """

    def __init__(self, ignore_class=None, name="perplexity", dtype=None):
        super().__init__(ignore_class=ignore_class, name=name, dtype=dtype)

    def units(self, targets):
        return ops.ones_like(targets, dtype="float32")

    def result(self):
        return ops.exp(self.nats_per_unit())


@keras.saving.register_keras_serializable(package="keras_seq")
class BitsPerCharacter(_NatsPerUnit):
    """Bits per character of the text that the real tokens stand for; 0 before the first character.

    Args:
        characters: `[V]`, how many characters each id stands for: 1 for every id of a `Vocabulary`; 0 for an id that
            is not in the text, such as one for its end: the cost of predicting that one counts all the same. With
            numbers of bytes instead, the result is in bits per byte.
        ignore, name, dtype: as for `Perplexity`.

    Raises:
        ValueError: `characters` is not one axis of numbers, none of them below zero; on update, as for `Perplexity`.

    >>> bits = BitsPerCharacter(characters=[1, 1, 2, 4])
    >>> bits.update_state([[3, 0, 1]], ops.zeros((1, 3, 4)))  # 3 tokens of 2 bits for 4 + 1 + 1 characters
    >>> round(float(bits.result()), 3)
    1.0
    """

    def __init__(self, characters_per_token, ignore_class=None, name="bits_per_character", dtype=None):
        super().__init__(ignore_class=ignore_class, name=name, dtype=dtype)
        table = np.asarray(characters_per_token)
        if table.ndim != 1 or not table.size or table.dtype.kind not in "iuf" or not (table >= 0).all():
            raise ValueError(
                f"characters of type {table.dtype} and shape {table.shape}; "
                "expected for each id of the vocabulary one number, 0 or more: the length of its text."
            )
        self.characters_per_token = table

    def units(self, targets):
        return ops.take(ops.convert_to_tensor(self.characters_per_token, "float32"), targets)

    def result(self):
        return self.nats_per_unit() / math.log(2)

    def get_config(self):
        return {**super().get_config(), "characters": self.characters_per_token.tolist()}
