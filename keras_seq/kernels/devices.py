"""What the predicates of the twins ask about the machine."""

import functools

import tensorflow as tf


@functools.cache
def on_cpu() -> bool:
    """Whether TensorFlow has no other device than the CPU."""
    return not tf.config.list_physical_devices("GPU")
