"""`layers.stateful.checked_rows` on TensorFlow, whose graphs can raise errors when they run."""

import tensorflow as tf


def supports(x, batch_size, expected) -> bool:
    """Return whether the number of rows is unknown.

    Args:
        x: `[B, ...]`.
        batch_size: The expected B.
        expected: What is expected and what to do, for the message.
    """
    return x.shape[0] is None


def apply(x, batch_size, expected):
    """Return x if it has the expected number of rows, as `keras_seq.layers.stateful.checked_rows`.

    Args:
        x: `[B, ...]`.
        batch_size: The expected B.
        expected: What is expected and what to do, for the message.

    Returns:
        x, or NaN (-1 for integers) where XLA has compiled the graph.

    Raises:
        tf.errors.InvalidArgumentError: When a graph runs, if x has another number of rows.
    """
    num_rows = tf.shape(x)[0]
    check = tf.debugging.Assert(num_rows == batch_size, ["inputs have", num_rows, f"rows; {expected}."])
    with tf.control_dependencies([check]):  # which XLA leaves out, so x is NaN too
        return tf.where(num_rows == batch_size, x, -1 if x.dtype.is_integer else float("nan"))
