"""Generate a synthetic task: a random sequence, followed by its reversal.

    row = start a_1 ... a_L | a_L ... a_1 end        L uniform over min_length ... max_length, a_i over the letters
    x = row[:-1],   y = row[1:],   -1 in y after the end                                        T = 2 max_length + 2

Before the separator the letters are random: the loss is log A nats per letter, and lower only if a model sees the
future. After the separator everything is determined: a perfect model predicts every position.

Ids: letters 0 ... A-1, the separator A, the end A+1 (also the padding of short rows), the start A+2.
"""

from dataclasses import dataclass, replace

import numpy as np

from keras_seq import checks
from keras_seq.data.pipeline import StepBatches
from keras_seq.random_draws import integers


@dataclass(frozen=True)
class Reversal(StepBatches):
    """Batches of sequences to reverse, as a function of the step.

    Args:
        alphabet_size: A, the number of letters, at least 2.
        min_length: Minimum number of letters of a sequence, at least 1.
        max_length: Maximum number of letters of a sequence.
        batch_size: B, the rows of a batch.
        seed: Integer of at least 0; the rows depend on (seed, step) only.

    Raises:
        ValueError: A number is not an integer or out of its range.

    >>> x, y = Reversal(alphabet_size=26, min_length=3, max_length=3, batch_size=1).batch(0)
    >>> bool((x[0, 1:4] == y[0, 6:3:-1]).all())
    True
    """

    alphabet_size: int
    min_length: int
    max_length: int
    batch_size: int
    seed: int = 0

    def __post_init__(self):
        """Check the fields."""
        checks.integer("alphabet_size", self.alphabet_size, min_value=2)
        checks.integer("min_length", self.min_length, min_value=1)
        checks.integer("max_length", self.max_length, min_value=self.min_length)
        checks.integer("batch_size", self.batch_size, min_value=1)
        checks.integer("seed", self.seed, min_value=0)

    @property
    def separator(self) -> int:
        """The id between a sequence and its reversal."""
        return self.alphabet_size

    @property
    def end(self) -> int:
        """The id after the reversal."""
        return self.alphabet_size + 1

    @property
    def start(self) -> int:
        """The id before the first letter."""
        return self.alphabet_size + 2

    @property
    def vocabulary_size(self) -> int:
        """V, the number of ids."""
        return self.alphabet_size + 3

    @property
    def sequence_length(self) -> int:
        """T, the positions of a row."""
        return 2 * self.max_length + 2

    @property
    def tokens_per_step(self) -> int:
        """The expected number of targets of a batch: 2 L + 2 for each row."""
        return self.batch_size * (self.min_length + self.max_length + 2)

    def with_length(self, length: int) -> "Reversal":
        """Return the task with sequences of one length only: T is 2 length + 2, and every position has a target."""
        return replace(self, min_length=length, max_length=length)

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the batch of a step, from 0: `(x, y)`, int32 `[B, T]` each, the ids and the next ids or -1."""
        checks.integer("step", step, min_value=0)
        num_lengths = self.max_length - self.min_length + 1
        lengths = self.min_length + integers((self.batch_size, 1), num_lengths, self.seed, step, "lengths")
        shape = (self.batch_size, self.max_length)
        letters = integers(shape, self.alphabet_size, self.seed, step, "letters").astype("int32")

        t = np.arange(self.sequence_length + 1)[None]  # [1, T+1]; the separator is at L + 1, the end at 2 L + 2
        letter = np.where(t <= lengths, t - 1, 2 * lengths + 1 - t)  # forwards, then backwards
        row = np.take_along_axis(letters, letter.clip(0, self.max_length - 1), axis=1)  # [B, T+1]
        row = np.where(t == 0, self.start, row)
        row = np.where(t == lengths + 1, self.separator, row)
        row = np.where(t >= 2 * lengths + 2, self.end, row)
        return row[:, :-1], np.where(t > 2 * lengths + 2, -1, row)[:, 1:]
