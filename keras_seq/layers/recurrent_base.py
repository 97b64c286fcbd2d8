"""Base class of SimpleRNN, GRU and LSTM: one cell, applied to one time step after the other.

    z_t = x_t W + b                          input projection, for all time steps in one matmul
    state_t = cell(z_t, state_{t-1})         y_t is the state, or its first tensor

Dropout is variational (Gal & Ghahramani, 2016): a row has the same dropout mask at every time step of a call.
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.matrix import MatrixAttribute
from keras_seq.layers.rnn_interface import RNNInterface
from keras_seq.ops.recurrence import fused_rnn


class RecurrentBase(RNNInterface):
    """Base class of layers with a kernel `[D, gates units]`, a recurrent kernel `[units, gates units]` and a bias.

    A subclass sets `num_gates` and defines `scan(z, state, mask, recurrent_dropout_mask, reset_mask) -> (y, state)`,
    where z is `[B, T, gates units]`, the dropout mask `[B, units]`, or None, multiplies h before the recurrent matmul,
    and the state is set to zeros where the reset mask `[B, T]`, or None, is true. It may define `keras_layer_class`,
    the Keras layer with the same weights that cuDNN and torch can run. The arguments are described in `LSTM`.
    """

    kernel, recurrent_kernel = MatrixAttribute(), MatrixAttribute()
    num_gates = 1
    keras_layer_class = None

    def __init__(
        self,
        units: int,
        activation="tanh",
        use_bias: bool = True,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        bias_initializer="zeros",
        kernel_regularizer=None,
        recurrent_regularizer=None,
        bias_regularizer=None,
        *,  # from here on Keras has another order
        kernel_constraint=None,
        recurrent_constraint=None,
        bias_constraint=None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: int | None = None,
        use_cudnn: bool | str = "auto",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.units = checks.positive_integer("units", units)
        self.activation = keras.activations.get(activation)
        self.use_bias = checks.boolean("use_bias", use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.recurrent_regularizer = keras.regularizers.get(recurrent_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.recurrent_constraint = keras.constraints.get(recurrent_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.dropout = checks.fraction("dropout", dropout)
        self.recurrent_dropout = checks.fraction("recurrent_dropout", recurrent_dropout)
        self.seed = seed
        self.use_cudnn = checks.one_of("use_cudnn", use_cudnn, ("auto", True, False))
        if self.dropout or self.recurrent_dropout:
            self.seed_generator = keras.random.SeedGenerator(seed)

    @property
    def bias_shape(self) -> tuple[int, ...]:
        """Return the shape of the bias: one number for each column of the kernels."""
        return (self.num_gates * self.units,)

    @property
    def activations(self):
        """Return `(activation, recurrent_activation)`, or None for tanh and sigmoid, which have optimized kernels."""
        activations = self.activation, self.recurrent_activation
        return None if activations == (keras.activations.tanh, keras.activations.sigmoid) else activations

    @property
    def cudnn_supported(self) -> bool:
        """Return whether cuDNN implements the formula of an LSTM or a GRU and its use is allowed."""
        return self.activations is None and self.use_bias and self.use_cudnn is not False

    def build(self, input_shape):
        """Create the weights for inputs of this shape."""
        width = checks.sequence_shape("inputs", input_shape)
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: width})
        columns = self.num_gates * self.units
        self.kernel = self._weight("kernel", (width, columns), self.kernel_initializer)
        self.recurrent_kernel = self._weight("recurrent_kernel", (self.units, columns), self.recurrent_initializer)
        self.bias = self._weight("bias", self.bias_shape, self._bias_start()) if self.use_bias else None

    def _bias_start(self):
        """Return the initializer of the whole bias."""
        return self.bias_initializer

    def _weight(self, name, shape, initializer):
        prefix = name.removesuffix("_kernel")  # Keras's arguments are called recurrent_* for the recurrent_kernel
        rules = {rule: getattr(self, f"{prefix}_{rule}") for rule in ("regularizer", "constraint")}
        return self.add_weight(shape=shape, initializer=initializer, name=name, **rules)

    def sequence(self, x, state, mask, training: bool | None = None, projected_inputs=None, reset_mask=None):
        """Compute the outputs `[B, T, units]` at all time steps, with dropout in training, and the last state."""
        batch_size, recurrent_dropout_mask = ops.shape(x)[0], None
        if training and self.dropout:
            x = x * self._dropout_mask((batch_size, 1, x.shape[-1]), self.dropout)
        if training and self.recurrent_dropout:
            recurrent_dropout_mask = self._dropout_mask((batch_size, self.units), self.recurrent_dropout)
        masks = mask, recurrent_dropout_mask, reset_mask
        if self._has_fused_rnn and x.shape[1] != 1 and all(one is None for one in masks):
            kind = "lstm" if self.keras_layer_class is keras.layers.LSTM else "gru"
            args = kind, x, state, self.kernel, self.recurrent_kernel, self.bias, training
            if fused_rnn.twin(*args):  # it rearranges the weights, which is longer than a single time step
                if keras.backend.backend() == "tensorflow":
                    self.supports_jit = False  # XLA cannot call cuDNN
                return fused_rnn(*args)
        return self.scan(
            self.project_inputs(x) if projected_inputs is None else projected_inputs,
            state,
            mask,
            recurrent_dropout_mask,
            reset_mask,
        )

    @property
    def _has_fused_rnn(self):
        """Whether the class itself has a Keras layer of its formula: a subclass may compute something else."""
        is_plain = self.matrix_mode is None and not self.lora_enabled
        return is_plain and "keras_layer_class" in vars(type(self)) and self.keras_layer_class is not None

    def project_inputs(self, x):
        """Compute the input part `[B, T, gates units]` of the pre-activations, each time step from its own input."""
        return self._add_bias(ops.matmul(x, self._cast(self.kernel)), self.bias)

    def _add_bias(self, z, bias):
        return z if bias is None else z + self._cast(bias)

    def _cast(self, weight):
        return ops.cast(weight, self.compute_dtype)

    def _dropout_mask(self, shape, rate):
        return keras.random.dropout(ops.ones(shape, self.compute_dtype), rate, seed=self.seed_generator)
