"""Random windows from a Python generator, one example at a time: the pipeline of the char-RNNs of 2017.

    for step: for b: start ~ Uniform{0, ..., N-T-1};  yield ids[start : start + T], ids[start + 1 : start + T + 1]

Every example crosses from Python into TensorFlow by itself, which is why it is slow; `RandomCrops` draws from the same
distribution in one gather a batch. It is kept to be measured against.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from keras_seq.data.step_dataset import check_step, check_steps, prefetch
from keras_seq.data.windows import RandomWindows


@dataclass(frozen=True, eq=False)
class PythonGeneratorWindows(RandomWindows):
    """Rows that start anywhere in the text, through `tf.data.Dataset.from_generator`.

    The generator seeds itself by (seed, step), so that it too can begin at any step.

    The arguments and errors are those of `RandomCrops`; the draws are others.

    >>> windows = GeneratorWindows(list(range(100)), batch_size=2, length=3)
    >>> len(list(windows.dataset(5, 9)))
    4
    """

    def starts(self, step: int) -> np.ndarray:
        """Where the rows of this step start in the text: int64 `[B]`. NumPy draws them, so the step is a number."""
        check_step(step)
        generator = np.random.default_rng([self.seed, int(step)])
        return generator.integers(self.num_ids - self.sequence_length, size=self.batch_size)

    def dataset(self, start_step: int = 0, stop_step: int | None = None) -> tf.data.Dataset:
        """The batches `at(first)`, ..., `at(last - 1)`, in this order; without end where `last` is None.

        Raises:
            ValueError: Not 0 <= first <= last in whole numbers.
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
