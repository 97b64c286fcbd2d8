"""Compute a step in the replicas of a `tf.distribute.Strategy`, on TensorFlow; each has some rows of the batch.

A loss is a sum over the tokens of all replicas, and its gradient too. What is updated is then the same in all replicas,
so that each device updates its copies by itself, in conditions and compiled functions as on a device alone.
"""

from collections.abc import Callable

import keras
from keras import ops

from keras_seq import checks

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
    """Return the sum of each tensor over the replicas, in the code of one of them.

    Args:
        tensors: Tensors, of the same shapes in all replicas.
    """
    context = tf.distribute.get_replica_context()
    if any("CPU" not in device for device in context.strategy.extended.worker_devices):
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors)

    def add(strategy, *values):  # since TensorFlow mixes up the collectives of two strategies in a process
        return [tf.add_n(strategy.experimental_local_results(value)) for value in values]

    return context.merge_call(add, args=tuple(tensors))


def update(function: Callable, gradients: list, variables: list) -> None:
    """Call a function on each device, of the sums of the gradients, in the code of a replica.

    Args:
        function: Function of a list of gradients, None as here, that assigns variables: on each device their copies.
        gradients: Gradients of this replica, None for a variable without one.
        variables: Variables that the function assigns, one or more.
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

    Args:
        x: Tensor. A number that is not whole becomes one that no vocabulary has.
    """
    if not (in_strategy() and checks.dtype_of(x) == "float64"):
        return x
    return ops.where(x == ops.round(x), ops.cast(x, "int64"), checks.MAX_INT32)
