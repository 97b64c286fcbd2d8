"""The LSTM on TensorFlow: an XLA loop or unrolled time steps, and the gradient of the weights as one matmul.

    da_t = gradient of z_t + h_{t-1} U
    dU = [h_0 .. h_{T-1}]^T [da_1 .. da_T]                 where autodiff would add T small ones

Rows are independent: the two halves of a large batch run in parallel, each on its own core. Arrays are time-major
inside, so that a time step is contiguous in memory.
"""

import tensorflow as tf

from keras_seq.ops.lstm import lstm
from keras_seq.ops.xla import (
    batch_halves,
    concat_batch,
    differentiable_vjp,
    reset_rows,
    reuse_as_tensor_array,
    to_time_major,
    xla_loop_is_faster,
)

MAX_UNROLLED_STEPS = 256  # T; above, building the unrolled graph takes longer than the loop costs


def is_plain(z, recurrent_kernel, h, c, mask=None, dropout_mask=None, activations=None, reset_mask=None) -> bool:
    """Return whether there is no mask or other activation, and T is known and short, or the XLA loop is faster."""
    if mask is not None or activations is not None or not z.shape[1]:
        return False
    return z.shape[1] <= MAX_UNROLLED_STEPS or xla_loop_is_faster(z, c)


@lstm.on("tensorflow", supports=is_plain)
def fast_lstm(z, recurrent_kernel, h, c, mask=None, dropout_mask=None, activations=None, reset_mask=None):
    """Compute all time steps."""
    recurrent_kernel = tf.convert_to_tensor(recurrent_kernel)  # a variable read inside would be captured
    return _lstm(xla_loop_is_faster(z, c), z, recurrent_kernel, h, c, dropout_mask, reset_mask)


def _lstm(xla_loop, z, recurrent_kernel, h, c, dropout_mask, reset_mask):
    run, slices = _xla_loops if xla_loop else _unrolled, batch_halves(c, xla_loop)
    resets = None if reset_mask is None else tf.transpose(reset_mask)

    @tf.custom_gradient
    def lstm(*args):  # the masks need no gradient
        z, recurrent_kernel, h, c = to_time_major(args[0]), *args[1:]
        outputs_and_vjps = [
            run(
                z[:, rows],
                recurrent_kernel,
                h[rows],
                c[rows],
                None if dropout_mask is None else dropout_mask[rows],
                None if resets is None else resets[:, rows],
            )
            for rows in slices
        ]
        y, last_h, last_c = concat_batch([outputs for outputs, _ in outputs_and_vjps])

        def gradient(dy, dh, dc):
            dy = to_time_major(dy)
            vjps = zip(slices, (vjp for _, vjp in outputs_and_vjps), strict=True)
            da, dh, dc = concat_batch([vjp(dy[:, rows], dh[rows], dc[rows]) for rows, vjp in vjps])
            previous = reset_rows(tf.concat([h[None], y[:-1]], axis=0), resets)
            previous = previous if dropout_mask is None else previous * dropout_mask
            return to_time_major(da), tf.tensordot(previous, da, [[0, 1], [0, 1]]), dh, dc

        if xla_loop:
            gradient = differentiable_vjp(gradient, unrolled, args)
        return (to_time_major(y), last_h, last_c), gradient

    def unrolled(*args):
        return _lstm(False, *args, dropout_mask, reset_mask)

    return lstm(z, recurrent_kernel, h, c)


# Both versions map time-major z [T, B, 4 units], U, h and c [B, units], and masks, to ((y [T, B, units], h, c), vjp),
# with vjp(dy, dh, dc) -> (dz [T, B, 4 units], dh, dc).


def _unrolled(z, recurrent_kernel, h, c, dropout_mask, reset_mask):
    """Compute all time steps in a graph without a loop, whose executor starts the next small operation at once."""
    state_dtype = c.dtype  # of gates and cell state
    outputs, previous, gates = [], [], []
    for t, z_t in enumerate(tf.unstack(z)):
        h, c = (reset_rows(x, reset_mask, t) for x in (h, c))
        previous.append(c)
        h_in = h if dropout_mask is None else h * dropout_mask
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
            dh = tf.cast(dh + dy[t], state_dtype)
            dc = dc + dh * o * (1 - tanh_c * tanh_c)
            da_t = [
                dc * g * i * (1 - i),
                dc * previous[t] * f * (1 - f),
                dc * i * (1 - g * g),
                dh * tanh_c * o * (1 - o),
            ]
            da.append(tf.cast(tf.concat(da_t, axis=-1), z.dtype))
            dh = tf.matmul(da[-1], recurrent_kernel, transpose_b=True)
            dh = dh if dropout_mask is None else dh * dropout_mask
            dh, dc = (reset_rows(x, reset_mask, t) for x in (dh, dc * f))
        return tf.stack(da[::-1]), dh, dc

    return (tf.stack(outputs), h, c), vjp


def _xla_loops(z, recurrent_kernel, h, c, dropout_mask, reset_mask):
    """Compute all time steps in two loops that XLA compiles for a CPU, one forward and one backward.

        g_t = tanh(s (z_t + h U)),   s = [1/2 | 1/2 | 1 | 1/2]           for sigmoid(a) = tanh(a / 2) / 2 + 1/2
        da_t = s^2 (1 - g_t^2) [dc g | dc c | dc i | dh tanh(c')],   dh <- da_t U^T,   dc <- dc f

    The four gates are one tanh over one row, which XLA vectorizes. Rows are overwritten after they are read: z_t by
    g_t, g_t by da_t.
    """
    # Cast and transposed outside of the loops: XLA would repeat both at every time step.
    wide_kernel = tf.cast(recurrent_kernel, c.dtype)
    # stop_gradient hides the loop from eager and persistent gradient tapes: the gradient is `vjp`.
    y, cell_states, gates = _forward(*map(tf.stop_gradient, (z, wide_kernel, h, c)), dropout_mask, reset_mask)

    def vjp(dy, dh, dc):
        masks = dropout_mask, reset_mask
        return _backward(gates, cell_states, c, tf.transpose(wide_kernel), *masks, dy, dh, dc)

    return (y, y[-1], cell_states[-1]), vjp


@tf.function(jit_compile=True, autograph=False)
def _forward(z, recurrent_kernel, h, c, dropout_mask, reset_mask):
    """Return `(y [T, B, units], cell_states [T, B, units], gates [T, B, 4 units])`."""
    length, _, columns = z.shape
    scale = tf.repeat(tf.constant([0.5, 0.5, 1.0, 0.5], c.dtype), columns // 4)

    def position(t, h, c, outputs, cell_states, rows):
        h, c = (reset_rows(x, reset_mask, t) for x in (h, c))
        g = tf.tanh(scale * (rows.read(t) + tf.matmul(_drop(h, dropout_mask), recurrent_kernel)))
        input_gate, forget_gate, candidate, output_gate = _gates(g)
        c = forget_gate * c + input_gate * candidate
        h = output_gate * tf.tanh(c)
        return t + 1, h, c, outputs.write(t, h), cell_states.write(t, c), rows.write(t, g)

    outputs, cell_states = (tf.TensorArray(c.dtype, length, element_shape=c.shape) for _ in range(2))
    first = (0, tf.cast(h, c.dtype), c, outputs, cell_states, reuse_as_tensor_array(tf.cast(z, c.dtype)))
    *_, y, cell_states, gates = tf.while_loop(lambda t, *_: t < length, position, first, maximum_iterations=length)
    return tf.cast(y.stack(), z.dtype), cell_states.stack(), gates.stack()


@tf.function(jit_compile=True, autograph=False)
def _backward(gates, cell_states, c, transposed_kernel, dropout_mask, reset_mask, dy, dh, dc):
    """Return `(da [T, B, 4 units], dh [B, units], dc [B, units])`."""
    length, _, columns = gates.shape
    output_dtype = dy.dtype
    dy, dh = tf.cast(dy, c.dtype), tf.cast(dh, c.dtype)
    previous = reset_rows(tf.concat([c[None], cell_states[:-1]], axis=0), reset_mask)
    slope = tf.repeat(tf.constant([0.25, 0.25, 1.0, 0.25], c.dtype), columns // 4)

    def position(k, dh, dc, row, rows):
        t = length - 1 - k
        i, f, g, o = _gates(row)
        tanh_c = tf.tanh(cell_states[t])
        dh = dh + dy[t]
        dc = dc + dh * o * (1 - tanh_c * tanh_c)
        da = slope * (1 - row * row) * tf.concat([dc * g, dc * previous[t], dc * i, dh * tanh_c], axis=-1)
        rows = rows.write(t, da)
        # The next row is read here, once: XLA would read it for each use and copy all rows before the write.
        return (
            k + 1,
            reset_rows(_drop(tf.matmul(da, transposed_kernel), dropout_mask), reset_mask, t),
            reset_rows(dc * f, reset_mask, t),
            rows.read(tf.maximum(t - 1, 0)),
            rows,
        )

    first = (0, dh, dc, gates[-1], reuse_as_tensor_array(gates))
    _, dh, dc, _, da = tf.while_loop(lambda k, *_: k < length, position, first, maximum_iterations=length)
    return tf.cast(da.stack(), output_dtype), tf.cast(dh, output_dtype), dc


def _drop(h, dropout_mask):
    return h if dropout_mask is None else h * tf.cast(dropout_mask, h.dtype)


def _gates(g):
    """Return input gate, forget gate, candidate and output gate from a row of tanh."""
    i, f, g, o = tf.split(g, 4, axis=-1)
    return 0.5 * i + 0.5, 0.5 * f + 0.5, g, 0.5 * o + 0.5
