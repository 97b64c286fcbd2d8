"""Long short-term memory (Hochreiter & Schmidhuber, 1997; forget gate: Gers et al., 2000).

z = x W + h U + b                      z = [i | f | g | o]: input, forget, candidate, output
c' = sigmoid(f) c + sigmoid(i) tanh(g)             the memory
h' = sigmoid(o) tanh(c')                           what the cell shows of it
"""

import keras
from keras import ops

from keras_seq import kernels
from keras_seq.layers.recurrent import Recurrent, recurrence


def lstm_cell(z, c):
    """One position. `z`: pre-activations `[B, 4 units]`, `c`: memory `[B, units]`, both float32 or wider.

    Returns the output h and the memory c, each `[B, units]`.
    """
    input_gate, forget_gate, candidate, output_gate = ops.split(z, 4, axis=-1)
    c = ops.sigmoid(forget_gate) * c + ops.sigmoid(input_gate) * ops.tanh(candidate)
    return ops.sigmoid(output_gate) * ops.tanh(c), c


def lstm(z, recurrent_kernel, h, c, mask=None, kept=None):
    """All positions, one after the other.

    Args:
        z: `[B, T, 4 units]`, the inputs' share of the pre-activations, `x W + b`.
        recurrent_kernel: `[units, 4 units]`.
        h: `[B, units]`, the output before the first position.
        c: `[B, units]`, the memory before the first position, float32 or wider.
        mask: `[B, T]` boolean. Where it is false the state is copied: h and c stay as they were.
        kept: `[B, units]`, what recurrent dropout multiplies h by on its way into the recurrent kernel, or None.

    Returns:
        `(y [B, T, units], h, c)`: the output at every position and the last state.
    """

    def cell(z, state):
        h, c = state
        seen = h if kept is None else h * kept
        new_h, new_c = lstm_cell(ops.cast(z + ops.matmul(seen, recurrent_kernel), c.dtype), c)
        return ops.cast(new_h, h.dtype), new_c

    y, (h, c) = recurrence(cell, z, (h, c), mask)
    return y, h, c


@keras.saving.register_keras_serializable(package="keras_seq")
class UnitForgetBias(keras.initializers.Initializer):
    """Zeros, and ones for the forget gate (Jozefowicz et al., 2015): at first the memory is kept."""

    def __call__(self, shape, dtype=None):
        units = shape[0] // 4
        return ops.concatenate([ops.zeros(units, dtype), ops.ones(units, dtype), ops.zeros(2 * units, dtype)])


@keras.saving.register_keras_serializable(package="keras_seq")
class LSTM(Recurrent):
    """Long short-term memory that gives its output at every position and never hides its state.

    ```python
    layer = LSTM(8)
    y = layer(x)  # x [B, T, D] -> y [B, T, 8], from the zero state
    y, state = layer(x, return_state=True)
    y, state = layer(more, state=state, return_state=True)  # goes on where it ended
    y, state = layer.step(x[:, 0], layer.initial_state(B))  # one position: y [B, 8]
    ```

    Weights are those of `keras.layers.LSTM`, in its order (kernel `[D, 4 units]`, recurrent kernel
    `[units, 4 units]`, bias `[4 units]`; gates input, forget, candidate, output), so that `get_weights` of one is
    `set_weights` of the other.

    Args:
        units: width of the output h and of the memory c; the state is `(h [B, units], c [B, units])`.
        kernel_initializer: of the input matrix.
        recurrent_initializer: of the recurrent matrix. `"orthogonal"` keeps the length of h; the 2017-style
            char-RNN used `"glorot_normal"`.
        bias_initializer: `"unit_forget"` is zero but for the forget gate, which starts at one.
        dropout: fraction of the inputs dropped in training, the same at every position of a row.
        recurrent_dropout: the same for h on its way into the recurrent matrix.
        seed: of both.

    Masking: `mask [B, T]`; a masked position copies the state, so its output repeats the one before it.
    Precision: matrices in the layer's compute dtype, gates and memory in float32 at least.

    Raises:
        ValueError: for an argument out of its range, or an input that is not `[B, T, D]`.
    """

    gates = 4
    in_keras = keras.layers.LSTM

    def __init__(self, units, bias_initializer="unit_forget", **kwargs):
        bias_initializer = UnitForgetBias() if bias_initializer == "unit_forget" else bias_initializer
        super().__init__(units, bias_initializer=bias_initializer, **kwargs)

    def initial_state(self, batch_size):
        """The zero state: `(h [B, units], c [B, units])`."""
        shape = (batch_size, self.units)
        return ops.zeros(shape, self.compute_dtype), ops.zeros(shape, self.memory_dtype)

    def run(self, z, state, mask, kept):
        args = z, self._cast(self.recurrent_kernel), *state, mask, kept
        y, h, c = kernels.twin("lstm", lstm, *args)(*args)
        return y, (h, c)
