"""Gated layers whose gates do not look at the state (Feng et al., 2024, "Were RNNs All We Needed?").

    minGRU     z = sigmoid(x W_z + b_z)                          update gate
               h' = (1 - z) h + z g(x W_g + b_g)
    minLSTM    f = sigmoid(x W_f + b_f),  i = sigmoid(x W_i + b_i)      forget and input gate
               h' = f / (f + i) h + i / (f + i) g(x W_g + b_g)

    g(v) = v + 0.5 where v >= 0, else sigmoid(v)                 candidate, positive so that it has a logarithm

h' is a mean of h and the candidate with weights that do not depend on h: a linear recurrence, computed for all
positions at once, in logarithms. Both gates are logistic functions, whose logarithms are softplus.
"""

import keras
from keras import ops

from keras_seq.layers import arguments
from keras_seq.layers.linear_recurrence import NEVER, log_linear_recurrence
from keras_seq.layers.stateful import Stateful


def log_candidate(v):
    """The logarithm of g(v)."""
    return ops.where(v >= 0, ops.log(ops.where(v >= 0, v, 0.0) + 0.5), -ops.softplus(-v))


def min_gru_weights(z):
    """The logarithms of the weights of h and of the candidate. `z`: pre-activation of the update gate."""
    return -ops.softplus(z), -ops.softplus(-z)


def min_lstm_weights(f, i):
    """The logarithms of the weights of h and of the candidate. `f`, `i`: pre-activations of the two gates."""
    ratio = ops.softplus(-f) - ops.softplus(-i)  # log(sigmoid(i) / sigmoid(f))
    return -ops.softplus(ratio), -ops.softplus(-ratio)


class Minimal(Stateful):
    """The base of both: a kernel `[D, gates units]` and a bias `[gates units]`, the candidate's block last."""

    gates = 2

    def __init__(self, units, kernel_initializer="glorot_uniform", bias_initializer="zeros", **kwargs):
        super().__init__(**kwargs)
        self.units = arguments.positive_integer("units", units)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def build(self, input_shape):
        width = arguments.sequence_shape("x", input_shape)
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: width})
        columns = self.gates * self.units
        self.kernel = self.add_weight(shape=(width, columns), initializer=self.kernel_initializer, name="kernel")
        self.bias = self.add_weight(shape=(columns,), initializer=self.bias_initializer, name="bias")
        self.kernel.matrix_blocks = self.gates

    def initial_state(self, batch_size):
        """The zero state h `[B, units]`."""
        return ops.zeros((batch_size, self.units), self.memory_dtype)

    def call(self, x, state=None, mask=None, x_mask=None, return_state=False):
        x, h, mask = self.enter(x, state, x_mask if mask is None else mask)
        kernel, bias = (ops.cast(v, self.compute_dtype) for v in (self.kernel, self.bias))
        *gates, candidate = ops.split(ops.cast(ops.matmul(x, kernel) + bias, self.memory_dtype), self.gates, axis=-1)
        log_a, log_new = self.weights_of(*gates)
        log_b = log_new + log_candidate(candidate)
        if mask is not None:
            real = ops.expand_dims(mask, -1)
            log_a, log_b = ops.where(real, log_a, 0.0), ops.where(real, log_b, NEVER)
        memory = log_linear_recurrence(log_a, log_b, h)
        y = ops.cast(memory, self.compute_dtype)
        return (y, memory[:, -1]) if return_state else y

    def compute_output_shape(self, x_shape):
        """`[B, T, units]`."""
        return (*x_shape[:-1], self.units)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }


@keras.saving.register_keras_serializable(package="keras_seq")
class MinGRU(Minimal):
    """A GRU without the arrows from state to gates: all positions at once in training, one at a time in generation.

    ```python
    layer = MinGRU(8)
    y = layer(x)  # x [B, T, D] -> y [B, T, 8], from the zero state
    y, h = layer(more, state=layer.initial_state(B), return_state=True)
    y, h = layer.step(x[:, 0], h)  # one position: y [B, 8]
    ```

    Args:
        units: width of the output, which is the state h `[B, units]`; both are never negative.
        kernel_initializer: of the matrix `[D, 2 units]`: update gate, candidate.
        bias_initializer: of the bias.

    Masking: `mask [B, T]`; a masked position copies the state, so its output repeats the one before it.
    Precision: the matmul in the layer's compute dtype, gates and h in float32 at least.

    Raises:
        ValueError: for an argument out of its range, or an input that is not `[B, T, D]`.
    """

    def weights_of(self, update):
        """The logarithms of the weights of h and of the candidate."""
        return min_gru_weights(update)


@keras.saving.register_keras_serializable(package="keras_seq")
class MinLSTM(Minimal):
    """An LSTM without the arrows from state to gates: all positions at once in training, one at a time in generation.

    ```python
    layer = MinLSTM(8)
    y = layer(x)  # x [B, T, D] -> y [B, T, 8], from the zero state
    y, h = layer(more, state=layer.initial_state(B), return_state=True)
    y, h = layer.step(x[:, 0], h)  # one position: y [B, 8]
    ```

    Arguments, state, masking, precision and errors as for `MinGRU`; the matrix is `[D, 3 units]`: forget gate, input
    gate, candidate.
    """

    gates = 3

    def weights_of(self, forget_gate, input_gate):
        """The logarithms of the weights of h and of the candidate."""
        return min_lstm_weights(forget_gate, input_gate)
