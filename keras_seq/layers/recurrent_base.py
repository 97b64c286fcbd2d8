"""What SimpleRNN, GRU and LSTM have in common: one cell, applied to one position after the other.

    z_t = x_t W + b                          the inputs' share, for all positions in one matmul
    state_t = cell(z_t, state_{t-1})         y_t is the state, or its first part

Dropout is that of Gal & Ghahramani (2016): what is dropped for a row is dropped at every position of the call.
"""

import keras
from keras import ops, tree

from keras_seq import checks, kernels
from keras_seq.layers.rnn_interface import RNNInterface


def recurrence(cell, z, state, mask=None):
    """All positions, one after the other.

    Args:
        cell: `(z_t [B, W], state) -> state`; a state is a tensor `[B, units]` or a tuple of them.
        z: `[B, T, W]`.
        state: the one before the first position.
        mask: `[B, T]` boolean. Where it is false the state is copied.

    Returns:
        `(y [B, T, units], state)`: the state, or its first part, at every position, and the last state.
    """
    return kernels.dispatch("recurrence", _recurrence, cell, z, state, mask)(cell, z, state, mask)


def _recurrence(cell, z, state, mask=None):
    width = z.shape[-1]

    def position(state, inputs):
        new = cell(inputs[:, :width], state)
        if mask is not None:
            new = tree.map_structure(lambda new, old: ops.where(inputs[:, width:] > 0, new, old), new, state)
        return new, new

    if mask is not None:  # the mask rides along as one more column: Keras scans two tensors only where T is known
        z = ops.concatenate([z, ops.expand_dims(ops.cast(mask, z.dtype), -1)], axis=-1)
    state, states = ops.scan(position, state, ops.swapaxes(z, 0, 1))
    return ops.swapaxes(tree.flatten(states)[0], 0, 1), state


class RecurrentBase(RNNInterface):
    """The base of layers with a kernel `[D, gates units]`, a recurrent kernel `[units, gates units]` and a bias.

    A subclass names its number of `gates` and says in `run(z, state, mask, kept)` what happens at the positions:
    `z [B, T, gates units]`; `kept [B, units]` multiplies h on its way into the recurrent kernel, or is None. It may
    name `in_keras`, Keras's layer of the same weights for which cuDNN has a routine.
    """

    gates = 1
    keras_layer_class = None

    def __init__(
        self,
        units,
        activation="tanh",
        use_bias=True,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        bias_initializer="zeros",
        kernel_regularizer=None,
        recurrent_regularizer=None,
        bias_regularizer=None,
        *,  # where Keras's order goes on with another
        kernel_constraint=None,
        recurrent_constraint=None,
        bias_constraint=None,
        dropout=0.0,
        recurrent_dropout=0.0,
        seed=None,
        use_cudnn="auto",
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
    def bias_shape(self):
        """One number for each column of the kernels."""
        return (self.gates * self.units,)

    def build(self, input_shape):
        width = checks.sequence_shape("x", input_shape)
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: width})
        columns = self.gates * self.units
        self.kernel = self._weight("kernel", (width, columns), self.kernel_initializer)
        self.recurrent_kernel = self._weight("recurrent_kernel", (self.units, columns), self.recurrent_initializer)
        self.bias = self._weight("bias", self.bias_shape, self.bias_initializer) if self.use_bias else None
        # The gates' matrices stand side by side: an optimizer of matrices (Muon) is to treat each on its own.
        self.kernel.muon_blocks = self.recurrent_kernel.muon_blocks = self.gates
        if self.use_bias:
            self.bias.muon_blocks = 0  # no matrix, also where it has two rows
        if on_cudnn := kernels.dispatch("cudnn", None, self):
            self._cudnn_layer = on_cudnn(self)

    def _weight(self, name, shape, initializer):
        of = name.removesuffix("_kernel")  # Keras's arguments say recurrent_ for recurrent_kernel
        rules = {rule: getattr(self, f"{of}_{rule}") for rule in ("regularizer", "constraint")}
        return self.add_weight(shape=shape, initializer=initializer, name=name, **rules)

    def sequence(self, x, state, mask, training=None, projected_inputs=None):
        """All positions: `(y [B, T, units], state)`."""
        batch_size, recurrent_dropout_mask = ops.shape(x)[0], None
        if training and self.dropout:
            x = x * self._dropout_mask((batch_size, 1, x.shape[-1]), self.dropout)
        if training and self.recurrent_dropout:
            recurrent_dropout_mask = self._dropout_mask((batch_size, self.units), self.recurrent_dropout)
        if training and mask is None and kernels.dispatch("cudnn", None, self):
            return self._cudnn_layer(x, state)
        return self.scan(
            self.project_inputs(x) if projected_inputs is None else projected_inputs,
            state,
            mask,
            recurrent_dropout_mask,
        )

    def project_inputs(self, x):
        """The inputs' share of all positions' pre-activations; each position's comes from itself alone."""
        return self._biased(ops.matmul(x, self._cast(self.kernel)), self.bias)

    def _biased(self, z, bias):
        return z if bias is None else z + self._cast(bias)

    def _cast(self, weight):
        return ops.cast(weight, self.compute_dtype)

    def _dropout_mask(self, shape, rate):
        return keras.random.dropout(ops.ones(shape, self.compute_dtype), rate, seed=self.seed_generator)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "activation": keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
            **{
                f"{of}_{kind}": getattr(keras, f"{kind}s").serialize(getattr(self, f"{of}_{kind}"))
                for of in ("kernel", "recurrent", "bias")
                for kind in ("initializer", "regularizer", "constraint")
            },
            "dropout": self.dropout,
            "recurrent_dropout": self.recurrent_dropout,
            "seed": self.seed,
            "use_cudnn": self.use_cudnn,
        }


class Gated(RecurrentBase):
    """The base of LSTM and GRU: a second activation, that of the gates."""

    def __init__(self, units, activation="tanh", recurrent_activation="sigmoid", use_bias=True, **kwargs):
        super().__init__(units, activation, use_bias, **kwargs)
        self.recurrent_activation = keras.activations.get(recurrent_activation)

    @property
    def activations(self):
        """`(activation, recurrent_activation)`, or None where they are the default ones, which have kernels."""
        both = self.activation, self.recurrent_activation
        return None if both == (keras.activations.tanh, keras.activations.sigmoid) else both

    @property
    def cudnn_can(self):
        """Whether cuDNN's routine has this formula, and may be used."""
        return self.activations is None and self.use_bias and self.use_cudnn is not False

    def get_config(self):
        return {
            **super().get_config(),
            "recurrent_activation": keras.activations.serialize(self.recurrent_activation),
        }
