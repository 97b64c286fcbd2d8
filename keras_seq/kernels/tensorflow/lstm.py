"""`layers.lstm.lstm` on TensorFlow: selects the XLA loop or the unrolled version, and computes the weight gradient.

    da_t = gradient of z_t + h_{t-1} U                     `lstm_xla.py` where it is faster, else `lstm_unrolled.py`
    dU = [h_0 .. h_{T-1}]^T [da_1 .. da_T]                 one matmul, where autodiff would add T small ones

Rows are independent: the two halves of a large batch run in parallel, each on its own core. Arrays are time-major
inside, so that a time step is contiguous in memory.
"""

import tensorflow as tf

from keras_seq.kernels.tensorflow import lstm_unrolled, lstm_xla, xla_loops
from keras_seq.kernels.tensorflow.batch_split import batch_halves, concat_batch, to_time_major
from keras_seq.kernels.tensorflow.resets import reset_rows
from keras_seq.kernels.tensorflow.second_derivatives import differentiable_vjp

MAX_UNROLLED_STEPS = 256  # T; above, building the unrolled graph takes longer than the loop costs


def supports(
    z, recurrent_kernel, h, c, mask=None, recurrent_dropout_mask=None, activations=None, reset_mask=None
) -> bool:
    """Return whether there is no mask or other activation, and T is known and short, or the XLA loop is faster.

    Args:
        z: `[B, T, 4 units]`, input part of the pre-activations.
        recurrent_kernel: `[units, 4 units]`.
        h: `[B, units]`, output before the first time step.
        c: `[B, units]`, cell state before the first time step.
        mask: `[B, T]` boolean, or None.
        recurrent_dropout_mask: `[B, units]`, or None.
        activations: Activations other than tanh and sigmoid, or None.
        reset_mask: `[B, T]` boolean, or None.
    """
    if mask is not None or activations is not None or not z.shape[1]:
        return False
    return z.shape[1] <= MAX_UNROLLED_STEPS or xla_loops.xla_loop_is_faster(z, c)


def apply(z, recurrent_kernel, h, c, mask=None, recurrent_dropout_mask=None, activations=None, reset_mask=None):
    """Compute all time steps, as `keras_seq.layers.lstm.lstm`.

    Args:
        z: `[B, T, 4 units]`, input part of the pre-activations.
        recurrent_kernel: `[units, 4 units]`.
        h: `[B, units]`, output before the first time step.
        c: `[B, units]`, cell state before the first time step.
        mask: None.
        recurrent_dropout_mask: `[B, units]`, multiplies h before the recurrent matmul, or None.
        activations: None.
        reset_mask: `[B, T]` boolean, or None. Where it is true, h and c before the time step are set to zeros.

    Returns:
        `(y [B, T, units], h, c)`.
    """
    xla_loop = xla_loops.xla_loop_is_faster(z, c)
    masks = recurrent_dropout_mask, reset_mask
    # A variable read inside would be captured.
    return _apply(xla_loop, z, tf.convert_to_tensor(recurrent_kernel), h, c, *masks)


def _apply(xla_loop, z, recurrent_kernel, h, c, recurrent_dropout_mask, reset_mask):
    implementation, slices = lstm_xla if xla_loop else lstm_unrolled, batch_halves(c, xla_loop)
    resets = None if reset_mask is None else tf.transpose(reset_mask)

    @tf.custom_gradient
    def lstm(*args):  # the masks need no gradient
        z, recurrent_kernel, h, c = to_time_major(args[0]), *args[1:]
        outputs_and_vjps = [
            implementation.scan_with_vjp(
                z[:, rows],
                recurrent_kernel,
                h[rows],
                c[rows],
                None if recurrent_dropout_mask is None else recurrent_dropout_mask[rows],
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
            previous = previous if recurrent_dropout_mask is None else previous * recurrent_dropout_mask
            return to_time_major(da), tf.tensordot(previous, da, [[0, 1], [0, 1]]), dh, dc

        if xla_loop:
            gradient = differentiable_vjp(gradient, unrolled, args)
        return (to_time_major(y), last_h, last_c), gradient

    def unrolled(*args):
        return _apply(False, *args, recurrent_dropout_mask, reset_mask)

    return lstm(z, recurrent_kernel, h, c)
