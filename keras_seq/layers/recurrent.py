"""What SimpleRNN, GRU and LSTM have in common: one cell, applied to one position after the other.

    z_t = x_t W + b                          the inputs' share, for all positions in one matmul
    state_t = cell(z_t, state_{t-1})         y_t is the state, or its first part

Dropout is that of Gal & Ghahramani (2016): what is dropped for a row is dropped at every position of the call.
"""

import keras
from keras import ops, tree

from keras_seq import kernels
from keras_seq.layers import arguments
from keras_seq.layers.stateful import Stateful


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
    return kernels.twin("recurrence", _recurrence, cell, z, state, mask)(cell, z, state, mask)


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


class Recurrent(Stateful):
    """The base of layers with a kernel `[D, gates units]`, a recurrent kernel `[units, gates units]` and a bias.

    A subclass names its number of `gates` and says in `run(z, state, mask, kept)` what happens at the positions:
    `z [B, T, gates units]`; `kept [B, units]` multiplies h on its way into the recurrent kernel, or is None. It may
    name `in_keras`, Keras's layer of the same weights for which cuDNN has a routine.
    """

    gates = 1

    def __init__(
        self,
        units,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        bias_initializer="zeros",
        dropout=0.0,
        recurrent_dropout=0.0,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.units = arguments.positive_integer("units", units)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.dropout = arguments.fraction("dropout", dropout)
        self.recurrent_dropout = arguments.fraction("recurrent_dropout", recurrent_dropout)
        self.seed = seed
        if self.dropout or self.recurrent_dropout:
            self.seed_generator = keras.random.SeedGenerator(seed)

    @property
    def bias_shape(self):
        """One number for each column of the kernels."""
        return (self.gates * self.units,)

    def build(self, input_shape):
        width = arguments.sequence_shape("x", input_shape)
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: width})
        columns = self.gates * self.units
        self.kernel = self.add_weight(shape=(width, columns), initializer=self.kernel_initializer, name="kernel")
        self.recurrent_kernel = self.add_weight(
            shape=(self.units, columns), initializer=self.recurrent_initializer, name="recurrent_kernel"
        )
        self.bias = self.add_weight(shape=self.bias_shape, initializer=self.bias_initializer, name="bias")
        # The gates' matrices stand side by side: an optimizer of matrices (Muon) is to treat each on its own.
        self.kernel.matrix_blocks = self.recurrent_kernel.matrix_blocks = self.gates
        self.bias.matrix_blocks = 0  # no matrix, also where it has two rows
        if on_cudnn := kernels.twin("cudnn", None, self):
            self._on_cudnn = on_cudnn(self)

    def call(self, x, state=None, mask=None, x_mask=None, training=None, return_state=False, projected=None):
        """The layer over all positions; `projected` is what `project(x)` would give, of who has it for less."""
        x, state, mask = self.enter(x, state, x_mask if mask is None else mask)
        batch_size, kept = ops.shape(x)[0], None
        if training and self.dropout:
            x = x * self._kept((batch_size, 1, x.shape[-1]), self.dropout)
        if training and self.recurrent_dropout:
            kept = self._kept((batch_size, self.units), self.recurrent_dropout)
        if training and mask is None and kernels.twin("cudnn", None, self):
            y, state = self._on_cudnn(x, state)
        else:
            y, state = self.run(self.project(x) if projected is None else projected, state, mask, kept)
        y = ops.cast(y, self.compute_dtype)
        return (y, state) if return_state else y

    def project(self, x):
        """The inputs' share of all positions' pre-activations; each position's comes from itself alone."""
        return ops.matmul(x, self._cast(self.kernel)) + self._cast(self.bias)

    def _cast(self, weight):
        return ops.cast(weight, self.compute_dtype)

    def _kept(self, shape, rate):
        return keras.random.dropout(ops.ones(shape, self.compute_dtype), rate, seed=self.seed_generator)

    def compute_output_shape(self, x_shape):
        """`[B, T, units]`."""
        return (*x_shape[:-1], self.units)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "recurrent_initializer": keras.initializers.serialize(self.recurrent_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "dropout": self.dropout,
            "recurrent_dropout": self.recurrent_dropout,
            "seed": self.seed,
        }
