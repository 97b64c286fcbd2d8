"""Compute a step in the replicas of a `tf.distribute.Strategy`, on TensorFlow; check the rows of a batch.

A replica has some rows. A loss is a sum over the tokens of all replicas, and its gradient too. What is updated is then
the same in all of them, so that each device updates its copies by itself, in conditions and compiled functions as on a
device alone.
"""

from collections.abc import Callable

import keras
from keras import ops

from keras_seq import checks
from keras_seq.ops import tensor_checks
from keras_seq.ops.dispatch import optimized

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf


def in_strategy() -> bool:
    """Return whether a strategy is in use, in its scope or in a replica."""
    return keras.backend.backend() == "tensorflow" and tf.distribute.has_strategy()


def in_replica() -> bool:
    """Return whether this is the code of one of the replicas."""
    return in_strategy() and not tf.distribute.in_cross_replica_context()


def count() -> int:
    """Return the number of replicas of the strategy in use."""
    return tf.distribute.get_strategy().num_replicas_in_sync


def sums(tensors: list) -> list:
    """Return the sum of each tensor over the replicas, in the code of one of them; shapes are the same in all."""
    context = tf.distribute.get_replica_context()
    if any("CPU" not in device for device in context.strategy.extended.worker_devices):
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors)

    def add(strategy, *values):  # since TensorFlow mixes up the collectives of two strategies in a process
        return [tf.add_n(strategy.experimental_local_results(value)) for value in values]

    return context.merge_call(add, args=tuple(tensors))


def update(function: Callable, gradients: list, variables: list) -> None:
    """Call a function on each device, of the sums of the gradients, in the code of a replica.

    It assigns the variables, one or more: on each device their copies. A gradient is None for a variable without one.
    """
    indices = [n for n, gradient in enumerate(gradients) if gradient is not None]
    summed = sums([gradients[n] for n in indices]) if indices else []

    def on_device(_, *values):
        function([values[indices.index(n)] if n in indices else None for n in range(len(gradients))])

    def on_all(strategy, *values):
        strategy.extended.update(variables[0].value, on_device, args=values, group=False)

    tf.distribute.get_replica_context().merge_call(on_all, args=tuple(summed))


def whole_numbers(x):
    """Return float64 as integers where a strategy is in use: Keras hands over the mean of the replicas' first batches.

    A number that is not whole becomes one that no vocabulary has.
    """
    if not (in_strategy() and tensor_checks.dtype_of(x) == "float64"):
        return x
    return ops.where(x == ops.round(x), ops.cast(x, "int64"), checks.MAX_INT32)


@optimized
def checked_rows(x, batch_size: int, expected: str):
    """Return `x [B, ...]` if it has `batch_size` rows, or raise a ValueError that says what is expected.

    Where a running graph finds another number, x is NaN, or -1 for integers, which are then no ids.
    """
    if x.shape[0] is None:
        otherwise = -1 if "int" in tensor_checks.dtype_of(x) else float("nan")
        return ops.where(ops.equal(ops.shape(x)[0], batch_size), x, otherwise)
    if x.shape[0] != batch_size:
        raise ValueError(f"inputs have {x.shape[0]} rows; {expected}.")
    return x


def rows_are_unknown(x, batch_size, expected) -> bool:
    """Return whether the number of rows is unknown."""
    return x.shape[0] is None


@checked_rows.on("tensorflow", supports=rows_are_unknown)
def asserted_rows(x, batch_size, expected):
    """Return x, or have a running graph raise `tf.errors.InvalidArgumentError`; compiled by XLA, it is NaN."""
    num_rows = tf.shape(x)[0]
    check = tf.debugging.Assert(num_rows == batch_size, ["inputs have", num_rows, f"rows; {expected}."])
    with tf.control_dependencies([check]):  # which XLA leaves out, so x is NaN too
        return tf.where(num_rows == batch_size, x, -1 if x.dtype.is_integer else float("nan"))
