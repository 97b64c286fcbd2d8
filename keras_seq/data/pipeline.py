"""The rows of a batch that one process of several gives to Keras's distribution.

    rows [p B/P, (p+1) B/P) of the B rows of the batch          for process p of P

Every process draws the whole batch, which is a function of the step, so another number of processes trains on the same
batches.
"""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from keras_seq import checks


def rows_of_process(batch):
    """Return the rows of a batch that are this process's; all of them without other processes."""
    distribution = keras.distribution.distribution()
    if distribution is None:
        return batch
    return keras.tree.map_structure(lambda x: _rows(x, distribution), batch)


def _rows(x, distribution):
    if len(x) % distribution.num_model_replicas:
        raise ValueError(
            f"A batch has {len(x)} rows; expected a multiple of {distribution.num_model_replicas}, the devices that "
            "share it: use another number of devices, or another batch size."
        )
    rows = len(x) // distribution.num_processes
    first = distribution.data_shard_id * rows
    return x[first : first + rows]


# Turn a function of the step into what `fit` takes: `dataset(start_step, stop_step)` delivers `batch` over a range.
#
# On TensorFlow that is a `tf.data.Dataset` (tf_pipeline.py), on JAX and torch a `keras.utils.PyDataset`.


class StepBatches:
    """Base class of batches that are a function of the step; a subclass defines `batch(step)`."""

    fixed_size = True  # whether all batches have as many rows

    def dataset(self, start_step: int = 0, stop_step: int | None = None):
        """Create a dataset of `batch(start_step)`, ..., `batch(stop_step - 1)`, as `step_dataset` does."""
        return step_dataset(self.batch, start_step, stop_step, self.fixed_size)


def check_steps(start_step: int, stop_step: int | None) -> None:
    """Raise a ValueError unless 0 <= start_step <= stop_step, in integers; None is an endless range."""
    checks.integer("start_step", start_step, min_value=0)
    if stop_step is not None:
        checks.integer("stop_step", stop_step, min_value=start_step)


def step_dataset(
    batch_fn: Callable[[int], object], start_step: int = 0, stop_step: int | None = None, fixed_size: bool = True
):
    """Create a dataset of the batches of a range of steps, in order."""
    check_steps(start_step, stop_step)
    if keras.backend.backend() == "tensorflow":
        pass

        return step_pipeline(batch_fn, start_step, stop_step, fixed_size)
    return StepDataset(batch_fn, start_step, stop_step)


class StepDataset(keras.utils.PyDataset):
    """The batches of a range of steps for Keras's `fit`, in order; arguments as for `step_dataset`.

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
        return rows_of_process(self.batch_fn(self.start_step + index))


# Deliver the batches of a range of steps by `tf.data`: NumPy draws them, several steps at a time, as the model trains.
#
# `tf.numpy_function` and not `Dataset.from_generator`, which sets glibc's M_TRIM_THRESHOLD: that ends the adaptation
# of
# malloc to large tensors in the whole process (man mallopt).


MAX_STEPS_PER_CALL, MAX_BYTES_PER_CALL = 16, 1 << 20  # a call to Python takes as long as several small batches


def step_pipeline(
    batch_fn: Callable[[int], object], start_step: int, stop_step: int | None, fixed_size: bool
) -> tf.data.Dataset:
    """Create a `tf.data.Dataset` of the batches of a range of steps, in order; arguments as for `step_dataset`."""
    stop = np.iinfo("int64").max if stop_step is None else stop_step
    example = batch_fn(start_step)
    max_steps = MAX_BYTES_PER_CALL // max(1, sum(array.nbytes for array in tf.nest.flatten(example)))
    steps_per_call = min(MAX_STEPS_PER_CALL, max(1, max_steps)) if fixed_size else 1

    def draw(first):
        batches = [tf.nest.flatten(batch_fn(step)) for step in range(first, min(first + steps_per_call, stop))]
        return [np.stack(arrays) for arrays in zip(*batches, strict=True)]

    def call(first):
        arrays = tf.numpy_function(draw, [first], [array.dtype for array in tf.nest.flatten(example)])
        for array, (rows, *shape) in zip(arrays, (array.shape for array in tf.nest.flatten(example)), strict=True):
            array.set_shape([None, rows if fixed_size else None, *shape])
        return tf.nest.pack_sequence_as(example, arrays)

    batches = tf.data.Dataset.range(start_step, stop, steps_per_call).map(call).unbatch()
    return _prefetch(batches, start_step, stop_step)


def example_pipeline(batch_fn: Callable[[int], object], start_step: int, stop_step: int | None) -> tf.data.Dataset:
    """Create a dataset like `step_pipeline`, with a slow path: each row is passed by a Python generator."""
    example = batch_fn(start_step)
    first, *others = tf.nest.flatten(example)
    specs = tuple(tf.TensorSpec(array.shape[1:], array.dtype) for array in (first, *others))

    def rows():
        for batch in StepDataset(batch_fn, start_step, stop_step):
            yield from zip(*tf.nest.flatten(batch), strict=True)

    batches = tf.data.Dataset.from_generator(rows, output_signature=specs).batch(len(first), drop_remainder=True)
    return _prefetch(batches.map(lambda *arrays: tf.nest.pack_sequence_as(example, arrays)), start_step, stop_step)


def _prefetch(batches, start_step, stop_step):
    """Add prefetching to a dataset, its length, and no thread that tunes it."""
    options = tf.data.Options()
    # With autotuning, iteration ends up to a minute late: it joins the tuning thread, which sleeps.
    options.autotune.enabled = False
    num_batches = tf.data.INFINITE_CARDINALITY if stop_step is None else stop_step - start_step
    batches = batches.apply(tf.data.experimental.assert_cardinality(num_batches))
    return batches.prefetch(tf.data.AUTOTUNE).with_options(options)
