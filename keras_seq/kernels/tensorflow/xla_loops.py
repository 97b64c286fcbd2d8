"""Shared by the XLA loops of LSTM and GRU: when they are faster, and in-place TensorArrays."""

import tensorflow as tf

from keras_seq.kernels.devices import on_cpu

MIN_STEPS_X_UNITS = 4096  # T x units; below, compilation costs more than it saves
MAX_BF16_UNITS = 768  # in bfloat16; above either of these two, TensorFlow's own matmuls are faster than XLA's
MAX_BF16_STATE_SIZE = 2**14 - 1  # B x units


def xla_loop_is_faster(z, state) -> bool:
    """Return whether the XLA loops are faster than unrolled time steps, in a function that is being traced.

    Args:
        z: `[B, T, W]`, input part of the pre-activations.
        state: `[B, units]`, the state that is kept in float32.
    """
    if tf.executing_eagerly() or not on_cpu() or state.dtype != tf.float32 or z.dtype == tf.float16:
        return False
    rows, units = state.shape
    fits = z.dtype == tf.float32 or (
        rows is not None and units <= MAX_BF16_UNITS and rows * units <= MAX_BF16_STATE_SIZE
    )
    return fits and z.shape[1] * units >= MIN_STEPS_X_UNITS


def reuse_as_tensor_array(rows):
    """Return a TensorArray that starts as `rows [T, B, W]`.

    Unlike an empty TensorArray, it is not first filled with zeros.
    """
    return tf.TensorArray(rows.dtype, rows.shape[0], clear_after_read=False).unstack(rows)
