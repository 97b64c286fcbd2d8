"""The LSTM's time steps, unrolled in the graph, with a hand-written gradient.

The executor starts the next small operation without the overhead of a `while_loop`.
"""

import tensorflow as tf

from keras_seq.kernels.tensorflow.resets import reset_rows, time_step


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
    state_dtype = c.dtype  # of gates and cell state
    outputs, previous, gates = [], [], []
    for t, z_t in enumerate(tf.unstack(z)):
        h, c = (reset_rows(x, time_step(reset_mask, t)) for x in (h, c))
        previous.append(c)
        h_in = h if recurrent_dropout_mask is None else h * recurrent_dropout_mask
        a = tf.cast(z_t + tf.matmul(h_in, recurrent_kernel), state_dtype)
        i, f, g, o = tf.split(a, 4, axis=-1)
        i, f, g, o = tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o)
        c = f * c + i * g
        tanh_c = tf.tanh(c)
        h = tf.cast(o * tanh_c, h.dtype)
        outputs.append(h)
        gates.append((i, f, g, o, tanh_c))

    def vjp(dy, dh, dc):
        da = []
        for t in reversed(range(len(gates))):
            i, f, g, o, tanh_c = gates[t]
            dh_t = tf.cast(dh + dy[t], state_dtype)
            dc = dc + dh_t * o * (1 - tanh_c * tanh_c)
            da_t = tf.concat(
                [
                    dc * g * i * (1 - i),
                    dc * previous[t] * f * (1 - f),
                    dc * i * (1 - g * g),
                    dh_t * tanh_c * o * (1 - o),
                ],
                axis=-1,
            )
            da.append(tf.cast(da_t, z.dtype))
            dh = tf.matmul(da[-1], recurrent_kernel, transpose_b=True)
            dh = dh if recurrent_dropout_mask is None else dh * recurrent_dropout_mask
            dh, dc = (reset_rows(x, time_step(reset_mask, t)) for x in (dh, dc * f))
        return tf.stack(da[::-1]), dh, dc

    return (tf.stack(outputs), h, c), vjp
