"""`layers.linear_recurrence.log_linear_recurrence` on TensorFlow.

In float32 no logarithms are needed: a product of many a below one that underflows to zero stands for what is nothing.
The composition adds h's that are not negative, so no digits are lost either.
"""

import tensorflow as tf

from keras_seq.kernels import linear_recurrence


def supports(log_a, log_b, h):
    """Whether the twin takes these arguments: all."""
    return True


def apply(log_a, log_b, h):
    """The twin of `keras_seq.layers.linear_recurrence.log_linear_recurrence`; see there."""
    return linear_recurrence.apply(tf.exp(log_a), tf.exp(log_b), h)
