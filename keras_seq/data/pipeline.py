"""Turn a function of the step into what `fit` takes: `dataset(start_step, stop_step)` delivers `batch` over a range.

    TensorFlow    a `tf.data.Dataset`                       JAX, torch    a `keras.utils.PyDataset`

With several processes, each draws the whole batch of a step and gives Keras's distribution its own rows,
[p B/P, (p+1) B/P) for process p of P. So another number of processes trains on the same batches.
"""

from collections.abc import Callable

import keras
import numpy as np

from keras_seq import checks

MAX_STEPS_PER_CALL, MAX_BYTES_PER_CALL = 16, 1 << 20  # a call to Python takes as long as several small batches


class StepBatches:
    """Base class of batches that are a function of the step; a subclass defines `batch(step)`."""

    fixed_size = True  # whether all batches have as many rows

    @property
    def tokens_per_step(self) -> int:
        """B T, the ids of a batch, where a subclass has `batch_size` and `sequence_length`."""
        return self.batch_size * self.sequence_length

    def dataset(self, start_step: int = 0, stop_step: int | None = None):
        """Create a dataset of `batch(start_step)`, ..., `batch(stop_step - 1)`, in order; see `step_dataset`."""
        return step_dataset(self.batch, start_step, stop_step, self.fixed_size)


def step_dataset(
    batch_fn: Callable[[int], object], start_step: int = 0, stop_step: int | None = None, fixed_size: bool = True
):
    """Create a dataset of the batches of a range of steps, in order; without a `stop_step`, an endless one."""
    checks.integer("start_step", start_step, min_value=0)
    if stop_step is not None:
        checks.integer("stop_step", stop_step, min_value=start_step)
    if keras.backend.backend() == "tensorflow":
        return _tf_dataset(batch_fn, start_step, stop_step, fixed_size)
    return StepDataset(batch_fn, start_step, stop_step)


class StepDataset(keras.utils.PyDataset):
    """The batches of a range of steps for Keras's `fit`, in order.

    A batch is drawn when it is needed: that takes some 0.03 ms, while JAX and GPUs compute the step before it.
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
        batch, distribution = self.batch_fn(self.start_step + index), keras.distribution.distribution()
        return batch if distribution is None else keras.tree.map_structure(lambda x: _rows(x, distribution), batch)


def _rows(x, distribution):
    """Return this process's rows of an array."""
    if len(x) % distribution.num_model_replicas:
        devices = f"{distribution.num_model_replicas}, the devices that share it"
        raise ValueError(f"A batch has {len(x)} rows; expected a multiple of {devices}.")
    rows = len(x) // distribution.num_processes
    first = distribution.data_shard_id * rows
    return x[first : first + rows]


def _tf_dataset(batch_fn, start_step, stop_step, fixed_size):
    """Have NumPy draw several steps at a time, as the model trains.

    Not by `from_generator`, which sets glibc's M_TRIM_THRESHOLD: that ends the adaptation of malloc to large tensors in
    the whole process (man mallopt).
    """
    import tensorflow as tf

    stop = np.iinfo("int64").max if stop_step is None else stop_step
    example = batch_fn(start_step)
    arrays = tf.nest.flatten(example)
    max_steps = MAX_BYTES_PER_CALL // max(1, sum(array.nbytes for array in arrays))
    steps_per_call = min(MAX_STEPS_PER_CALL, max(1, max_steps)) if fixed_size else 1

    def draw(first):
        batches = [tf.nest.flatten(batch_fn(step)) for step in range(first, min(first + steps_per_call, stop))]
        return [np.stack(parts) for parts in zip(*batches, strict=True)]  # [steps, B, ...] each

    def call(first):
        tensors = tf.numpy_function(draw, [first], [array.dtype for array in arrays])
        for tensor, array in zip(tensors, arrays, strict=True):
            tensor.set_shape([None, len(array) if fixed_size else None, *array.shape[1:]])
        return tf.nest.pack_sequence_as(example, tensors)

    batches = tf.data.Dataset.range(start_step, stop, steps_per_call).map(call).unbatch()
    options = tf.data.Options()
    # With autotuning, iteration ends up to a minute late: it joins the tuning thread, which sleeps.
    options.autotune.enabled = False
    num_batches = tf.data.INFINITE_CARDINALITY if stop_step is None else stop_step - start_step
    batches = batches.apply(tf.data.experimental.assert_cardinality(num_batches))
    return batches.prefetch(tf.data.AUTOTUNE).with_options(options)
