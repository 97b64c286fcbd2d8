"""The LSTM's positions as two loops that XLA compiles, one forward and one back, on a CPU.

    g_t = tanh(s (z_t + h U)),   s = [1/2 | 1/2 | 1 | 1/2]           for sigmoid(a) = tanh(a / 2) / 2 + 1/2
    da_t = F_t [dc | dc | dc | dh],   dh <- da_t U^T,   dc <- dc f_t         F: what does not depend on the recursion

The four gates are one tanh over one row, which XLA vectorises; what can be had for all positions at once is had before
the loop back.
"""

import tensorflow as tf

from keras_seq.kernels.devices import on_cpu

FEWEST = 4096  # positions times units; below, compiling costs more than it gives
FEWEST_ROWS = 8  # of a batch that is halved
MOST_UNITS, MOST_VALUES = 768, 2**14 - 1  # in bfloat16, of h; above, TensorFlow's own matmuls are faster than XLA's


def pay(z, c) -> bool:
    """Whether the loops are the faster way for `z [B, T, 4 units]` and memory c, in a function that is being traced."""
    if tf.executing_eagerly() or not on_cpu() or c.dtype != tf.float32 or z.dtype == tf.float16:
        return False
    rows, units = c.shape
    fits = z.dtype == tf.float32 or (rows is not None and units <= MOST_UNITS and rows * units <= MOST_VALUES)
    return fits and z.shape[1] * units >= FEWEST


def halves_pay(z, c) -> bool:
    """Whether the halves of the rows are faster side by side."""
    return c.shape[0] is not None and c.shape[0] >= FEWEST_ROWS


def positions(z, recurrent_kernel, h, c, kept):
    """All positions from state (h, c); arguments as of `keras_seq.layers.lstm.lstm`.

    Returns:
        `(y, h, c)`, and a function from the gradients of these three to those of `(z, h, c)`.
    """
    # The matrix is widened and transposed out here: XLA would do either once more at every position.
    wide = tf.cast(recurrent_kernel, c.dtype)
    y, memories, gates = _forward(z, wide, h, c, kept)

    def back(dy, dh, dc):
        return _back(gates, memories, c, tf.transpose(wide), kept, dy, dh, dc)

    return (y, y[:, -1], memories[-1]), back


@tf.function(jit_compile=True, autograph=False)
def _forward(z, recurrent_kernel, h, c, kept):
    """`(y [B, T, units], memories [T, B, units], gates [T, B, 4 units])`."""
    length, columns = z.shape[1:]
    scale = tf.repeat(tf.constant([0.5, 0.5, 1.0, 0.5], c.dtype), columns // 4)

    def position(t, h, c, *arrays):
        a = tf.cast(z[:, t], c.dtype) + tf.matmul(_kept(h, kept), recurrent_kernel)
        g = tf.tanh(scale * a)
        input_gate, forget_gate, candidate, output_gate = _gates(g)
        c = forget_gate * c + input_gate * candidate
        h = output_gate * tf.tanh(c)
        return t + 1, h, c, *(array.write(t, x) for array, x in zip(arrays, (h, c, g), strict=True))

    shapes = (h.shape, c.shape, (c.shape[0], columns))
    arrays = (tf.TensorArray(c.dtype, length, element_shape=shape) for shape in shapes)
    first = (0, tf.cast(h, c.dtype), c, *arrays)
    *_, y, memories, gates = tf.while_loop(lambda t, *_: t < length, position, first, maximum_iterations=length)
    return tf.cast(tf.transpose(y.stack(), (1, 0, 2)), z.dtype), memories.stack(), gates.stack()


@tf.function(jit_compile=True, autograph=False)
def _back(gates, memories, c, backward, kept, dy, dh, dc):
    """`(da [B, T, 4 units], dh [B, units], dc [B, units])`."""
    length, narrow = gates.shape[0], dy.dtype
    dy, dh = tf.cast(tf.transpose(dy, (1, 0, 2)), c.dtype), tf.cast(dh, c.dtype)
    before = tf.concat([c[None], memories[:-1]], axis=0)
    i, f, g, o = _gates(gates)
    shown = tf.tanh(memories)
    factors = tf.concat([g * i * (1 - i), before * f * (1 - f), i * (1 - g * g), shown * o * (1 - o)], axis=-1)
    to_memory = o * (1 - shown * shown)

    def position(k, dh, dc, array):
        t = length - 1 - k
        dh = dh + dy[t]
        dc = dc + dh * to_memory[t]
        da = factors[t] * tf.concat([dc, dc, dc, dh], axis=-1)
        return k + 1, _kept(tf.matmul(da, backward), kept), dc * f[t], array.write(t, da)

    array = tf.TensorArray(gates.dtype, length, element_shape=gates.shape[1:])
    _, dh, dc, da = tf.while_loop(lambda k, *_: k < length, position, (0, dh, dc, array), maximum_iterations=length)
    return tf.cast(tf.transpose(da.stack(), (1, 0, 2)), narrow), tf.cast(dh, narrow), dc


def _kept(h, kept):
    return h if kept is None else h * tf.cast(kept, h.dtype)


def _gates(g):
    """Input, forget, candidate and output of the row of tanh."""
    i, f, g, o = tf.split(g, 4, axis=-1)
    return 0.5 * i + 0.5, 0.5 * f + 0.5, g, 0.5 * o + 0.5
