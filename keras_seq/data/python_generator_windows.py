"""Random windows from a Python generator, one example at a time: the input pipeline of char-RNN scripts of 2017.

    for step: for b: start ~ Uniform{0, ..., N-T-1};  yield ids[start : start + T], ids[start + 1 : start + T + 1]

Every example is passed from Python to TensorFlow separately, which is slow; `RandomWindows` passes the same batches,
several at a time. This version exists to measure the difference.
"""

from collections.abc import Callable
from dataclasses import dataclass

import keras

from keras_seq.data.step_dataset import check_steps, step_dataset
from keras_seq.data.windows import RandomWindows


@dataclass(frozen=True, eq=False)
class PythonGeneratorWindows(RandomWindows):
    """`RandomWindows`, with the same arguments, read through `tf.data.Dataset.from_generator`.

    >>> windows = PythonGeneratorWindows(list(range(100)), batch_size=2, sequence_length=3)
    >>> len(list(windows.dataset(5, 9)))
    4
    """

    def dataset(self, start_step: int = 0, stop_step: int | None = None):
        """Create a dataset as `python_generator_dataset` does."""
        return python_generator_dataset(self.batch, start_step, stop_step)


def python_generator_dataset(batch_fn: Callable[[int], object], start_step: int = 0, stop_step: int | None = None):
    """Create a dataset like `step_dataset` whose rows a Python generator yields, one at a time.

    The arguments are those of `step_dataset`, as is the result on backends other than TensorFlow, which have no such
    pipeline.
    """
    if keras.backend.backend() != "tensorflow":
        return step_dataset(batch_fn, start_step, stop_step)
    check_steps(start_step, stop_step)
    from keras_seq.data.tf_pipeline import example_pipeline

    return example_pipeline(batch_fn, start_step, stop_step)
