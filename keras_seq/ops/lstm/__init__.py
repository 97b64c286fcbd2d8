"""Long short-term memory; its formula is that of `keras_seq/layers/recurrent/lstm.py`."""

import keras
from keras import ops

from keras_seq.ops.dispatch import optimized
from keras_seq.ops.recurrence import recurrence

TANH_AND_SIGMOID = ops.tanh, ops.sigmoid


def lstm_cell(z, c, activations=None):
    """Compute (h, c) `[B, units]` of one time step from z `[B, 4 units]` and c, all in float32 or wider.

    `activations` are `(activation, recurrent_activation)`, tanh and sigmoid unless given.
    """
    tanh, sigmoid = activations or TANH_AND_SIGMOID
    input_gate, forget_gate, candidate, output_gate = ops.split(z, 4, axis=-1)
    c = sigmoid(forget_gate) * c + sigmoid(input_gate) * tanh(candidate)
    return sigmoid(output_gate) * tanh(c), c


@optimized
def lstm(z, recurrent_kernel, h, c, mask=None, dropout_mask=None, activations=None, reset_mask=None):
    """Compute all time steps, one after the other.

    Args:
        z: `[B, T, 4 units]`, input part `x W + b` of the pre-activations.
        recurrent_kernel: `[units, 4 units]`.
        h: `[B, units]`, output before the first time step.
        c: `[B, units]`, cell state before the first time step, float32 or wider.
        mask: `[B, T]` boolean, or None. Where it is false, h and c are copied.
        dropout_mask: `[B, units]`, multiplies h before the recurrent matmul, or None.
        activations: Functions `(activation, recurrent_activation)`; tanh and sigmoid unless given.
        reset_mask: `[B, T]` boolean, or None. Where it is true, h and c before the time step are set to zeros.

    Returns:
        `(y [B, T, units], h, c)`: the output at every time step and the last state.
    """

    def cell(z, state):
        h, c = state
        h_in = h if dropout_mask is None else h * dropout_mask
        new_h, new_c = lstm_cell(ops.cast(z + ops.matmul(h_in, recurrent_kernel), c.dtype), c, activations)
        return ops.cast(new_h, h.dtype), new_c

    y, (h, c) = recurrence(cell, z, (h, c), mask, reset_mask)
    return y, h, c


if keras.backend.backend() == "tensorflow":
    import keras_seq.ops.lstm.tensorflow
elif keras.backend.backend() == "jax":
    import keras_seq.ops.lstm.jax  # noqa: F401  (binds the twins)
