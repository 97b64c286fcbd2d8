"""The rows of a small table for many ids on TensorFlow; each row's gradient is a sum over all ids, had as one matmul.

z = table[ids],    d table = onehot(ids)^T dz          where autodiff would add up one row after the other
"""

import numpy as np
import tensorflow as tf

from keras_seq.kernels.devices import on_cpu

MIN_IDS_PER_ROW = 4  # for each row of the table; fewer, and to prepare the table costs as much as it saves
MAX_ROWS_PER_COLUMN = (
    2  # of the table for each column before the projection; more, and the matmul of the gradient costs as much
)


def supports(ids, rows, width):
    """Whether it pays to project a table `[rows, width]` and to look the result up, instead of the reverse."""
    number = tf.TensorShape(ids.shape).num_elements()
    enough = number is not None and number >= MIN_IDS_PER_ROW * rows and rows <= MAX_ROWS_PER_COLUMN * width
    return enough and not tf.executing_eagerly() and on_cpu()


def apply(ids, table):
    """`table[ids]`: ids `[B, T]`, table `[V, W]`; NaN for an id that is none."""

    @tf.custom_gradient
    def lookup(table):
        def gradient(dz):
            hot = tf.one_hot(tf.reshape(positions_first, [-1]), table.shape[0], dtype=dz.dtype)
            return tf.matmul(hot, tf.reshape(tf.transpose(dz, (1, 0, 2)), [-1, table.shape[1]]), transpose_a=True)

        # A recurrent layer turns z round at once: TensorFlow leaves out two transpositions that cancel each other.
        # The ids are put in order by an index, for oneDNN prints an error where whole numbers are to be transposed.
        rows, length = ids.shape
        positions_first = tf.gather(tf.reshape(ids, [-1]), np.arange(rows * length).reshape(rows, length).T)
        size = table.shape[0]
        known = tf.where((positions_first >= 0) & (positions_first < size), positions_first, size)
        with_nan = tf.concat([table, tf.fill([1, table.shape[1]], tf.constant(np.nan, table.dtype))], axis=0)
        return tf.transpose(tf.gather(with_nan, known), (1, 0, 2)), gradient

    return lookup(table)
