"""Metrics of sequence reversal, and a check by the loss that a model is causal.

    second half   the ids after the separator; correct where argmax(logits) is the target
    first half    the letters before it, given that a letter comes:  loss = logsumexp(z_a over all letters a) - z_y

The inputs are the true ids (teacher forcing). Greedy generation of a causal model gets a sequence right exactly if
teacher forcing has all its ids right: up to the first mistake both have the same inputs.

The letters of the first half are independent and uniform, so the expected loss of a causal model is at least log A.
"""

import dataclasses
import math
import string

import keras
import numpy as np
import tensorflow as tf

from keras_seq.data.synthetic import Reversal
from keras_seq.evaluation.losses import token_losses
from keras_seq.layers import TransformerBlock

LETTERS = string.ascii_lowercase + string.ascii_uppercase
TOLERANCE = 0.02  # relative, of the first half loss around log A
BATCH_SIZE = 250  # sequences scored at a time


@dataclasses.dataclass(frozen=True)
class ReversalTotals:
    """Sums and counts of scored sequences; instances for different sequences can be added."""

    loss: float = 0.0
    tokens: float = 0.0
    second_half_correct: float = 0.0
    second_half_tokens: float = 0.0
    correct_sequences: float = 0.0
    sequences: float = 0.0
    first_half_loss: float = 0.0
    first_half_letters: float = 0.0

    def __add__(self, other):
        return ReversalTotals(*map(sum, zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))

    @property
    def metrics(self) -> dict[str, float]:
        """Return the means by name."""
        return {
            "val_loss": self.loss / self.tokens,
            "second_half_accuracy": self.second_half_correct / self.second_half_tokens,
            "sequence_accuracy": self.correct_sequences / self.sequences,
            "first_half_loss": self.first_half_loss / self.first_half_letters,
        }


def batch_totals(logits, x, y, task: Reversal) -> ReversalTotals:
    """Score one batch.

    Args:
        logits: `[B, T, V]`.
        x: Input ids `[B, T]`.
        y: Target ids `[B, T]`, -1 where there is none.
        task: The task that the batch is drawn from.
    """
    logits, is_valid = tf.cast(logits, tf.float32), y >= 0
    second_half = (tf.cumsum(tf.cast(x == task.separator, tf.int32), axis=1) > 0) & is_valid
    correct = tf.argmax(logits, -1, tf.int32) == y
    first_half = is_valid & ~second_half & (y < task.alphabet_size)
    first_half_losses = token_losses(logits[..., : task.alphabet_size], tf.where(first_half, y, -1))
    sequence_correct = tf.reduce_all(correct | ~second_half, axis=1)
    counts = (is_valid, correct & second_half, second_half, sequence_correct, tf.ones_like(x[:, 0]))
    sums = [token_losses(logits, y), *counts, first_half_losses, first_half]
    return ReversalTotals(*(float(tf.reduce_sum(tf.cast(values, tf.float32))) for values in sums))


class Scorer:
    """Score a model; it is compiled once for all validations.

    Args:
        model: Model from ids `[B, T]` to logits `[B, T, V]`.
        task: The training task.
    """

    def __init__(self, model: keras.Model, task: Reversal):
        self.task = task
        self.logits = tf.function(lambda ids: model(ids, training=False), reduce_retracing=True)

    def __call__(self, lengths, num_sequences: int, seed: int) -> dict[int, ReversalTotals]:
        """Score sequences of each length.

        Args:
            lengths: Numbers of letters.
            num_sequences: Sequences of each length.
            seed: Random seed of the sequences.

        Returns:
            A dict from each length to its totals.
        """
        return {length: self._totals(length, num_sequences, seed) for length in lengths}

    def _totals(self, length, num_sequences, seed):
        batching = {
            "batch_size": min(BATCH_SIZE, num_sequences),
            "seed": seed + length,
        }  # a different seed for each length
        task = dataclasses.replace(self.task.with_length(length), **batching)
        total = ReversalTotals()
        for step, remaining in enumerate(range(num_sequences, 0, -task.batch_size)):
            x, y = (ids[:remaining] for ids in task.batch(step))
            total += batch_totals(self.logits(x), x, y, task)
        return total

    def generate(self, prompts) -> np.ndarray:
        """Complete rows `start a_1 ... a_L |` by greedy generation.

        Each step runs the model on the whole row, padded with end ids, which a causal model ignores.

        Args:
            prompts: Ids `[B, L + 2]`.

        Returns:
            Ids `[B, 2 L + 3]`.
        """
        rows = np.pad(prompts, ((0, 0), (0, prompts.shape[1] - 1)), constant_values=self.task.end)
        for t in range(prompts.shape[1], rows.shape[1]):
            rows[:, t] = self.logits(tf.constant(rows[:, :-1]))[:, t - 1].numpy().argmax(-1)
        return rows


def to_letters(row, task: Reversal) -> str:
    """Decode ids as text, such as `<abc|cba>`.

    Args:
        row: Ids `[T]`.
        task: The task, for its alphabet.
    """
    symbols = LETTERS[: task.alphabet_size] + "|><"
    return "".join(symbols[i] for i in row)


def causality_verdict(first_half_loss: float, alphabet_size: int) -> tuple[bool, bool, str]:
    """Decide by the first half loss whether a model is causal.

    Args:
        first_half_loss: Mean loss in nats per letter of the first half.
        alphabet_size: A.

    Returns:
        Whether the model is causal, whether its loss is also as low as a causal model can have it, and a message.
    """
    entropy = math.log(alphabet_size)
    loss = f"its first half loss is {first_half_loss:.3f} nats per letter"
    bound = f"log {alphabet_size} = {entropy:.3f}"
    if first_half_loss < (1 - TOLERANCE) * entropy:
        return False, False, f"The model is not causal, it sees future tokens: {loss}; the minimum without is {bound}."
    if first_half_loss > (1 + TOLERANCE) * entropy:
        return True, False, f"The model has not learned that all letters are equally likely: {loss}, more than {bound}."
    return True, True, f"The model is causal: {loss}; the minimum without seeing future tokens is {bound}."


def attention(model: keras.Model, ids) -> list[np.ndarray]:
    """Compute the attention weights `[H, T, T]` of each Transformer block.

    Args:
        model: The model.
        ids: One row of ids `[T]`.
    """
    x, maps = tf.constant(ids)[None], []
    for layer in model.layers:
        if isinstance(layer, TransformerBlock):
            x, scores = layer(x, training=False, return_attention_scores=True)
            maps.append(tf.cast(scores["self_attention"][0], tf.float32).numpy())
        elif not isinstance(layer, keras.layers.InputLayer):
            x = layer(x)
    return maps
