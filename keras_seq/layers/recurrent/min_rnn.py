"""Recurrent layers whose gates do not depend on the state (Feng et al., 2024, "Were RNNs All We Needed?").

    minGRU     z = sigmoid(x W_z + b_z)                          update gate
               h' = (1 - z) h + z g(x W_g + b_g)
    minLSTM    f = sigmoid(x W_f + b_f),  i = sigmoid(x W_i + b_i)      forget and input gate
               h' = f / (f + i) h + i / (f + i) g(x W_g + b_g)

    g(v) = v + 0.5 where v >= 0, else sigmoid(v)                 candidate, positive so that it has a logarithm

h' is a mean of h and the candidate with weights that do not depend on h: a linear recurrence, computed for all time
steps at once, in logarithms. The gates are logistic functions, whose logarithms are softplus functions.
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.base.layer import MatrixAttribute
from keras_seq.layers.recurrent.base import RNNInterface
from keras_seq.ops.linear_recurrence import LOG_ZERO, log_linear_recurrence
from keras_seq.ops.tensor_checks import where_valid

MAX_PREACTIVATION = 1e34  # what is infinite would be NaN times the 0 at the border of documents


def log_candidate(v):
    """Compute log g(v) for pre-activations v of any shape."""
    return ops.where(v >= 0, ops.log(ops.where(v >= 0, v, 0.0) + 0.5), -ops.softplus(-v))


DROPOUT_REMEDY = "add keras.layers.SpatialDropout1D before it, which drops the same features at every position"
NO_RECURRENT_MATRIX = "its gates do not depend on the state, so it has no recurrent matrix"
FIXED_ACTIVATIONS = (
    "its gates are logistic functions and its candidate is positive, because it is computed in logarithms"
)
UNSUPPORTED_ARGUMENTS = {
    **dict.fromkeys(("activation", "recurrent_activation"), FIXED_ACTIVATIONS),
    **{f"recurrent_{rule}": NO_RECURRENT_MATRIX for rule in ("initializer", "regularizer", "constraint", "dropout")},
    "dropout": DROPOUT_REMEDY,
    "seed": DROPOUT_REMEDY,
    "unit_forget_bias": "use bias_initializer=",
    "reset_after": NO_RECURRENT_MATRIX,
    "use_cudnn": "cuDNN does not implement this layer; omit the argument",
}


class MinimalRNN(RNNInterface):
    """Base class of MinGRU and MinLSTM: a kernel `[D, gates units]` and a bias `[gates units]`, the candidate last."""

    kernel = MatrixAttribute()
    num_gates = 2

    def __init__(
        self,
        units: int,
        use_bias: bool = True,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        **kwargs,
    ):
        for name in kwargs.keys() & UNSUPPORTED_ARGUMENTS.keys():
            raise ValueError(f"{type(self).__name__} does not support {name}=: {UNSUPPORTED_ARGUMENTS[name]}.")
        super().__init__(**kwargs)
        self.units = checks.positive_integer("units", units)
        self.use_bias = checks.boolean("use_bias", use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)

    def build(self, inputs_shape):
        """Create the weights for inputs of this shape."""
        width = self._read_width(inputs_shape)
        columns = self.num_gates * self.units
        self.kernel = self._weight("kernel", (width, columns))
        self.bias = self._weight("bias", (columns,)) if self.use_bias else None

    def _weight(self, name, shape):
        rules = {rule: getattr(self, f"{name}_{rule}") for rule in ("initializer", "regularizer", "constraint")}
        return self.add_weight(shape=shape, name=name, **rules)

    def sequence(self, x, h, mask, training: bool | None = None, projected_inputs=None, reset_mask=None):
        """Compute the outputs `[B, T, units]` at all time steps, and the last state."""
        z = self.project_inputs(x) if projected_inputs is None else projected_inputs
        z = ops.clip(ops.cast(z, self.state_dtype), -MAX_PREACTIVATION, MAX_PREACTIVATION)
        *gates, candidate = ops.split(z, self.num_gates, axis=-1)
        log_a, log_new = self.log_mixing_weights(*gates)
        log_b = log_new + log_candidate(candidate)
        log_a, log_b = where_valid(mask, log_a), where_valid(mask, log_b, LOG_ZERO)
        if reset_mask is not None:
            log_a = ops.where(ops.expand_dims(reset_mask, -1), LOG_ZERO, log_a)
        h = log_linear_recurrence(log_a, log_b, h)
        return h, h[:, -1]


@keras.saving.register_keras_serializable(package="keras_seq")
class MinGRU(MinimalRNN):
    """A GRU whose gates depend on the input only: computed in parallel over time in training, stepwise in generation.

    ```python
    y, h = MinGRU(8)(x, return_state=True)  # x [B, T, D] -> y [B, 8], the last output; more calls: see `LSTM`
    y = MinGRU(8, return_sequences=True)(x)  # y [B, T, 8], every output
    ```

    Args:
        units: Width of the output, which is the state h `[B, units]`. From the zero state both are non-negative.
        use_bias: Whether to add a bias.
        kernel_initializer, kernel_regularizer, kernel_constraint: Of the matrix `[D, 2 units]`: update gate, candidate.
        bias_initializer, bias_regularizer, bias_constraint: Of the bias.
        return_sequences, return_state, go_backwards, zero_output_for_mask, unroll: As for `LSTM`.

    Masking: `mask [B, T]`; a masked position copies the state, so its output repeats the previous one. `reset_mask
    [B, T]` is true where another document begins, from the zero state.
    Precision: the matmul in the layer's compute dtype, gates and h in float32 or wider.

    Raises:
        ValueError: If an argument is out of its range, or the inputs are not `[B, T, D]`.
    """

    def log_mixing_weights(self, z):
        """Compute the logarithms of the weights of h and of the candidate from the update gate's pre-activation."""
        return -ops.softplus(z), -ops.softplus(-z)


@keras.saving.register_keras_serializable(package="keras_seq")
class MinLSTM(MinimalRNN):
    """An LSTM whose gates depend on the input only: computed in parallel over time in training, stepwise in generation.

    ```python
    y, h = MinLSTM(8)(x, return_state=True)  # x [B, T, D] -> y [B, 8], the last output; more calls: see `LSTM`
    ```

    Arguments, masking, precision and errors are those of `MinGRU`. The columns of the matrix `[D, 3 units]` are forget
    gate, input gate and candidate.
    """

    num_gates = 3

    def log_mixing_weights(self, f, i):
        """Compute the logarithms of the weights of h and of the candidate from the pre-activations of the gates."""
        ratio = ops.softplus(-f) - ops.softplus(-i)  # log(sigmoid(i) / sigmoid(f))
        return -ops.softplus(ratio), -ops.softplus(-ratio)
