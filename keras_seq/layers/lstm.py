"""Long short-term memory (Hochreiter & Schmidhuber, 1997; forget gate: Gers et al., 2000).

z = x W + h U + b                      z = [i | f | g | o]: input, forget, candidate, output
c' = sigmoid(f) c + sigmoid(i) tanh(g)             the memory
h' = sigmoid(o) tanh(c')                           what the cell shows of it
"""

import keras
from keras import ops

from keras_seq import checks, kernels
from keras_seq.layers.recurrent_base import Gated, recurrence

TANH_AND_SIGMOID = ops.tanh, ops.sigmoid


def lstm_cell(z, c, activations=None):
    """One position. `z`: pre-activations `[B, 4 units]`, `c`: memory `[B, units]`, both float32 or wider.

    Returns the output h and the memory c, each `[B, units]`. Other `activations` stand for (tanh, sigmoid).
    """
    tanh, sigmoid = activations or TANH_AND_SIGMOID
    input_gate, forget_gate, candidate, output_gate = ops.split(z, 4, axis=-1)
    c = sigmoid(forget_gate) * c + sigmoid(input_gate) * tanh(candidate)
    return sigmoid(output_gate) * tanh(c), c


def lstm(z, recurrent_kernel, h, c, mask=None, recurrent_dropout_mask=None, activations=None):
    """All positions, one after the other.

    Args:
        z: `[B, T, 4 units]`, the inputs' share of the pre-activations, `x W + b`.
        recurrent_kernel: `[units, 4 units]`.
        h: `[B, units]`, the output before the first position.
        c: `[B, units]`, the memory before the first position, float32 or wider.
        mask: `[B, T]` boolean. Where it is false the state is copied: h and c stay as they were.
        kept: `[B, units]`, what recurrent dropout multiplies h by on its way into the recurrent kernel, or None.
        activations: instead of (tanh, sigmoid), or None.

    Returns:
        `(y [B, T, units], h, c)`: the output at every position and the last state.
    """

    def cell(z, state):
        h, c = state
        seen = h if recurrent_dropout_mask is None else h * recurrent_dropout_mask
        new_h, new_c = lstm_cell(ops.cast(z + ops.matmul(seen, recurrent_kernel), c.dtype), c, activations)
        return ops.cast(new_h, h.dtype), new_c

    y, (h, c) = recurrence(cell, z, (h, c), mask)
    return y, h, c


@keras.saving.register_keras_serializable(package="keras_seq")
class UnitForgetBias(keras.initializers.Initializer):
    """Ones for the forget gate (Jozefowicz et al., 2015), so that at first the memory is kept.

    `bias_initializer` is for the other gates.
    """

    def __init__(self, bias_initializer="zeros"):
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def __call__(self, shape, dtype=None):
        units = shape[0] // 4
        before, behind = (self.bias_initializer((width,), dtype) for width in (units, 2 * units))
        return ops.concatenate([before, ops.ones(units, dtype), behind])

    def get_config(self):
        return {"bias_initializer": keras.initializers.serialize(self.bias_initializer)}


@keras.saving.register_keras_serializable(package="keras_seq")
class LSTM(Gated):
    """Long short-term memory, in place of `keras.layers.LSTM`, with the state in and out.

    ```python
    layer = LSTM(8)
    y = layer(x)  # x [B, T, D] -> y [B, 8], the last output, from the zero state
    y = LSTM(8, return_sequences=True)(x)  # y [B, T, 8], every output
    y, state = layer(x, return_state=True)
    y, state = layer(more, state=state, return_state=True)  # goes on where it ended
    y, state = layer.step(x[:, 0], layer.initial_state(B))  # one position: y [B, 8]
    ```

    Weights are those of `keras.layers.LSTM`, in its order (kernel `[D, 4 units]`, recurrent kernel
    `[units, 4 units]`, bias `[4 units]`; gates input, forget, candidate, output), so that `get_weights` of one is
    `set_weights` of the other, and a file of one loads into the other.

    Args, all as in Keras:
        units: width of the output h and of the memory c; the state is `(h [B, units], c [B, units])`.
        activation: of the candidate and of the memory. Other ones than tanh and sigmoid have no fast path.
        recurrent_activation: of the gates.
        use_bias: whether the gates have a bias.
        kernel_initializer, recurrent_initializer, bias_initializer: of the input matrix, the recurrent matrix, the
            bias. `"orthogonal"` keeps the length of h; the 2017-style char-RNN used `"glorot_normal"`.
        unit_forget_bias: whether the bias of the forget gate starts at one, whatever `bias_initializer` is.
        kernel_regularizer, recurrent_regularizer, bias_regularizer, activity_regularizer: losses of these three and of
            the output.
        kernel_constraint, recurrent_constraint, bias_constraint: what these three are projected to after an update.
        dropout: fraction of the inputs dropped in training, the same at every position of a row.
        recurrent_dropout: the same for h on its way into the recurrent matrix, the same for all gates.
        seed: of both.
        return_sequences: whether to give every output, `[B, T, units]`, or the last one.
        return_state: whether a call without an argument of that name gives the flat tuple `(y, h, c)`.
        go_backwards: whether to read from the end; every output then stands in that order, the mask too.
        unroll: taken as a hint; lengths that gain from it are unrolled anyway.
        zero_output_for_mask: whether a masked position gives zeros.
        use_cudnn: False keeps a GPU from using cuDNN's routine in training; else it is used where it can be.

    Call arguments:
        x: `[B, T, D]`.
        state, initial_state: `(h, c)` or `[h, c]`, under either name; zeros unless given.
        mask: `[B, T]`; a masked position copies the state, so its output repeats the one before it. With
            `return_sequences=True` the mask goes on.
        return_state: True gives `(y, (h, c))`, False y alone, whatever the constructor was told.

    Precision: matrices in the layer's compute dtype, gates and memory in float32 at least.

    Raises:
        ValueError: for an argument out of its range, `stateful=True`, or an input that is not `[B, T, D]`.
    """

    gates = 4
    state_parts = ("h", "c")
    before_keras = Gated.before_keras | {"unit_forget_bias": False}

    def __init__(
        self,
        units,
        activation="tanh",
        recurrent_activation="sigmoid",
        use_bias=True,
        *,  # where Keras's order goes on with others
        bias_initializer="zeros",
        unit_forget_bias=True,
        **kwargs,
    ):
        start = UnitForgetBias() if bias_initializer == "unit_forget" else bias_initializer
        super().__init__(units, activation, recurrent_activation, use_bias, bias_initializer=start, **kwargs)
        self.unit_forget_bias = checks.boolean("unit_forget_bias", unit_forget_bias)
        if isinstance(self.bias_initializer, UnitForgetBias):  # 0.1.0 said it so
            self.bias_initializer, self.unit_forget_bias = self.bias_initializer.bias_initializer, True

    def _weight(self, name, shape, initializer):
        start = UnitForgetBias(initializer) if name == "bias" and self.unit_forget_bias else initializer
        return super()._weight(name, shape, start)

    @property
    def keras_layer_class(self):
        """Keras's, where it is the same formula."""
        return keras.layers.LSTM if self.cudnn_can else None

    def get_initial_state(self, batch_size):
        """The zero state: `(h [B, units], c [B, units])`."""
        shape = (batch_size, self.units)
        return ops.zeros(shape, self.compute_dtype), ops.zeros(shape, self.state_dtype)

    def scan(self, z, state, mask, recurrent_dropout_mask):
        args = z, self._cast(self.recurrent_kernel), *state, mask, recurrent_dropout_mask, self.activations
        y, h, c = kernels.dispatch("lstm", lstm, *args)(*args)
        return y, (h, c)

    def get_config(self):
        return {**super().get_config(), "unit_forget_bias": self.unit_forget_bias}
