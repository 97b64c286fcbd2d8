"""Random windows from a Python generator, one example at a time: the input pipeline of char-RNN scripts of 2017.

    for step: for b: start ~ Uniform{0, ..., N-T-1};  yield ids[start : start + T], ids[start + 1 : start + T + 1]

Every example is passed from Python to TensorFlow separately, which is slow; `RandomWindows` draws from the same
distribution with one gather per batch. This version exists to measure the difference.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from keras_seq.data.step_dataset import check_step, check_steps, prefetch
from keras_seq.data.windows import RandomWindows


@dataclass(frozen=True, eq=False)
class PythonGeneratorWindows(RandomWindows):
    """Windows that start anywhere in the text, read through `tf.data.Dataset.from_generator`.

    The generator seeds itself with (seed, step), so it can start at any step. Its draws differ from `RandomWindows`.

    Args:
        ids: The text, integers `[N]`.
        batch_size: B, the rows of a batch.
        sequence_length: T, the positions of a row.
        seed: Integer of at least 0; the starts depend on (seed, step) only.

    Raises:
        ValueError: As for `Windows`.

    >>> windows = PythonGeneratorWindows(list(range(100)), batch_size=2, sequence_length=3)
    >>> len(list(windows.dataset(5, 9)))
    4
    """

    def starts(self, step: int) -> np.ndarray:
        """Return the positions in the text where the rows of a step, a Python integer, start: int64 `[B]`."""
        check_step(step)
        generator = np.random.default_rng([self.seed, int(step)])
        return generator.integers(self.num_ids - self.sequence_length, size=self.batch_size)

    def dataset(self, start_step: int = 0, stop_step: int | None = None) -> tf.data.Dataset:
        """Create a dataset of `batch(start_step)`, ..., `batch(stop_step - 1)`, in this order.

        Args:
            start_step: First step.
            stop_step: Step after the last one; None for an endless dataset.

        Raises:
            ValueError: Not 0 <= start_step <= stop_step, in integers.
        """
        check_steps(start_step, stop_step)
        ids = self.ids.numpy()

        def examples():
            for step in itertools.count(start_step) if stop_step is None else range(start_step, stop_step):
                for start in self.starts(step):
                    yield ids[start : start + self.sequence_length], ids[start + 1 : start + self.sequence_length + 1]

        row = tf.TensorSpec([self.sequence_length], tf.int32)
        examples = tf.data.Dataset.from_generator(examples, output_signature=(row, row))
        return prefetch(examples.batch(self.batch_size, drop_remainder=True))
