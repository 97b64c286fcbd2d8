"""Layer-normalised LSTM (Ba, Kiros & Hinton, 2016, equations 20-22).

norm(v) = (v - mean) / sqrt(variance + epsilon)                    over all numbers of a row
z = alpha_1 norm(x W) + alpha_2 norm(h U) + b           z = [i | f | g | o]
c' = sigmoid(f) c + sigmoid(i) tanh(g)
h' = sigmoid(o) tanh(alpha_3 norm(c') + beta_3)
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.lstm import LSTM, TANH_AND_SIGMOID
from keras_seq.layers.recurrent_base import recurrence


def normalize(v, epsilon):
    """The last axis with mean 0 and variance 1."""
    v = v - ops.mean(v, axis=-1, keepdims=True)
    return v / ops.sqrt(ops.mean(ops.square(v), axis=-1, keepdims=True) + epsilon)


@keras.saving.register_keras_serializable(package="keras_seq")
class LayerNormLSTM(LSTM):
    """An LSTM whose pre-activations and memory are normalised at every position, each row by itself.

    ```python
    layer = LayerNormLSTM(8)
    y, state = layer(x, return_state=True)  # x [B, T, D] -> y [B, 8]
    y = LayerNormLSTM(8, return_sequences=True)(x)  # y [B, T, 8]
    ```

    Arguments, state, masking and errors as for `LSTM`, and `epsilon`, which is added to the variances. Besides the
    weights of `LSTM` it has `kernel_gamma`, `recurrent_gamma` `[4 units]` and `memory_gamma`, `memory_beta` `[units]`.
    Precision: matrices in the layer's compute dtype; statistics, gates and memory in float32 at least.
    """

    keras_layer_class = None

    def __init__(self, units, activation="tanh", recurrent_activation="sigmoid", epsilon=1e-5, **kwargs):
        super().__init__(units, activation, recurrent_activation, **kwargs)
        self.epsilon = checks.positive_number("epsilon", epsilon)

    def build(self, input_shape):
        super().build(input_shape)
        for name, width, start in (
            ("kernel_gamma", 4 * self.units, "ones"),
            ("recurrent_gamma", 4 * self.units, "ones"),
            ("memory_gamma", self.units, "ones"),
            ("memory_beta", self.units, "zeros"),
        ):
            setattr(self, name, self.add_weight(shape=(width,), initializer=start, name=name))

    def project_inputs(self, x):
        """The inputs' share of all positions' pre-activations, normalised."""
        z = normalize(self._wide(ops.matmul(x, self._cast(self.kernel))), self.epsilon)
        z = self._wide(self.kernel_gamma) * z
        return z if self.bias is None else z + self._wide(self.bias)

    def _wide(self, v):
        return ops.cast(v, self.state_dtype)

    def scan(self, z, state, mask, recurrent_dropout_mask):
        recurrent_kernel = self._cast(self.recurrent_kernel)
        tanh, sigmoid = self.activations or TANH_AND_SIGMOID
        recurrent_gamma, memory_gamma, memory_beta = map(
            self._wide, (self.recurrent_gamma, self.memory_gamma, self.memory_beta)
        )

        def cell(z, state):
            h, c = state
            seen = h if recurrent_dropout_mask is None else h * recurrent_dropout_mask
            z = z + recurrent_gamma * normalize(self._wide(ops.matmul(seen, recurrent_kernel)), self.epsilon)
            input_gate, forget_gate, candidate, output_gate = ops.split(z, 4, axis=-1)
            c = sigmoid(forget_gate) * c + sigmoid(input_gate) * tanh(candidate)
            shown = tanh(memory_gamma * normalize(c, self.epsilon) + memory_beta)
            return ops.cast(sigmoid(output_gate) * shown, h.dtype), c

        return recurrence(cell, z, state, mask)

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}
