"""`layers.linear_recurrence.log_linear_recurrence` on TensorFlow's CPU.

One position after the other needs no logarithms: a product of many small a is never formed.
"""

import tensorflow as tf

from keras_seq.kernels import linear_recurrence
from keras_seq.kernels.devices import on_cpu


def can_run(log_a, log_b, h):
    """Whether the twin takes these arguments: on a machine without a GPU."""
    return on_cpu()


def run(log_a, log_b, h):
    """The twin of `keras_seq.layers.linear_recurrence.log_linear_recurrence`; see there."""
    return linear_recurrence.run(tf.exp(log_a), tf.exp(log_b), h)
