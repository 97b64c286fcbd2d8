"""Layer-normalized LSTM (Ba, Kiros & Hinton, 2016, equations 20-22).

norm(v) = (v - mean) / sqrt(variance + epsilon)                    over the features of a row
z = alpha_1 norm(x W) + alpha_2 norm(h U) + b           z = [i | f | g | o]
c' = sigmoid(f) c + sigmoid(i) tanh(g)
h' = sigmoid(o) tanh(alpha_3 norm(c') + beta_3)
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.lstm import LSTM
from keras_seq.layers.recurrent_base import RecurrentBase
from keras_seq.ops.lstm import TANH_AND_SIGMOID
from keras_seq.ops.recurrence import recurrence


def normalize(v, epsilon: float):
    """Normalize the last axis to mean 0 and variance 1.

    Args:
        v: `[..., D]`.
        epsilon: Added to the variance.

    Returns:
        `[..., D]`.
    """
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

    def build(self, input_shape):
        """Create the weights for inputs of this shape."""
        super().build(input_shape)
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
