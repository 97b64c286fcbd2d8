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

from keras_seq import checks
from keras_seq.layers.linear_recurrence import LOG_ZERO, log_linear_recurrence
from keras_seq.layers.rnn_interface import RNNInterface


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


NO_DROPOUT = "put keras.layers.SpatialDropout1D before it, which drops the same features at every position"
NO_MATRIX = "its gates do not look at the state, so it has no recurrent matrix"
FIXED = "its gates are logistic and its candidate is positive, so that they have logarithms"
REFUSED = {
    **dict.fromkeys(("activation", "recurrent_activation"), FIXED),
    **{f"recurrent_{rule}": NO_MATRIX for rule in ("initializer", "regularizer", "constraint", "dropout")},
    "dropout": NO_DROPOUT,
    "seed": NO_DROPOUT,
    "unit_forget_bias": "give bias_initializer=",
    "reset_after": NO_MATRIX,
    "use_cudnn": "cuDNN has no routine for it; leave it out",
}


class MinimalRNN(RNNInterface):
    """The base of both: a kernel `[D, gates units]` and a bias `[gates units]`, the candidate's block last."""

    gates = 2
    refused = REFUSED

    def __init__(
        self,
        units,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.units = checks.positive_integer("units", units)
        self.use_bias = checks.boolean("use_bias", use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)

    def build(self, input_shape):
        width = checks.sequence_shape("x", input_shape)
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: width})
        columns = self.gates * self.units
        self.kernel = self._weight("kernel", (width, columns))
        self.bias = self._weight("bias", (columns,)) if self.use_bias else None
        self.kernel.muon_blocks = self.gates

    def _weight(self, name, shape):
        rules = {rule: getattr(self, f"{name}_{rule}") for rule in ("initializer", "regularizer", "constraint")}
        return self.add_weight(shape=shape, name=name, **rules)

    def get_initial_state(self, batch_size):
        """The zero state h `[B, units]`."""
        return ops.zeros((batch_size, self.units), self.state_dtype)

    def sequence(self, x, h, mask, training=None, projected=None):
        """All positions: `(y [B, T, units], h)`."""
        z = self.project(x) if projected is None else projected
        *gates, candidate = ops.split(ops.cast(z, self.state_dtype), self.gates, axis=-1)
        log_a, log_new = self.log_mixing_weights(*gates)
        log_b = log_new + log_candidate(candidate)
        if mask is not None:
            real = ops.expand_dims(mask, -1)
            log_a, log_b = ops.where(real, log_a, 0.0), ops.where(real, log_b, LOG_ZERO)
        memory = log_linear_recurrence(log_a, log_b, h)
        return memory, memory[:, -1]

    def project(self, x):
        """The pre-activations of all positions, `[B, T, gates units]`."""
        z = ops.matmul(x, ops.cast(self.kernel, self.compute_dtype))
        return z if self.bias is None else z + ops.cast(self.bias, self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "use_bias": self.use_bias,
            **{
                f"{of}_{kind}": getattr(keras, f"{kind}s").serialize(getattr(self, f"{of}_{kind}"))
                for of in ("kernel", "bias")
                for kind in ("initializer", "regularizer", "constraint")
            },
        }


@keras.saving.register_keras_serializable(package="keras_seq")
class MinGRU(MinimalRNN):
    """A GRU without the arrows from state to gates: all positions at once in training, one at a time in generation.

    ```python
    layer = MinGRU(8)
    y = layer(x)  # x [B, T, D] -> y [B, 8], the last output, from the zero state
    y = MinGRU(8, return_sequences=True)(x)  # y [B, T, 8], every output
    y, h = layer(more, state=layer.initial_state(B), return_state=True)
    y, h = layer.step(x[:, 0], h)  # one position: y [B, 8]
    ```

    Args:
        units: width of the output, which is the state h `[B, units]`; from the zero state both are never negative.
        use_bias: whether to add a bias.
        kernel_initializer, kernel_regularizer, kernel_constraint: of the matrix `[D, 2 units]`: update gate, candidate.
        bias_initializer, bias_regularizer, bias_constraint: of the bias.
        return_sequences, return_state, go_backwards, zero_output_for_mask, unroll: as for `LSTM`.

    Masking: `mask [B, T]`; a masked position copies the state, so its output repeats the one before it.
    Precision: the matmul in the layer's compute dtype, gates and h in float32 at least.

    Raises:
        ValueError: for an argument out of its range, or an input that is not `[B, T, D]`.
    """

    def log_mixing_weights(self, update):
        """The logarithms of the weights of h and of the candidate."""
        return min_gru_weights(update)


@keras.saving.register_keras_serializable(package="keras_seq")
class MinLSTM(MinimalRNN):
    """An LSTM without the arrows from state to gates: all positions at once in training, one at a time in generation.

    ```python
    layer = MinLSTM(8)
    y = layer(x)  # x [B, T, D] -> y [B, 8], the last output, from the zero state
    y, h = layer(more, state=layer.initial_state(B), return_state=True)
    y, h = layer.step(x[:, 0], h)  # one position: y [B, 8]
    ```

    Arguments, state, masking, precision and errors as for `MinGRU`; the matrix is `[D, 3 units]`: forget gate, input
    gate, candidate.
    """

    gates = 3

    def log_mixing_weights(self, forget_gate, input_gate):
        """The logarithms of the weights of h and of the candidate."""
        return min_lstm_weights(forget_gate, input_gate)
