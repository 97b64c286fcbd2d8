"""The GRU's positions one after the other in the graph, with the gradient written by hand, as for the LSTM."""

import tensorflow as tf


def scan_with_vjp(x, h, recurrent_kernel, recurrent_bias):
    """All positions from h.

    Args:
        x: `[T, B, 3 units]`, positions first; the others as of `keras_seq.layers.gru.gru`.

    Returns:
        `y [T, B, units]`, and a function from the gradients of y and of the last h to those of `x`, of what the
        recurrent matrix and its bias give at all positions, `[T, B, 3 units]` both, and of h.
    """
    wide = h.dtype  # of gates and h
    memories, gates = [h], []
    for x_t in tf.unstack(x):
        inner = tf.cast(tf.matmul(tf.cast(h, x.dtype), recurrent_kernel) + recurrent_bias, wide)
        z_x, r_x, g_x = tf.split(tf.cast(x_t, wide), 3, axis=-1)
        z_h, r_h, g_h = tf.split(inner, 3, axis=-1)
        z, r = tf.sigmoid(z_x + z_h), tf.sigmoid(r_x + r_h)
        g = tf.tanh(g_x + r * g_h)
        h = z * h + (1 - z) * g
        memories.append(h)
        gates.append((z, r, g, g_h))

    def back(dy, dh):
        dx, d_inner = [], []
        for t in reversed(range(len(gates))):
            z, r, g, g_h = gates[t]
            dh = dh + dy[t]
            dg = dh * (1 - z) * (1 - g * g)
            dr = dg * g_h * r * (1 - r)
            dz = dh * (memories[t] - g) * z * (1 - z)
            dx.append(tf.cast(tf.concat([dz, dr, dg], axis=-1), x.dtype))
            d_inner.append(tf.cast(tf.concat([dz, dr, dg * r], axis=-1), x.dtype))
            dh = dh * z + tf.cast(tf.matmul(d_inner[-1], recurrent_kernel, transpose_b=True), wide)
        return tf.stack(dx[::-1]), tf.stack(d_inner[::-1]), dh

    return tf.stack(memories[1:]), back
