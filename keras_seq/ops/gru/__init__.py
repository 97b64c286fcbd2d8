"""The gated recurrent unit; its formula is that of `keras_seq/layers/recurrent/gru.py`."""

import keras
from keras import ops

from keras_seq.ops.dispatch import optimized
from keras_seq.ops.recurrence import recurrence

TANH_AND_SIGMOID = ops.tanh, ops.sigmoid


def gru_cell(x, h, recurrent_kernel, recurrent_bias=None, dropout_mask=None, activations=None):
    """Compute the next h `[B, units]` from `x [B, 3 units]`, the input part; other arguments are those of `gru`."""
    tanh, sigmoid = activations or TANH_AND_SIGMOID
    units = h.shape[-1]
    h_in = ops.cast(h, x.dtype)
    h_in = h_in if dropout_mask is None else h_in * dropout_mask
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
def gru(x, h, recurrent_kernel, recurrent_bias=None, mask=None, dropout_mask=None, activations=None, reset_mask=None):
    """Compute all time steps, one after the other: `(y [B, T, units], h)`, h at every time step and the last h.

    x is the input part of the pre-activations, `[B, T, 3 units]`, h the state before the first time step, `[B, units]`,
    float32 or wider, and the recurrent kernel `[units, 3 units]`. A recurrent bias of None, in place of `[3 units]`,
    resets h before the matmul. Other arguments are those of `lstm`.
    """

    def cell(x, h):
        return gru_cell(x, h, recurrent_kernel, recurrent_bias, dropout_mask, activations)

    return recurrence(cell, x, h, mask, reset_mask)


if keras.backend.backend() == "tensorflow":
    import keras_seq.ops.gru.tensorflow  # noqa: F401  (binds the twin)
