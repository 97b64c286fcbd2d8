"""`layers.linear_recurrence.log_linear_recurrence` on TensorFlow.

In float32 the direct form is used: a product of decays that underflows is negligible, and sums of non-negative terms
lose no precision.
"""

import tensorflow as tf

from keras_seq.kernels.tensorflow import linear_recurrence


def supports(log_a, log_b, h) -> bool:
    """Return True: all arguments are supported.

    Args:
        log_a: `[B, T, ...]`.
        log_b: `[B, T, ...]`.
        h: `[B, ...]`.
    """
    return True


def apply(log_a, log_b, h):
    """Compute h at every position, as `keras_seq.layers.linear_recurrence.log_linear_recurrence`.

    Args:
        log_a: `[B, T, ...]`, logarithms of the decays.
        log_b: `[B, T, ...]`, logarithms of b.
        h: `[B, ...]`, state before the first position.

    Returns:
        `[B, T, ...]`.
    """
    return linear_recurrence.apply(tf.exp(log_a), tf.exp(log_b), h)
