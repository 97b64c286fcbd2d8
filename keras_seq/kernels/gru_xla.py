"""The GRU's positions as two loops that XLA compiles, one forward and one back, on a CPU.

    s = h U + c,   [z | r] = sigmoid(x_zr + s_zr),   g = tanh(x_g + r s_g),   h' = z h + (1 - z) g
    dg = dh (1 - z) (1 - g^2),   dr = dg s_g r (1 - r),   dz = dh (h - g) z (1 - z),   dh <- dh z + [dz | dr | r dg] U^T

with sigmoid(a) = tanh(a / 2) / 2 + 1/2, which XLA vectorises. A row is written over when it has been read: x by gates,
gates by dx, s_g by r dg.
"""

import tensorflow as tf

from keras_seq.kernels.xla_loops import reuse_as_tensor_array


def scan_with_vjp(x, h, recurrent_kernel, recurrent_bias):
    """All positions from h.

    Args:
        x: `[T, B, 3 units]`, positions first; the others as of `keras_seq.layers.gru.gru`.

    Returns:
        `y [T, B, units]`, and a function from the gradients of y and of the last h to those of `x`, of what the
        recurrent matrix and its bias give at all positions, `[T, B, 3 units]` both, and of h.
    """
    # The matrix is widened and transposed out here: XLA would do either once more at every position.
    wide = tf.cast(recurrent_kernel, h.dtype)
    # An eager tape, or a persistent one in a tf.function, is not to look inside: the gradient is `back`.
    y, gates, inner = _forward(*map(tf.stop_gradient, (x, h, wide, tf.cast(recurrent_bias, h.dtype))))

    def back(dy, dh):
        dx, d_inner, dh = _back(gates, inner, y, h, tf.transpose(wide), dy, dh)
        return tf.cast(dx, x.dtype), tf.cast(d_inner, x.dtype), dh

    return y, back


@tf.function(jit_compile=True, autograph=False)
def _forward(x, h, recurrent_kernel, recurrent_bias):
    """`(y [T, B, units], gates [T, B, 3 units], s_g [T, B, units])`."""
    length, units = x.shape[0], h.shape[1]

    def position(t, h, outputs, rows, inner):
        row = rows.read(t)
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
def _back(gates, inner, y, h, backward, dy, dh):
    """`(dx [T, B, 3 units], ds [T, B, 3 units], dh [B, units])`."""
    length, units = gates.shape[0], h.shape[1]
    before = tf.concat([h[None], y[:-1]], axis=0)

    def position(k, dh, row, s, rows, inner):
        t = length - 1 - k
        z, r = _gates(row[:, : 2 * units])
        g = row[:, 2 * units :]
        dh = dh + dy[t]
        dg = dh * (1 - z) * (1 - g * g)
        dr = dg * s * r * (1 - r)
        dz = dh * (before[t] - g) * z * (1 - z)
        rows, inner = rows.write(t, tf.concat([dz, dr, dg], axis=-1)), inner.write(t, dg * r)
        dh = dh * z + tf.matmul(tf.concat([dz, dr, dg * r], axis=-1), backward)
        # What the next position needs is read here, once, or XLA would copy all rows before they are written to.
        following = tf.maximum(t - 1, 0)
        return k + 1, dh, rows.read(following), inner.read(following), rows, inner

    first = (0, dh, gates[-1], inner[-1], reuse_as_tensor_array(gates), reuse_as_tensor_array(inner))
    _, dh, _, _, dx, ds = tf.while_loop(lambda k, *_: k < length, position, first, maximum_iterations=length)
    dx = dx.stack()
    return dx, tf.concat([dx[:, :, : 2 * units], ds.stack()], axis=-1), dh


def _gates(zr):
    """Update and reset of the row of tanh."""
    return tf.split(0.5 * zr + 0.5, 2, axis=-1)
