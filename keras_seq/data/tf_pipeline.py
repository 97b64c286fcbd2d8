"""Deliver the batches of a range of steps by `tf.data`: NumPy draws them, several steps at a time, as the model trains.

`tf.numpy_function` and not `Dataset.from_generator`, which sets glibc's M_TRIM_THRESHOLD: that ends the adaptation of
malloc to large tensors in the whole process (man mallopt).
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_seq.data.step_dataset import StepDataset

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
