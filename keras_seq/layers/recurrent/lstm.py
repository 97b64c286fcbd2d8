"""Long short-term memory (Hochreiter & Schmidhuber, 1997; forget gate: Gers et al., 2000).

z = x W + h U + b                      z = [i | f | g | o]: input, forget, candidate, output
c' = sigmoid(f) c + sigmoid(i) tanh(g)             cell state
h' = sigmoid(o) tanh(c')                           output
"""

import functools

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.recurrent.base import RecurrentBase
from keras_seq.ops.fused_rnn import stored_for_fused_rnn
from keras_seq.ops.lstm import TANH_AND_SIGMOID, lstm
from keras_seq.ops.recurrence import recurrence


def _as_stored(initializer, shape, dtype=None):
    return stored_for_fused_rnn(initializer(shape, dtype=dtype))


def unit_forget_bias(initializer):
    """Return an initializer of biases `[4 units]`, ones for the forget gate: they keep c (Jozefowicz et al., 2015)."""

    def biases(shape, dtype=None):
        units = shape[0] // 4  # gates in the order input, forget, candidate, output
        prefix, suffix = (initializer((size,), dtype) for size in (units, 2 * units))
        return ops.concatenate([prefix, ops.ones(units, dtype), suffix])

    return biases


@keras.saving.register_keras_serializable(package="keras_seq")
class LSTM(RecurrentBase):
    """Long short-term memory, a replacement for `keras.layers.LSTM` with an explicit state.

    ```python
    layer = LSTM(8)
    y = layer(x)  # x [B, T, D] -> y [B, 8], the last output, from the zero state
    y = LSTM(8, return_sequences=True)(x)  # y [B, T, 8], every output
    y, state = layer(x, return_state=True)
    y, state = layer(more, state=state, return_state=True)  # continues from that state
    y, state = layer.step(x[:, 0], layer.get_initial_state(B))  # one time step: y [B, 8]
    ```

    Weights are those of `keras.layers.LSTM`, in its order (kernel `[D, 4 units]`, recurrent kernel
    `[units, 4 units]`, bias `[4 units]`; gates input, forget, candidate, output): weights and weight files can be
    exchanged between the two layers.

    Args:
        units: Width of the output h and of the cell state c; the state is `(h [B, units], c [B, units])`.
        activation: Activation of the candidate and of the cell state. The optimized kernels need tanh and sigmoid.
        recurrent_activation: Activation of the gates.
        use_bias: Whether to add a bias.
        bias_initializer: Initializer of the bias.
        unit_forget_bias: Whether the bias of the forget gate starts at one, whatever `bias_initializer` is.
        **kwargs: The following arguments, and those of `keras.layers.Layer`.
        kernel_initializer, recurrent_initializer: Initializers of the kernel and the recurrent kernel. `"orthogonal"`
            for the latter preserves the norm of h.
        kernel_regularizer, recurrent_regularizer, bias_regularizer, activity_regularizer: Regularizers of the three
            weights and of the output, or None.
        kernel_constraint, recurrent_constraint, bias_constraint: Constraints of the three weights, or None.
        dropout: Fraction of the inputs to drop in training; a row has the same dropout mask at every time step.
        recurrent_dropout: Fraction of h to drop before the recurrent matmul in training, with one mask for all gates.
        seed: Random seed of both dropouts.
        return_sequences: Whether to return every output, `[B, T, units]`, or the last one.
        return_state: Whether a call without an argument of this name returns the flat tuple `(y, h, c)`.
        go_backwards: Whether to process the sequence in reverse order; outputs and mask are then in that order.
        unroll: Accepted for compatibility with Keras; where it is faster, short sequences are unrolled anyway.
        zero_output_for_mask: Whether outputs at masked positions are zeros.
        use_cudnn: False keeps a GPU from using cuDNN in training, and torch from its own LSTM anywhere; `"auto"` and
            True use them where possible.

    Call arguments:
        inputs: `[B, T, D]`.
        state, initial_state: `(h, c)` or `[h, c]`, under either name; zeros unless given.
        mask: `[B, T]`, true at non-padding positions. A masked position copies the state, so its output repeats the
            previous one. With `return_sequences=True` the mask is passed on.
        reset_mask: `[B, T]`, true where another document begins: the state before that position is set to zeros.
        return_state: True returns `(y, (h, c))` and False y alone, whatever the constructor got.

    Precision: matrices in the layer's compute dtype, gates and cell state in float32 or wider.

    Raises:
        ValueError: If an argument is out of its range, `stateful=True`, or the inputs are not `[B, T, D]`.
    """

    num_gates = 4
    state_parts = ("h", "c")
    fused_kind = "lstm"

    def __init__(
        self,
        units: int,
        activation="tanh",
        recurrent_activation="sigmoid",
        use_bias: bool = True,
        *,  # from here on Keras has another order
        bias_initializer="zeros",
        unit_forget_bias: bool = True,
        **kwargs,
    ):
        super().__init__(units, activation, use_bias, bias_initializer=bias_initializer, **kwargs)
        self.recurrent_activation = keras.activations.get(recurrent_activation)
        self.unit_forget_bias = checks.boolean("unit_forget_bias", unit_forget_bias)
        self._keep_from_xla()

    def _bias_start(self):
        return unit_forget_bias(self.bias_initializer) if self.unit_forget_bias else self.bias_initializer

    def _weight(self, name, shape, initializer):
        if name != "bias" and keras.backend.backend() == "torch":
            initializer = functools.partial(_as_stored, keras.initializers.get(initializer))
        return super()._weight(name, shape, initializer)

    def get_initial_state(self, batch_size):
        """Return the zero state `(h [B, units], c [B, units])`."""
        shape = (batch_size, self.units)
        return ops.zeros(shape, self.compute_dtype), ops.zeros(shape, self.state_dtype)

    def scan(self, z, state, mask, recurrent_dropout_mask, reset_mask=None):
        """Compute all time steps from the projected inputs `[B, T, 4 units]`: `(y [B, T, units], (h, c))`."""
        args = z, self._cast(self.recurrent_kernel), *state, mask, recurrent_dropout_mask, self.activations, reset_mask
        y, h, c = lstm(*args)
        return y, (h, c)


# Layer-normalized LSTM (Ba, Kiros & Hinton, 2016, equations 20-22).
#
# norm(v) = (v - mean) / sqrt(variance + epsilon)                    over the features of a row
# z = alpha_1 norm(x W) + alpha_2 norm(h U) + b           z = [i | f | g | o]
# c' = sigmoid(f) c + sigmoid(i) tanh(g)
# h' = sigmoid(o) tanh(alpha_3 norm(c') + beta_3)


def normalize(v, epsilon: float):
    """Normalize the last axis to mean 0 and variance 1; epsilon is added to the variance."""
    v = v - ops.mean(v, axis=-1, keepdims=True)
    return v / ops.sqrt(ops.mean(ops.square(v), axis=-1, keepdims=True) + epsilon)


@keras.saving.register_keras_serializable(package="keras_seq")
class LayerNormLSTM(RecurrentBase):
    """An LSTM with layer normalization of its pre-activations and its cell state at every time step.

    ```python
    layer = LayerNormLSTM(8)
    y, state = layer(x, return_state=True)  # x [B, T, D] -> y [B, 8]
    y = LayerNormLSTM(8, return_sequences=True)(x)  # y [B, T, 8]
    ```

    Besides the weights of `LSTM` it has `kernel_gamma` and `recurrent_gamma` `[4 units]`, `cell_gamma` and `cell_beta`
    `[units]`. State and masking are those of `LSTM`.

    Args:
        units: Width of the output h and of the cell state c; the state is `(h [B, units], c [B, units])`.
        activation: Activation of the candidate and of the cell state.
        recurrent_activation: Activation of the gates.
        epsilon: Added to the variances, greater than 0.
        **kwargs: Those of `LSTM`.

    Precision: matrices in the layer's compute dtype; statistics, gates and cell state in float32 or wider.

    Raises:
        ValueError: If an argument is out of its range, or the inputs are not `[B, T, D]`.
    """

    num_gates = LSTM.num_gates
    state_parts = LSTM.state_parts
    get_initial_state = LSTM.get_initial_state
    _bias_start = LSTM._bias_start

    def __init__(
        self,
        units: int,
        activation="tanh",
        recurrent_activation="sigmoid",
        epsilon: float = 1e-5,
        *,
        unit_forget_bias: bool = True,
        **kwargs,
    ):
        super().__init__(units, activation, **kwargs)
        self.recurrent_activation = keras.activations.get(recurrent_activation)
        self.unit_forget_bias = checks.boolean("unit_forget_bias", unit_forget_bias)
        self.epsilon = checks.positive_number("epsilon", epsilon)

    def build(self, inputs_shape):
        """Create the weights for inputs of this shape."""
        super().build(inputs_shape)
        for name, size, initializer in (
            ("kernel_gamma", 4 * self.units, "ones"),
            ("recurrent_gamma", 4 * self.units, "ones"),
            ("cell_gamma", self.units, "ones"),
            ("cell_beta", self.units, "zeros"),
        ):
            setattr(self, name, self.add_weight(shape=(size,), initializer=initializer, name=name))

    def project_inputs(self, x):
        """Compute the normalized input part `[B, T, 4 units]` of the pre-activations."""
        z = normalize(self._to_state_dtype(ops.matmul(x, self._cast(self.kernel))), self.epsilon)
        z = self._to_state_dtype(self.kernel_gamma) * z
        return z if self.bias is None else z + self._to_state_dtype(self.bias)

    def scan(self, z, state, mask, recurrent_dropout_mask, reset_mask=None):
        """Compute all time steps from the projected inputs `[B, T, 4 units]`: `(y [B, T, units], (h, c))`."""
        recurrent_kernel = self._cast(self.recurrent_kernel)
        tanh, sigmoid = self.activations or TANH_AND_SIGMOID
        recurrent_gamma, cell_gamma, cell_beta = map(
            self._to_state_dtype, (self.recurrent_gamma, self.cell_gamma, self.cell_beta)
        )

        def cell(z, state):
            h, c = state
            h_in = h if recurrent_dropout_mask is None else h * recurrent_dropout_mask
            z = z + recurrent_gamma * normalize(self._to_state_dtype(ops.matmul(h_in, recurrent_kernel)), self.epsilon)
            input_gate, forget_gate, candidate, output_gate = ops.split(z, 4, axis=-1)
            c = sigmoid(forget_gate) * c + sigmoid(input_gate) * tanh(candidate)
            tanh_c = tanh(cell_gamma * normalize(c, self.epsilon) + cell_beta)
            return ops.cast(sigmoid(output_gate) * tanh_c, h.dtype), c

        return recurrence(cell, z, state, mask, reset_mask)
