"""What the predicates of the twins ask about the machine."""

import functools

import tensorflow as tf


@functools.cache
def on_cpu() -> bool:
    """Whether TensorFlow may use no other device than the CPU."""
    return not tf.config.list_logical_devices("GPU")
