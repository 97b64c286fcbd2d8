"""The GRU's time steps as two loops that XLA compiles for a CPU, one forward and one backward.

    s = h U + c,   [z | r] = sigmoid(x_zr + s_zr),   g = tanh(x_g + r s_g),   h' = z h + (1 - z) g
    dg = dh (1 - z) (1 - g^2),   dr = dg s_g r (1 - r),   dz = dh (h - g) z (1 - z),   dh <- dh z + [dz | dr | r dg] U^T

with sigmoid(a) = tanh(a / 2) / 2 + 1/2, which XLA vectorizes. Rows are overwritten after they are read: x by the gates,
the gates by dx, s_g by r dg.
"""

import tensorflow as tf

from keras_seq.kernels.tensorflow.resets import reset_rows, time_step
from keras_seq.kernels.tensorflow.xla_loops import reuse_as_tensor_array


def scan_with_vjp(x, h, recurrent_kernel, recurrent_bias, reset_mask=None):
    """Compute all time steps and return their vector-Jacobian product.

    Args:
        x: `[T, B, 3 units]`, input part of the pre-activations, time-major.
        h: `[B, units]`, state before the first time step.
        recurrent_kernel: `[units, 3 units]`.
        recurrent_bias: `[3 units]`.
        reset_mask: `[T, B]`, true where the state before the time step counts as zeros, or None.

    Returns:
        `(y [T, B, units], vjp)`, with `vjp(dy [T, B, units], dh [B, units]) -> (dx [T, B, 3 units], ds [T, B, 3 units],
        dh [B, units])`: from the gradients of y and of the last h to those of x, of the recurrent pre-activations
        `h U + c` at all time steps, and of the first h.
    """
    # Cast and transposed outside of the loops: XLA would repeat both at every time step.
    wide_kernel = tf.cast(recurrent_kernel, h.dtype)
    # stop_gradient hides the loop from eager and persistent gradient tapes: the gradient is `vjp`.
    args = map(tf.stop_gradient, (x, h, wide_kernel, tf.cast(recurrent_bias, h.dtype)))
    y, gates, inner = _forward(*args, reset_mask)

    def vjp(dy, dh):
        dx, d_inner, dh = _backward(gates, inner, y, h, tf.transpose(wide_kernel), reset_mask, dy, dh)
        return tf.cast(dx, x.dtype), tf.cast(d_inner, x.dtype), dh

    return y, vjp


@tf.function(jit_compile=True, autograph=False)
def _forward(x, h, recurrent_kernel, recurrent_bias, reset_mask):
    """Return `(y [T, B, units], gates [T, B, 3 units], s_g [T, B, units])`."""
    length, units = x.shape[0], h.shape[1]

    def position(t, h, outputs, rows, inner):
        row, h = rows.read(t), reset_rows(h, time_step(reset_mask, t))
        s = tf.matmul(h, recurrent_kernel) + recurrent_bias
        zr = tf.tanh(0.5 * (row[:, : 2 * units] + s[:, : 2 * units]))
        z, r = _gates(zr)
        g = tf.tanh(row[:, 2 * units :] + r * s[:, 2 * units :])
        h = z * h + (1 - z) * g
        rows = rows.write(t, tf.concat([zr, g], axis=-1))
        return t + 1, h, outputs.write(t, h), rows, inner.write(t, s[:, 2 * units :])

    outputs, inner = (tf.TensorArray(h.dtype, length, element_shape=h.shape) for _ in range(2))
    first = (0, h, outputs, reuse_as_tensor_array(tf.cast(x, h.dtype)), inner)
    *_, y, gates, inner = tf.while_loop(lambda t, *_: t < length, position, first, maximum_iterations=length)
    return y.stack(), gates.stack(), inner.stack()


@tf.function(jit_compile=True, autograph=False)
def _backward(gates, inner, y, h, transposed_kernel, reset_mask, dy, dh):
    """Return `(dx [T, B, 3 units], ds [T, B, 3 units], dh [B, units])`."""
    length, units = gates.shape[0], h.shape[1]
    previous = reset_rows(tf.concat([h[None], y[:-1]], axis=0), reset_mask)

    def position(k, dh, row, s, rows, inner):
        t = length - 1 - k
        z, r = _gates(row[:, : 2 * units])
        g = row[:, 2 * units :]
        dh = dh + dy[t]
        dg = dh * (1 - z) * (1 - g * g)
        dr = dg * s * r * (1 - r)
        dz = dh * (previous[t] - g) * z * (1 - z)
        rows, inner = rows.write(t, tf.concat([dz, dr, dg], axis=-1)), inner.write(t, dg * r)
        dh = dh * z + tf.matmul(tf.concat([dz, dr, dg * r], axis=-1), transposed_kernel)
        dh = reset_rows(dh, time_step(reset_mask, t))
        # The next rows are read here, once: XLA would otherwise copy all rows before the writes.
        next_t = tf.maximum(t - 1, 0)
        return k + 1, dh, rows.read(next_t), inner.read(next_t), rows, inner

    first = (0, dh, gates[-1], inner[-1], reuse_as_tensor_array(gates), reuse_as_tensor_array(inner))
    _, dh, _, _, dx, ds = tf.while_loop(lambda k, *_: k < length, position, first, maximum_iterations=length)
    dx = dx.stack()
    return dx, tf.concat([dx[:, :, : 2 * units], ds.stack()], axis=-1), dh


def _gates(zr):
    """Return update and reset gate from the tanh of half their pre-activations."""
    return tf.split(0.5 * zr + 0.5, 2, axis=-1)
