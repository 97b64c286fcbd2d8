"""The LSTM's time steps as two loops that XLA compiles for a CPU, one forward and one backward.

    g_t = tanh(s (z_t + h U)),   s = [1/2 | 1/2 | 1 | 1/2]           for sigmoid(a) = tanh(a / 2) / 2 + 1/2
    da_t = s^2 (1 - g_t^2) [dc g | dc c | dc i | dh tanh(c')],   dh <- da_t U^T,   dc <- dc f

The four gates are one tanh over one row, which XLA vectorizes. Rows are overwritten after they are read: z_t by g_t,
g_t by da_t.
"""

import tensorflow as tf

from keras_seq.kernels.tensorflow.resets import reset_rows, time_step
from keras_seq.kernels.tensorflow.xla_loops import reuse_as_tensor_array


def scan_with_vjp(z, recurrent_kernel, h, c, recurrent_dropout_mask, reset_mask=None):
    """Compute all time steps and return their vector-Jacobian product.

    Args:
        z: `[T, B, 4 units]`, input part of the pre-activations, time-major.
        recurrent_kernel: `[units, 4 units]`.
        h: `[B, units]`, output before the first time step.
        c: `[B, units]`, cell state before the first time step.
        recurrent_dropout_mask: `[B, units]`, or None.
        reset_mask: `[T, B]`, true where the state before the time step counts as zeros, or None.

    Returns:
        `((y [T, B, units], h [B, units], c [B, units]), vjp)`, with `vjp(dy, dh, dc) -> (dz [T, B, 4 units],
        dh [B, units], dc [B, units])`: from the gradients of the outputs to those of z and of the first h and c.
    """
    # Cast and transposed outside of the loops: XLA would repeat both at every time step.
    wide_kernel = tf.cast(recurrent_kernel, c.dtype)
    # stop_gradient hides the loop from eager and persistent gradient tapes: the gradient is `vjp`.
    y, cell_states, gates = _forward(*map(tf.stop_gradient, (z, wide_kernel, h, c)), recurrent_dropout_mask, reset_mask)

    def vjp(dy, dh, dc):
        masks = recurrent_dropout_mask, reset_mask
        return _backward(gates, cell_states, c, tf.transpose(wide_kernel), *masks, dy, dh, dc)

    return (y, y[-1], cell_states[-1]), vjp


@tf.function(jit_compile=True, autograph=False)
def _forward(z, recurrent_kernel, h, c, recurrent_dropout_mask, reset_mask):
    """Return `(y [T, B, units], cell_states [T, B, units], gates [T, B, 4 units])`."""
    length, _, columns = z.shape
    scale = tf.repeat(tf.constant([0.5, 0.5, 1.0, 0.5], c.dtype), columns // 4)

    def position(t, h, c, outputs, cell_states, rows):
        h, c = (reset_rows(x, time_step(reset_mask, t)) for x in (h, c))
        g = tf.tanh(scale * (rows.read(t) + tf.matmul(_apply_dropout(h, recurrent_dropout_mask), recurrent_kernel)))
        input_gate, forget_gate, candidate, output_gate = _gates(g)
        c = forget_gate * c + input_gate * candidate
        h = output_gate * tf.tanh(c)
        return t + 1, h, c, outputs.write(t, h), cell_states.write(t, c), rows.write(t, g)

    outputs, cell_states = (tf.TensorArray(c.dtype, length, element_shape=c.shape) for _ in range(2))
    first = (0, tf.cast(h, c.dtype), c, outputs, cell_states, reuse_as_tensor_array(tf.cast(z, c.dtype)))
    *_, y, cell_states, gates = tf.while_loop(lambda t, *_: t < length, position, first, maximum_iterations=length)
    return tf.cast(y.stack(), z.dtype), cell_states.stack(), gates.stack()


@tf.function(jit_compile=True, autograph=False)
def _backward(gates, cell_states, c, transposed_kernel, recurrent_dropout_mask, reset_mask, dy, dh, dc):
    """Return `(da [T, B, 4 units], dh [B, units], dc [B, units])`."""
    length, _, columns = gates.shape
    output_dtype = dy.dtype
    dy, dh = tf.cast(dy, c.dtype), tf.cast(dh, c.dtype)
    previous = reset_rows(tf.concat([c[None], cell_states[:-1]], axis=0), reset_mask)
    slope = tf.repeat(tf.constant([0.25, 0.25, 1.0, 0.25], c.dtype), columns // 4)

    def position(k, dh, dc, row, rows):
        t = length - 1 - k
        i, f, g, o = _gates(row)
        tanh_c = tf.tanh(cell_states[t])
        dh = dh + dy[t]
        dc = dc + dh * o * (1 - tanh_c * tanh_c)
        da = slope * (1 - row * row) * tf.concat([dc * g, dc * previous[t], dc * i, dh * tanh_c], axis=-1)
        rows, is_reset = rows.write(t, da), time_step(reset_mask, t)
        # The next row is read here, once: XLA would read it for each use and copy all rows before the write.
        return (
            k + 1,
            reset_rows(_apply_dropout(tf.matmul(da, transposed_kernel), recurrent_dropout_mask), is_reset),
            reset_rows(dc * f, is_reset),
            rows.read(tf.maximum(t - 1, 0)),
            rows,
        )

    first = (0, dh, dc, gates[-1], reuse_as_tensor_array(gates))
    _, dh, dc, _, da = tf.while_loop(lambda k, *_: k < length, position, first, maximum_iterations=length)
    return tf.cast(da.stack(), output_dtype), tf.cast(dh, output_dtype), dc


def _apply_dropout(h, recurrent_dropout_mask):
    return h if recurrent_dropout_mask is None else h * tf.cast(recurrent_dropout_mask, h.dtype)


def _gates(g):
    """Return input gate, forget gate, candidate and output gate from a row of tanh."""
    i, f, g, o = tf.split(g, 4, axis=-1)
    return 0.5 * i + 0.5, 0.5 * f + 0.5, g, 0.5 * o + 0.5
