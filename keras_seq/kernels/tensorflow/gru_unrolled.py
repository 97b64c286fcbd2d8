"""The GRU's time steps, unrolled in the graph, with a hand-written gradient."""

import tensorflow as tf

from keras_seq.kernels.tensorflow.resets import reset_rows, time_step


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
    state_dtype = h.dtype  # of gates and h
    outputs, previous, gates = [], [], []
    for t, x_t in enumerate(tf.unstack(x)):
        h = reset_rows(h, time_step(reset_mask, t))
        previous.append(h)
        inner = tf.cast(tf.matmul(tf.cast(h, x.dtype), recurrent_kernel) + recurrent_bias, state_dtype)
        z_x, r_x, g_x = tf.split(tf.cast(x_t, state_dtype), 3, axis=-1)
        z_h, r_h, g_h = tf.split(inner, 3, axis=-1)
        z, r = tf.sigmoid(z_x + z_h), tf.sigmoid(r_x + r_h)
        g = tf.tanh(g_x + r * g_h)
        h = z * h + (1 - z) * g
        outputs.append(h)
        gates.append((z, r, g, g_h))

    def vjp(dy, dh):
        dx, d_inner = [], []
        for t in reversed(range(len(gates))):
            z, r, g, g_h = gates[t]
            dh = dh + dy[t]
            dg = dh * (1 - z) * (1 - g * g)
            dr = dg * g_h * r * (1 - r)
            dz = dh * (previous[t] - g) * z * (1 - z)
            dx.append(tf.cast(tf.concat([dz, dr, dg], axis=-1), x.dtype))
            d_inner.append(tf.cast(tf.concat([dz, dr, dg * r], axis=-1), x.dtype))
            dh = dh * z + tf.cast(tf.matmul(d_inner[-1], recurrent_kernel, transpose_b=True), state_dtype)
            dh = reset_rows(dh, time_step(reset_mask, t))
        return tf.stack(dx[::-1]), tf.stack(d_inner[::-1]), dh

    return tf.stack(outputs), vjp
