"""The LSTM's positions as two loops that XLA compiles, one forward and one back, on a CPU.

    g_t = tanh(s (z_t + h U)),   s = [1/2 | 1/2 | 1 | 1/2]           for sigmoid(a) = tanh(a / 2) / 2 + 1/2
    da_t = s^2 (1 - g_t^2) [dc g | dc c | dc i | dh tanh(c')],   dh <- da_t U^T,   dc <- dc f

The four gates are one tanh over one row, which XLA vectorises. A row is written over when it has been read: z_t by g_t,
g_t by da_t.
"""

import tensorflow as tf

from keras_seq.kernels.xla_loops import reuse_as_tensor_array


def scan_with_vjp(z, recurrent_kernel, h, c, recurrent_dropout_mask):
    """All positions from state (h, c).

    Args:
        z: `[T, B, 4 units]`, positions first; the others as of `keras_seq.layers.lstm.lstm`.

    Returns:
        `(y [T, B, units], h, c)`, and a function from the gradients of these three to those of `(z, h, c)`.
    """
    # The matrix is widened and transposed out here: XLA would do either once more at every position.
    wide = tf.cast(recurrent_kernel, c.dtype)
    # An eager tape, or a persistent one in a tf.function, is not to look inside: the gradient is `back`.
    y, memories, gates = _forward(*map(tf.stop_gradient, (z, wide, h, c)), recurrent_dropout_mask)

    def back(dy, dh, dc):
        return _back(gates, memories, c, tf.transpose(wide), recurrent_dropout_mask, dy, dh, dc)

    return (y, y[-1], memories[-1]), back


@tf.function(jit_compile=True, autograph=False)
def _forward(z, recurrent_kernel, h, c, recurrent_dropout_mask):
    """`(y [T, B, units], memories [T, B, units], gates [T, B, 4 units])`."""
    length, _, columns = z.shape
    scale = tf.repeat(tf.constant([0.5, 0.5, 1.0, 0.5], c.dtype), columns // 4)

    def position(t, h, c, outputs, memories, rows):
        g = tf.tanh(scale * (rows.read(t) + tf.matmul(_kept(h, recurrent_dropout_mask), recurrent_kernel)))
        input_gate, forget_gate, candidate, output_gate = _gates(g)
        c = forget_gate * c + input_gate * candidate
        h = output_gate * tf.tanh(c)
        return t + 1, h, c, outputs.write(t, h), memories.write(t, c), rows.write(t, g)

    outputs, memories = (tf.TensorArray(c.dtype, length, element_shape=c.shape) for _ in range(2))
    first = (0, tf.cast(h, c.dtype), c, outputs, memories, reuse_as_tensor_array(tf.cast(z, c.dtype)))
    *_, y, memories, gates = tf.while_loop(lambda t, *_: t < length, position, first, maximum_iterations=length)
    return tf.cast(y.stack(), z.dtype), memories.stack(), gates.stack()


@tf.function(jit_compile=True, autograph=False)
def _back(gates, memories, c, backward, recurrent_dropout_mask, dy, dh, dc):
    """`(da [T, B, 4 units], dh [B, units], dc [B, units])`."""
    length, _, columns = gates.shape
    narrow = dy.dtype
    dy, dh = tf.cast(dy, c.dtype), tf.cast(dh, c.dtype)
    before = tf.concat([c[None], memories[:-1]], axis=0)
    slope = tf.repeat(tf.constant([0.25, 0.25, 1.0, 0.25], c.dtype), columns // 4)

    def position(k, dh, dc, row, rows):
        t = length - 1 - k
        i, f, g, o = _gates(row)
        shown = tf.tanh(memories[t])
        dh = dh + dy[t]
        dc = dc + dh * o * (1 - shown * shown)
        da = slope * (1 - row * row) * tf.concat([dc * g, dc * before[t], dc * i, dh * shown], axis=-1)
        rows = rows.write(t, da)
        # The next row is read here, once: XLA would read it for each use and copy all rows before they are written to.
        return (
            k + 1,
            _kept(tf.matmul(da, backward), recurrent_dropout_mask),
            dc * f,
            rows.read(tf.maximum(t - 1, 0)),
            rows,
        )

    first = (0, dh, dc, gates[-1], reuse_as_tensor_array(gates))
    _, dh, dc, _, da = tf.while_loop(lambda k, *_: k < length, position, first, maximum_iterations=length)
    return tf.cast(da.stack(), narrow), tf.cast(dh, narrow), dc


def _kept(h, recurrent_dropout_mask):
    return h if recurrent_dropout_mask is None else h * tf.cast(recurrent_dropout_mask, h.dtype)


def _gates(g):
    """Input, forget, candidate and output of the row of tanh."""
    i, f, g, o = tf.split(g, 4, axis=-1)
    return 0.5 * i + 0.5, 0.5 * f + 0.5, g, 0.5 * o + 0.5
