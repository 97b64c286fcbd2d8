"""`layers.gru.gru` on TensorFlow, with the reset after the matmul: selects the XLA loop or the unrolled version.

    ds_t = gradient of h_{t-1} U + c                       `gru_xla.py` where it is faster, else `gru_unrolled.py`
    dU = [h_0 .. h_{T-1}]^T [ds_1 .. ds_T],  dc = sum ds   one matmul, where autodiff would add T small ones

The two halves of a large batch run in parallel, and arrays are time-major inside, as for the LSTM.
"""

import tensorflow as tf

from keras_seq.kernels.tensorflow import gru_unrolled, gru_xla, xla_loops
from keras_seq.kernels.tensorflow.batch_split import batch_halves, concat_batch, to_time_major
from keras_seq.kernels.tensorflow.resets import reset_rows
from keras_seq.kernels.tensorflow.second_derivatives import differentiable_vjp

MAX_UNROLLED_STEPS = 256  # T; above, building the unrolled graph takes longer than the loop costs


def supports(
    x,
    h,
    recurrent_kernel,
    recurrent_bias=None,
    mask=None,
    recurrent_dropout_mask=None,
    activations=None,
    reset_mask=None,
) -> bool:
    """Return whether there is no mask, dropout or other activation, the reset is after the matmul, and T is suitable.

    Args:
        x: `[B, T, 3 units]`, input part of the pre-activations.
        h: `[B, units]`, state before the first time step.
        recurrent_kernel: `[units, 3 units]`.
        recurrent_bias: `[3 units]`, or None.
        mask: `[B, T]` boolean, or None.
        recurrent_dropout_mask: `[B, units]`, or None.
        activations: Activations other than tanh and sigmoid, or None.
        reset_mask: `[B, T]` boolean, or None.
    """
    plain = mask is None and recurrent_dropout_mask is None and activations is None and recurrent_bias is not None
    return plain and bool(x.shape[1]) and (x.shape[1] <= MAX_UNROLLED_STEPS or xla_loops.xla_loop_is_faster(x, h))


def apply(
    x,
    h,
    recurrent_kernel,
    recurrent_bias=None,
    mask=None,
    recurrent_dropout_mask=None,
    activations=None,
    reset_mask=None,
):
    """Compute all time steps, as `keras_seq.layers.gru.gru`.

    Args:
        x: `[B, T, 3 units]`, input part of the pre-activations.
        h: `[B, units]`, state before the first time step.
        recurrent_kernel: `[units, 3 units]`.
        recurrent_bias: `[3 units]`.
        mask: None.
        recurrent_dropout_mask: None.
        activations: None.
        reset_mask: `[B, T]` boolean, or None. Where it is true, h before the time step is set to zeros.

    Returns:
        `(y [B, T, units], h)`.
    """
    args = x, h, tf.convert_to_tensor(recurrent_kernel), tf.convert_to_tensor(recurrent_bias)
    return _apply(xla_loops.xla_loop_is_faster(x, h), *args, reset_mask)


def _apply(xla_loop, x, h, recurrent_kernel, recurrent_bias, reset_mask):
    implementation, slices = gru_xla if xla_loop else gru_unrolled, batch_halves(h, xla_loop)
    resets = None if reset_mask is None else tf.transpose(reset_mask)

    @tf.custom_gradient
    def gru(*args):
        x, h, recurrent_kernel, recurrent_bias = to_time_major(args[0]), *args[1:]
        outputs_and_vjps = [
            implementation.scan_with_vjp(
                x[:, rows], h[rows], recurrent_kernel, recurrent_bias, None if resets is None else resets[:, rows]
            )
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
        return _apply(False, *args, reset_mask)

    return gru(x, h, recurrent_kernel, recurrent_bias)
