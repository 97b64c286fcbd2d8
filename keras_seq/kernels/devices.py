"""Test which devices TensorFlow may compute on."""

import functools

import tensorflow as tf


@functools.cache
def on_cpu() -> bool:
    """Return whether TensorFlow has no GPU to compute on."""
    return not tf.config.list_logical_devices("GPU")
