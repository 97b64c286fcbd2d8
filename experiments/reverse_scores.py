"""How well a model reverses sequences that it was not trained on, and whether it sees the future.

    second half   behind the separator: is argmax of the logits the id that comes?
    first half    the letters before it, given that a letter comes:  nats = logsumexp(z_a over all letters a) - z_y

The ids before each position are the right ones (teacher forcing). Greedy generation, which reads what it wrote itself,
gets a sequence right exactly when teacher forcing has it right everywhere: up to the first mistake a causal model reads
the same in both.

The letters of the first half are drawn at random: whoever does not see them pays log A for each, on average.
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
TOLERANCE = 0.02  # of log A
ROWS = 250  # sequences scored at a time


@dataclasses.dataclass(frozen=True)
class Score:
    """Sums, and what they are over; scores of different sequences can be added."""

    nats: float = 0.0
    tokens: float = 0.0
    second_half_right: float = 0.0
    second_half_tokens: float = 0.0
    rows_right: float = 0.0
    rows: float = 0.0
    letter_nats: float = 0.0
    letters: float = 0.0

    def __add__(self, other):
        return Score(*map(sum, zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))

    @property
    def figures(self) -> dict[str, float]:
        """The ratios by name."""
        return {
            "val_loss": self.nats / self.tokens,
            "second_half_accuracy": self.second_half_right / self.second_half_tokens,
            "sequence_accuracy": self.rows_right / self.rows,
            "first_half_loss": self.letter_nats / self.letters,
        }


def score(logits, x, y, task: Reversal) -> Score:
    """The score of one batch of `task`: logits `[B, T, V]`, ids and targets `[B, T]`."""
    logits, real = tf.cast(logits, tf.float32), y >= 0
    second = (tf.cumsum(tf.cast(x == task.separator, tf.int32), axis=1) > 0) & real
    right = tf.argmax(logits, -1, tf.int32) == y
    letter = real & ~second & (y < task.alphabet_size)
    letter_nats = token_losses(logits[..., : task.alphabet_size], tf.where(letter, y, -1))
    counted = (real, right & second, second, tf.reduce_all(right | ~second, axis=1), tf.ones_like(x[:, 0]))
    sums = [token_losses(logits, y), *counted, letter_nats, letter]
    return Score(*(float(tf.reduce_sum(tf.cast(values, tf.float32))) for values in sums))


class Scorer:
    """Scores one model; compiled once for all its validations."""

    def __init__(self, model, task: Reversal):
        self.task = task
        self.logits = tf.function(lambda ids: model(ids, training=False), reduce_retracing=True)

    def __call__(self, lengths, sequences, seed) -> dict[int, Score]:
        """The score at each of these lengths, over so many sequences drawn with this seed."""
        return {length: self._at(length, sequences, seed) for length in lengths}

    def _at(self, length, sequences, seed):
        rows = {"batch_size": min(ROWS, sequences), "seed": seed + length}  # other letters at every length
        task = dataclasses.replace(self.task.with_length(length), **rows)
        total = Score()
        for step, left in enumerate(range(sequences, 0, -task.batch_size)):
            x, y = (ids[:left] for ids in task.batch(step))
            total += score(self.logits(x), x, y, task)
        return total

    def write(self, given) -> np.ndarray:
        """Rows `[B, 2 L + 3]` from `start a_1 ... a_L |`, `[B, L + 2]`: the rest is greedy generation.

        The whole row goes in for every id, with ends where nothing is written yet: a causal model does not mind.
        """
        rows = np.pad(given, ((0, 0), (0, given.shape[1] - 1)), constant_values=self.task.end)
        for place in range(given.shape[1], rows.shape[1]):
            rows[:, place] = self.logits(tf.constant(rows[:, :-1]))[:, place - 1].numpy().argmax(-1)
        return rows


def spelled(row, task: Reversal) -> str:
    """Ids as text, `<abc|cba>`."""
    signs = LETTERS[: task.alphabet_size] + "|><"
    return "".join(signs[i] for i in row)


def verdict(first_half_nats, alphabet_size) -> tuple[bool, bool, str]:
    """Whether a model is causal, whether it has learned as well what a causal model can, and both in a sentence."""
    least = math.log(alphabet_size)
    cost, known = (
        f"a letter of the first half costs it {first_half_nats:.3f} nats",
        f"log {alphabet_size} = {least:.3f}",
    )
    if first_half_nats < (1 - TOLERANCE) * least:
        return False, False, f"The model sees the future: {cost}, and nobody who does not gets below {known}."
    if first_half_nats > (1 + TOLERANCE) * least:
        return True, False, f"The model has not learned yet that all letters are as likely: {cost}, more than {known}."
    return True, True, f"The model does not see the future: {cost}, and {known} is the least without."


def attention(model, ids) -> list[np.ndarray]:
    """The attention weights `[H, T, T]` of each Transformer block, for one row of ids `[T]`."""
    x, maps = tf.constant(ids)[None], []
    for layer in model.layers:
        if isinstance(layer, TransformerBlock):
            x, scores = layer(x, training=False, return_attention_scores=True)
            maps.append(tf.cast(scores["self_attention"][0], tf.float32).numpy())
        elif not isinstance(layer, keras.layers.InputLayer):
            x = layer(x)
    return maps
