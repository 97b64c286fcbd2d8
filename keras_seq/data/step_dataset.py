"""Turn a function of the step into what `fit` takes: `dataset(start_step, stop_step)` delivers `batch` over a range.

On TensorFlow that is a `tf.data.Dataset` (tf_pipeline.py), on torch a `DataLoader` (kernels/torch/step_loader.py), on
JAX a `keras.utils.PyDataset`.
"""

from collections.abc import Callable

import keras

from keras_seq import checks
from keras_seq.data.process_rows import rows_of_process


class StepBatches:
    """Base class of batches that are a function of the step; a subclass defines `batch(step)`."""

    fixed_size = True  # whether all batches have as many rows

    def dataset(self, start_step: int = 0, stop_step: int | None = None):
        """Create a dataset of `batch(start_step)`, ..., `batch(stop_step - 1)`, in this order, as `step_dataset` does.

        Args:
            start_step: First step.
            stop_step: Step after the last one; None for an endless dataset.

        Raises:
            ValueError: Not 0 <= start_step <= stop_step, in integers.
        """
        return step_dataset(self.batch, start_step, stop_step, self.fixed_size)


def check_steps(start_step: int, stop_step: int | None) -> None:
    """Raise a ValueError unless 0 <= start_step <= stop_step, in integers; None is an endless range."""
    checks.integer("start_step", start_step, min_value=0)
    if stop_step is not None:
        checks.integer("stop_step", stop_step, min_value=start_step)


def step_dataset(
    batch_fn: Callable[[int], object], start_step: int = 0, stop_step: int | None = None, fixed_size: bool = True
):
    """Create a dataset of the batches of a range of steps, in order.

    Args:
        batch_fn: Function from a step, a Python integer, to its batch: NumPy arrays `[B, ...]` in any nesting.
        start_step: First step.
        stop_step: Step after the last one; None for an endless dataset.
        fixed_size: Whether all batches have as many rows, B.

    Returns:
        A `tf.data.Dataset` on Keras's TensorFlow backend, a `StepDataLoader` on torch, a `StepDataset` on JAX; with
        the same batches, to the bit.

    Raises:
        ValueError: Not 0 <= start_step <= stop_step, in integers.
    """
    check_steps(start_step, stop_step)
    if keras.backend.backend() == "tensorflow":
        from keras_seq.data.tf_pipeline import step_pipeline

        return step_pipeline(batch_fn, start_step, stop_step, fixed_size)
    if keras.backend.backend() == "torch":
        from keras_seq.kernels.torch.step_loader import StepDataLoader

        return StepDataLoader(lambda step: rows_of_process(batch_fn(step)), start_step, stop_step)
    return StepDataset(batch_fn, start_step, stop_step)


class StepDataset(keras.utils.PyDataset):
    """The batches of a range of steps for Keras's `fit`, in order; arguments as for `step_dataset`.

    A batch is drawn when it is needed: that takes some 0.03 ms, while JAX and GPUs compute the step before it.

    Raises:
        ValueError: In `fit`: Keras shuffles the batches, as it does by default.
    """

    def __init__(self, batch_fn: Callable[[int], object], start_step: int, stop_step: int | None):
        super().__init__()
        self.batch_fn, self.start_step, self.stop_step = batch_fn, start_step, stop_step
        self._next_index = 0

    @property
    def num_batches(self) -> int | None:
        """The number of steps; None for an endless dataset."""
        return None if self.stop_step is None else self.stop_step - self.start_step

    def __getitem__(self, index: int):
        """Return the batch of step `start_step + index`; indices ascend from 0, as often as needed."""
        if index not in (0, self._next_index):
            raise ValueError(f"Batch {index} follows batch {self._next_index - 1}; expected order: fit(shuffle=False).")
        self._next_index = index + 1
        return rows_of_process(self.batch_fn(self.start_step + index))
