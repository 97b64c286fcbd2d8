"""What the loops of LSTM and GRU that XLA compiles for a CPU have in common: where they pay, and how they keep rows."""

import tensorflow as tf

from keras_seq.kernels.devices import on_cpu

MIN_STEPS_X_UNITS = 4096  # positions times units; below, compiling costs more than it gives
MAX_BF16_UNITS, MAX_BF16_STATE_SIZE = (
    768,
    2**14 - 1,
)  # in bfloat16, of h; above, TensorFlow's own matmuls are faster than XLA's


def xla_loop_is_faster(z, memory) -> bool:
    """Whether the loops are the faster way for `z [B, T, W]` and `memory [B, units]`, in a function being traced."""
    if tf.executing_eagerly() or not on_cpu() or memory.dtype != tf.float32 or z.dtype == tf.float16:
        return False
    rows, units = memory.shape
    fits = z.dtype == tf.float32 or (
        rows is not None and units <= MAX_BF16_UNITS and rows * units <= MAX_BF16_STATE_SIZE
    )
    return fits and z.shape[1] * units >= MIN_STEPS_X_UNITS


def reuse_as_tensor_array(rows):
    """An array that starts as `rows [T, B, W]`; one that starts empty is filled with zeros first."""
    return tf.TensorArray(rows.dtype, rows.shape[0], clear_after_read=False).unstack(rows)
