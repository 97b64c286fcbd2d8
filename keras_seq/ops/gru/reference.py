"""The gated recurrent unit (Cho et al., 2014): the output is the state, updated by gated interpolation.

z = sigmoid(x W_z + h U_z + b_z)                    update gate: the weight of the old state
r = sigmoid(x W_r + h U_r + b_r)                    reset gate
g = tanh(x W_g + b_g + r (h U_g + c_g))             candidate, reset after the matmul (as in cuDNN)
g = tanh(x W_g + b_g + (r h) U_g)                   candidate, reset before the matmul (as in the paper)
h' = z h + (1 - z) g
"""

from keras import ops

from keras_seq.ops.dispatch import optimized
from keras_seq.ops.recurrence import recurrence

TANH_AND_SIGMOID = ops.tanh, ops.sigmoid


def gru_cell(x, h, recurrent_kernel, recurrent_bias=None, recurrent_dropout_mask=None, activations=None):
    """Compute the next h `[B, units]` from `x [B, 3 units]`, the input part; other arguments are those of `gru`."""
    tanh, sigmoid = activations or TANH_AND_SIGMOID
    units = h.shape[-1]
    h_in = ops.cast(h, x.dtype)
    h_in = h_in if recurrent_dropout_mask is None else h_in * recurrent_dropout_mask
    x = ops.cast(x, h.dtype)
    if recurrent_bias is not None:
        inner = ops.cast(ops.matmul(h_in, recurrent_kernel) + recurrent_bias, h.dtype)
        gates = sigmoid(x[:, : 2 * units] + inner[:, : 2 * units])
        update, reset = gates[:, :units], gates[:, units:]
        candidate = tanh(x[:, 2 * units :] + reset * inner[:, 2 * units :])
    else:
        inner = ops.cast(ops.matmul(h_in, recurrent_kernel[:, : 2 * units]), h.dtype)
        gates = sigmoid(x[:, : 2 * units] + inner)
        update, reset = gates[:, :units], gates[:, units:]
        inner = ops.matmul(ops.cast(reset, h_in.dtype) * h_in, recurrent_kernel[:, 2 * units :])
        candidate = tanh(x[:, 2 * units :] + ops.cast(inner, h.dtype))
    return update * h + (1 - update) * candidate


@optimized
def gru(
    x,
    h,
    recurrent_kernel,
    recurrent_bias=None,
    mask=None,
    recurrent_dropout_mask=None,
    activations=None,
    reset_mask=None,
):
    """Compute all time steps, one after the other.

    Args:
        x: `[B, T, 3 units]`, input part of the pre-activations.
        h: `[B, units]`, state before the first time step, float32 or wider.
        recurrent_kernel: `[units, 3 units]`.
        recurrent_bias: `[3 units]`; None resets h before the matmul.
        mask: `[B, T]` boolean, or None. Where it is false, h is copied.
        recurrent_dropout_mask: `[B, units]`, multiplies h before the recurrent matmul, or None.
        activations: Functions `(activation, recurrent_activation)`; tanh and sigmoid unless given.
        reset_mask: `[B, T]` boolean, or None. Where it is true, h before the time step is set to zeros.

    Returns:
        `(y [B, T, units], h)`: h at every time step and the last h.
    """
    return recurrence(
        lambda x, h: gru_cell(x, h, recurrent_kernel, recurrent_bias, recurrent_dropout_mask, activations),
        x,
        h,
        mask,
        reset_mask,
    )
