"""`layers.gru.gru` for short sequences on TensorFlow, with the reset after the matmul.

Unrolled, and the gradient by hand, as for the LSTM: the recurrent matrix and its bias get their gradients as one matmul
and one sum over all positions after the loop.
"""

import tensorflow as tf

LONGEST = 256  # positions; beyond it the graph takes longer to build than the loop costs


def can_run(x, h, recurrent_kernel, recurrent_bias=None, mask=None, kept=None):
    """Whether the twin takes these arguments: reset after the matmul, no mask, no recurrent dropout, a short length."""
    plain = mask is None and kept is None and recurrent_bias is not None
    return plain and x.shape[1] is not None and 0 < x.shape[1] <= LONGEST


def run(x, h, recurrent_kernel, recurrent_bias=None, mask=None, kept=None):
    """The twin of `keras_seq.layers.gru.gru`; see there."""
    return _gru(x, h, tf.convert_to_tensor(recurrent_kernel), tf.convert_to_tensor(recurrent_bias))


@tf.custom_gradient
def _gru(x, h, recurrent_kernel, recurrent_bias):
    wide = h.dtype  # of gates and h
    memories, seen, gates = [h], [], []
    for x_t in tf.unstack(x, axis=1):
        seen.append(tf.cast(h, x.dtype))
        inner = tf.cast(tf.matmul(seen[-1], recurrent_kernel) + recurrent_bias, wide)
        z_x, r_x, g_x = tf.split(tf.cast(x_t, wide), 3, axis=-1)
        z_h, r_h, g_h = tf.split(inner, 3, axis=-1)
        z, r = tf.sigmoid(z_x + z_h), tf.sigmoid(r_x + r_h)
        g = tf.tanh(g_x + r * g_h)
        h = z * h + (1 - z) * g
        memories.append(h)
        gates.append((z, r, g, g_h))

    def gradient(dy, dh):
        dx, d_inner = [], []
        for t in reversed(range(len(gates))):
            z, r, g, g_h = gates[t]
            dh = dh + dy[:, t]
            dg = dh * (1 - z) * (1 - g * g)
            dr = dg * g_h * r * (1 - r)
            dz = dh * (memories[t] - g) * z * (1 - z)
            dx.append(tf.cast(tf.concat([dz, dr, dg], axis=-1), x.dtype))
            d_inner.append(tf.cast(tf.concat([dz, dr, dg * r], axis=-1), x.dtype))
            dh = dh * z + tf.cast(tf.matmul(d_inner[-1], recurrent_kernel, transpose_b=True), wide)
        rows = tf.reshape(tf.stack(d_inner[::-1], axis=1), [-1, recurrent_kernel.shape[1]])
        before = tf.reshape(tf.stack(seen, axis=1), [-1, recurrent_kernel.shape[0]])
        return tf.stack(dx[::-1], axis=1), dh, tf.matmul(before, rows, transpose_a=True), tf.reduce_sum(rows, axis=0)

    return (tf.stack(memories[1:], axis=1), h), gradient
