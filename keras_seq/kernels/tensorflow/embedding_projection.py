"""Look up the rows of a small projected table on TensorFlow, with the gradient of the table as one matmul.

z = table[ids],    d table = onehot(ids)^T dz          autodiff would add the rows one after the other
"""

import numpy as np
import tensorflow as tf

from keras_seq.kernels.devices import on_cpu

MIN_IDS_PER_ROW = 4  # ids per row of the table; below, projecting the table costs as much as it saves
MAX_ROWS_PER_COLUMN = 2  # V / D; above, the matmul of the gradient costs as much as it saves


def supports(ids, rows, width) -> bool:
    """Return whether projecting the whole table and gathering rows is faster than gathering and then projecting.

    Args:
        ids: `[B, T]`.
        rows: V, rows of the table.
        width: D, columns of the table before the projection.
    """
    num_ids = tf.TensorShape(ids.shape).num_elements()
    is_faster = num_ids is not None and num_ids >= MIN_IDS_PER_ROW * rows and rows <= MAX_ROWS_PER_COLUMN * width
    return is_faster and not tf.executing_eagerly() and on_cpu()


def apply(ids, table):
    """Look up rows of a table.

    Args:
        ids: Integers `[B, T]`.
        table: `[V, W]`.

    Returns:
        `[B, T, W]`, NaN where an id is out of range.
    """

    @tf.custom_gradient
    def lookup(table):
        def gradient(dz):
            one_hot = tf.one_hot(tf.reshape(time_major_ids, [-1]), table.shape[0], dtype=dz.dtype)
            return tf.matmul(one_hot, tf.reshape(tf.transpose(dz, (1, 0, 2)), [-1, table.shape[1]]), transpose_a=True)

        # A recurrent layer transposes z at once: TensorFlow removes two transpositions that cancel each other.
        # The ids are transposed by a gather, because oneDNN logs an error when integers are transposed.
        rows, length = ids.shape
        time_major_ids = tf.gather(tf.reshape(ids, [-1]), np.arange(rows * length).reshape(rows, length).T)
        size = table.shape[0]
        safe_ids = tf.where((time_major_ids >= 0) & (time_major_ids < size), time_major_ids, size)
        with_nan = tf.concat([table, tf.fill([1, table.shape[1]], tf.constant(np.nan, table.dtype))], axis=0)
        return tf.transpose(tf.gather(with_nan, safe_ids), (1, 0, 2)), gradient

    return lookup(table)
