"""The LSTM's positions one after the other in the graph, with the gradient written by hand.

The executor starts the next small operation without the bookkeeping of a `while_loop`.
"""

import tensorflow as tf


def scan_with_vjp(z, recurrent_kernel, h, c, recurrent_dropout_mask):
    """All positions from state (h, c).

    Args:
        z: `[T, B, 4 units]`, positions first; the others as of `keras_seq.layers.lstm.lstm`.

    Returns:
        `(y [T, B, units], h, c)`, and a function from the gradients of these three to those of `(z, h, c)`.
    """
    wide = c.dtype  # of gates and memory
    outputs, memories, gates = [], [c], []
    for z_t in tf.unstack(z):
        seen = h if recurrent_dropout_mask is None else h * recurrent_dropout_mask
        a = tf.cast(z_t + tf.matmul(seen, recurrent_kernel), wide)
        i, f, g, o = tf.split(a, 4, axis=-1)
        i, f, g, o = tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o)
        c = f * c + i * g
        shown = tf.tanh(c)
        h = tf.cast(o * shown, h.dtype)
        outputs.append(h)
        memories.append(c)
        gates.append((i, f, g, o, shown))

    def back(dy, dh, dc):
        da = []
        for t in reversed(range(len(gates))):
            i, f, g, o, shown = gates[t]
            dh_t = tf.cast(dh + dy[t], wide)
            dc = dc + dh_t * o * (1 - shown * shown)
            da_t = tf.concat(
                [
                    dc * g * i * (1 - i),
                    dc * memories[t] * f * (1 - f),
                    dc * i * (1 - g * g),
                    dh_t * shown * o * (1 - o),
                ],
                axis=-1,
            )
            da.append(tf.cast(da_t, z.dtype))
            dh = tf.matmul(da[-1], recurrent_kernel, transpose_b=True)
            dh = dh if recurrent_dropout_mask is None else dh * recurrent_dropout_mask
            dc = dc * f
        return tf.stack(da[::-1]), dh, dc

    return (tf.stack(outputs), h, c), back
