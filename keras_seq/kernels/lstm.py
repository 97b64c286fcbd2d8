"""`layers.lstm.lstm` on TensorFlow: two loops of XLA's (`lstm_loops.py`) where they pay, else unrolled, as here.

Unrolled, the executor starts the next small operation without the bookkeeping of a `while_loop`, and the gradient is
written by hand: the recurrent matrix gets its gradient as one matmul over all positions after the loop,
dU = [h_0 .. h_{T-1}]^T [da_1 .. da_T],  where autodiff would add up T small ones.
"""

import tensorflow as tf

from keras_seq.kernels import lstm_loops

LONGEST = 256  # positions that are unrolled; beyond it the graph takes longer to build than the loop costs


def can_run(z, recurrent_kernel, h, c, mask=None, kept=None):
    """Whether the twin takes these arguments: no mask, and a length that is known, and short or worth compiling."""
    if mask is not None or not z.shape[1]:
        return False
    return z.shape[1] <= LONGEST or lstm_loops.pay(z, c)


def run(z, recurrent_kernel, h, c, mask=None, kept=None):
    """The twin of `keras_seq.layers.lstm.lstm`; see there."""
    recurrent_kernel = tf.convert_to_tensor(recurrent_kernel)  # a variable read inside would need care of its own
    if lstm_loops.pay(z, c):
        return lstm_loops.run(z, recurrent_kernel, h, c, kept)

    @tf.custom_gradient
    def lstm(z, recurrent_kernel, h, c):
        return _lstm(z, recurrent_kernel, h, c, kept)

    return lstm(z, recurrent_kernel, h, c)


def _lstm(z, recurrent_kernel, h, c, kept):
    """The values and their gradient by everything but `kept`, which is drawn and not learned."""
    wide = c.dtype  # of gates and memory
    outputs, memories, gates = [h], [c], []
    for z_t in tf.unstack(z, axis=1):
        seen = h if kept is None else h * kept
        a = tf.cast(z_t + tf.matmul(seen, recurrent_kernel), wide)
        i, f, g, o = tf.split(a, 4, axis=-1)
        i, f, g, o = tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o)
        c = f * c + i * g
        shown = tf.tanh(c)
        h = tf.cast(o * shown, h.dtype)
        outputs.append(h)
        memories.append(c)
        gates.append((i, f, g, o, shown))

    def gradient(dy, dh, dc):
        da = []
        for t in reversed(range(len(gates))):
            i, f, g, o, shown = gates[t]
            dh_t = tf.cast(dh + dy[:, t], wide)
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
            dh = dh if kept is None else dh * kept
            dc = dc * f
        da = tf.stack(da[::-1], axis=1)  # [B, T, 4 units]
        before = tf.stack(outputs[:-1], axis=1)  # [B, T, units]
        before = before if kept is None else before * kept[:, None]
        d_kernel = tf.matmul(
            tf.reshape(before, [-1, before.shape[-1]]), tf.reshape(da, [-1, da.shape[-1]]), transpose_a=True
        )
        return da, d_kernel, dh, dc

    return (tf.stack(outputs[1:], axis=1), h, c), gradient
