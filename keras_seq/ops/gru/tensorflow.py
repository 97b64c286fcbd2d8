"""The GRU on TensorFlow, with the reset after the matmul: an XLA loop or unrolled time steps, as of the LSTM.

ds_t = gradient of h_{t-1} U + c
dU = [h_0 .. h_{T-1}]^T [ds_1 .. ds_T],  dc = sum ds   one matmul, where autodiff would add T small ones
"""

import tensorflow as tf

from keras_seq.ops.gru import gru
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


def is_plain(
    x, h, recurrent_kernel, recurrent_bias=None, mask=None, dropout_mask=None, activations=None, reset_mask=None
) -> bool:
    """Return whether there is no mask, dropout or other activation, the reset is after the matmul, and T suits."""
    plain = mask is None and dropout_mask is None and activations is None and recurrent_bias is not None
    return plain and bool(x.shape[1]) and (x.shape[1] <= MAX_UNROLLED_STEPS or xla_loop_is_faster(x, h))


@gru.on("tensorflow", supports=is_plain)
def fast_gru(
    x, h, recurrent_kernel, recurrent_bias=None, mask=None, dropout_mask=None, activations=None, reset_mask=None
):
    """Compute all time steps."""
    args = x, h, tf.convert_to_tensor(recurrent_kernel), tf.convert_to_tensor(recurrent_bias)
    return _gru(xla_loop_is_faster(x, h), *args, reset_mask)


def _gru(xla_loop, x, h, recurrent_kernel, recurrent_bias, reset_mask):
    run, slices = _xla_loops if xla_loop else _unrolled, batch_halves(h, xla_loop)
    resets = None if reset_mask is None else tf.transpose(reset_mask)

    @tf.custom_gradient
    def gru(*args):
        x, h, recurrent_kernel, recurrent_bias = to_time_major(args[0]), *args[1:]
        outputs_and_vjps = [
            run(x[:, rows], h[rows], recurrent_kernel, recurrent_bias, None if resets is None else resets[:, rows])
            for rows in slices
        ]
        [y] = concat_batch([[y] for y, _ in outputs_and_vjps])

        def gradient(dy, dh):
            dy = to_time_major(dy)
            vjps = zip(slices, (vjp for _, vjp in outputs_and_vjps), strict=True)
            dx, ds, dh = concat_batch([vjp(dy[:, rows], dh[rows]) for rows, vjp in vjps])
            previous = tf.cast(reset_rows(tf.concat([h[None], y[:-1]], axis=0), resets), ds.dtype)
            return to_time_major(dx), dh, tf.tensordot(previous, ds, [[0, 1], [0, 1]]), tf.reduce_sum(ds, axis=[0, 1])

        if xla_loop:
            gradient = differentiable_vjp(gradient, unrolled, args)
        return (to_time_major(y), y[-1]), gradient

    def unrolled(*args):
        return _gru(False, *args, reset_mask)

    return gru(x, h, recurrent_kernel, recurrent_bias)


# Both versions map time-major x [T, B, 3 units], h [B, units], U, c and a mask to (y [T, B, units], vjp), with
# vjp(dy, dh) -> (dx [T, B, 3 units], ds [T, B, 3 units], dh).


def _unrolled(x, h, recurrent_kernel, recurrent_bias, reset_mask):
    """Compute all time steps in a graph without a loop."""
    state_dtype = h.dtype  # of gates and h
    outputs, previous, gates = [], [], []
    for t, x_t in enumerate(tf.unstack(x)):
        h = reset_rows(h, reset_mask, t)
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
            dh = reset_rows(dh, reset_mask, t)
        return tf.stack(dx[::-1]), tf.stack(d_inner[::-1]), dh

    return tf.stack(outputs), vjp


def _xla_loops(x, h, recurrent_kernel, recurrent_bias, reset_mask):
    """Compute all time steps in two loops that XLA compiles for a CPU, one forward and one backward.

        s = h U + c,   [z | r] = sigmoid(x_zr + s_zr),   g = tanh(x_g + r s_g),   h' = z h + (1 - z) g
        dg = dh (1 - z) (1 - g^2),   dr = dg s_g r (1 - r),   dz = dh (h - g) z (1 - z)
        dh <- dh z + [dz | dr | r dg] U^T

    with sigmoid(a) = tanh(a / 2) / 2 + 1/2, which XLA vectorizes. Rows are overwritten after they are read: x by the
    gates, the gates by dx, s_g by r dg.
    """
    # Cast and transposed outside of the loops: XLA would repeat both at every time step.
    wide_kernel = tf.cast(recurrent_kernel, h.dtype)
    # stop_gradient hides the loop from eager and persistent gradient tapes: the gradient is `vjp`.
    args = map(tf.stop_gradient, (x, h, wide_kernel, tf.cast(recurrent_bias, h.dtype)))
    y, gates, inner = _forward(*args, reset_mask)

    def vjp(dy, dh):
        dx, d_inner, dh = _backward(gates, inner, y, h, tf.transpose(wide_kernel), reset_mask, dy, dh)
        return tf.cast(dx, x.dtype), tf.cast(d_inner, x.dtype), dh

    return y, vjp


@tf.function(jit_compile=True, autograph=False)
def _forward(x, h, recurrent_kernel, recurrent_bias, reset_mask):
    """Return `(y [T, B, units], gates [T, B, 3 units], s_g [T, B, units])`."""
    length, units = x.shape[0], h.shape[1]

    def position(t, h, outputs, rows, inner):
        row, h = rows.read(t), reset_rows(h, reset_mask, t)
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
def _backward(gates, inner, y, h, transposed_kernel, reset_mask, dy, dh):
    """Return `(dx [T, B, 3 units], ds [T, B, 3 units], dh [B, units])`."""
    length, units = gates.shape[0], h.shape[1]
    previous = reset_rows(tf.concat([h[None], y[:-1]], axis=0), reset_mask)

    def position(k, dh, row, s, rows, inner):
        t = length - 1 - k
        z, r = _gates(row[:, : 2 * units])
        g = row[:, 2 * units :]
        dh = dh + dy[t]
        dg = dh * (1 - z) * (1 - g * g)
        dr = dg * s * r * (1 - r)
        dz = dh * (previous[t] - g) * z * (1 - z)
        rows, inner = rows.write(t, tf.concat([dz, dr, dg], axis=-1)), inner.write(t, dg * r)
        dh = dh * z + tf.matmul(tf.concat([dz, dr, dg * r], axis=-1), transposed_kernel)
        dh = reset_rows(dh, reset_mask, t)
        # The next rows are read here, once: XLA would otherwise copy all rows before the writes.
        next_t = tf.maximum(t - 1, 0)
        return k + 1, dh, rows.read(next_t), inner.read(next_t), rows, inner

    first = (0, dh, gates[-1], inner[-1], reuse_as_tensor_array(gates), reuse_as_tensor_array(inner))
    _, dh, _, _, dx, ds = tf.while_loop(lambda k, *_: k < length, position, first, maximum_iterations=length)
    dx = dx.stack()
    return dx, tf.concat([dx[:, :, : 2 * units], ds.stack()], axis=-1), dh


def _gates(zr):
    """Return update and reset gate from the tanh of half their pre-activations."""
    return tf.split(0.5 * zr + 0.5, 2, axis=-1)
