"""The base classes of recurrent layers: their calls as in Keras, and what SimpleRNN, GRU and LSTM share.

    z_t = x_t W + b                          input projection, for all time steps in one matmul
    state_t = cell(z_t, state_{t-1})         y_t is the state, or its first tensor

Weights are saved under the layer's cell, where Keras's files have them: .../lstm/cell/vars/0, 1, 2.
"""

import types

import keras
from keras import ops, tree

from keras_seq import checks
from keras_seq.layers.base.layer import Layer, MatrixAttribute
from keras_seq.layers.base.state import finite_inputs, prepare_inputs, shapes, with_nan
from keras_seq.ops import dispatch, tensor_checks
from keras_seq.ops.dispatch import exportable
from keras_seq.ops.fused_rnn import fused_rnn
from keras_seq.ops.tensor_checks import where_valid


@keras.saving.register_keras_serializable(package="keras_seq")
class KerasCell(keras.layers.Layer):
    """Write and read the weights of a recurrent layer under the path that Keras's layer uses."""

    def __init__(self, layer):
        super().__init__(name="cell")  # a fixed name makes files of the same weights equal
        # the methods, not the layer, which Keras would track as a sublayer of its own cell
        self._write, self._receive = layer.save_cell_variables, layer.load_cell_variables

    def save_own_variables(self, store):
        """Write the layer's variables into a store of Keras's weights file."""
        self._write(store)

    def load_own_variables(self, store):
        """Read the layer's variables from a store of Keras's weights file."""
        self._receive(store)


# Call interface, as in Keras: the last output, or every output with `return_sequences=True`.
#
#     y [B, units] = layer(x)                                 the output at the last non-padding position
#     y, h, c      = layer(x)                                 with return_state=True in the constructor, as in Keras
#     y, state     = layer(x, return_state=True)              in the call: the state as one structure
#
# `initial_state=`, Keras's name, means the same as `state=`; of several tensors both take a tuple or a list.
# As in Keras, `initial_state=` also takes a list of one.


class RNNInterface(Layer):
    """Base class of recurrent layers.

    A subclass defines `units`, a `kernel` and a `bias`, the names `state_parts` of the tensors of its state, if that is
    not h, with `get_initial_state(batch_size)`, and
    `sequence(x, state, mask, training, projected_inputs, reset_mask) -> (y [B, T, units], state)`.
    Keras's `implementation` is ignored, and `stateful` must be False.
    """

    stateful, states = False, None  # read by Keras's wrappers
    state_parts = ("h",)

    def __init__(
        self,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        unroll: bool = False,
        zero_output_for_mask: bool = False,
        **kwargs,
    ):
        class_name = type(self).__name__
        kwargs.pop("implementation", None)  # a performance hint of Keras
        if kwargs.pop("stateful", False):
            raise ValueError(
                f"{class_name} does not support stateful=True; use Stateful({class_name}(...), batch_size=...), which "
                "carries the state from batch to batch in training."
            )
        super().__init__(**kwargs)
        self.autocast = False  # autocast would also cast the state, which is wider than the compute dtype
        self.return_sequences = checks.boolean("return_sequences", return_sequences)
        self.return_state = checks.boolean("return_state", return_state)
        self.go_backwards = checks.boolean("go_backwards", go_backwards)
        self.unroll = checks.boolean("unroll", unroll)
        self.zero_output_for_mask = checks.boolean("zero_output_for_mask", zero_output_for_mask)

    def call(
        self,
        inputs,
        state=None,
        mask=None,
        inputs_mask=None,
        training: bool | None = None,
        return_state: bool | None = None,
        initial_state=None,
        projected_inputs=None,
        reset_mask=None,
    ):
        """Apply the layer to all time steps.

        `projected_inputs` is an optional precomputed `project_inputs(inputs)`, `[B, T, gates units]`, for callers that
        can compute it more cheaply.
        """
        state = self._structured(state, initial_state)
        x, state, mask = prepare_inputs(self, inputs, state, inputs_mask if mask is None else mask)
        x, reset_mask = tensor_checks.masked("reset_mask", x, reset_mask)
        if projected_inputs is None:
            x, state, is_nan = finite_inputs(x, state, reset_mask)
        else:  # x has no further use: they are given on TensorFlow's CPU, where no `fused_rnn` reads it
            projected_inputs = where_valid(mask, projected_inputs)
            projected_inputs, state, is_nan = finite_inputs(projected_inputs, state, reset_mask)
        if self.go_backwards and reset_mask is not None:
            raise ValueError(f"{self.name} has go_backwards=True; expected False with a reset_mask, which is forwards.")
        if self.go_backwards:
            x, mask, projected_inputs = (
                None if v is None else ops.flip(v, axis=1) for v in (x, mask, projected_inputs)
            )
        y, state = self.sequence(
            x, state, mask, training, projected_inputs, **({} if reset_mask is None else {"reset_mask": reset_mask})
        )
        y, state = with_nan(is_nan, y, state)
        if not self.return_sequences:
            y = tree.flatten(state)[0]  # masked positions copy it, so it is the last non-padding output
        if mask is not None and self.zero_output_for_mask:
            y = ops.where(ops.expand_dims(mask if self.return_sequences else mask[:, -1], -1), y, ops.zeros_like(y))
        y = ops.cast(y, self.compute_dtype)
        if return_state is None:
            return (y, *tree.flatten(state)) if self.return_state else y
        return (y, state) if return_state else y

    def _structured(self, state, initial_state):
        """Return `state` or `initial_state` with the structure of `get_initial_state(batch_size)`, or None."""
        if initial_state is not None:
            if state is not None:
                raise ValueError(
                    f"{self.name} got state= and initial_state=, which mean the same; expected only one of them."
                )
            state = initial_state
        if state is None:
            return None
        names = self.state_parts
        if len(names) == 1 and initial_state is None:
            tensors = [state]
        else:  # Keras's layers take a list of one tensor too
            tensors = state if isinstance(state, list | tuple) else [state]
        if len(tensors) != len(names) or not all(hasattr(tensor, "shape") for tensor in tensors):
            raise ValueError(f"{self.name}: state has the shapes {shapes(state)}; expected {', '.join(names)}.")
        return tuple(tensors) if len(names) > 1 else tensors[0]

    def step(self, x, state):
        """Apply the layer to one time step `[B, D]`; its cost does not depend on the number of time steps before."""
        y, state = self(ops.expand_dims(x, 1), state=state, return_state=True)
        return y[:, 0] if self.return_sequences else y, state

    def get_initial_state(self, batch_size):
        """Return the zero state h `[B, units]`."""
        return ops.zeros((batch_size, self.units), self.state_dtype)

    def project_inputs(self, x):
        """Compute the input part `[B, T, gates units]` of the pre-activations, each time step from its own input."""
        return self._add_bias(ops.matmul(x, self._cast(self.kernel)), self.bias)

    def _add_bias(self, z, bias):
        return z if bias is None else z + self._cast(bias)

    def _cast(self, weight):
        return ops.cast(weight, self.compute_dtype)

    def compute_mask(self, inputs, mask=None):
        """Return the mask in the order of the outputs, or None if only the last output is returned."""
        if mask is None or not self.return_sequences:
            return None
        return ops.flip(mask, axis=1) if self.go_backwards else mask

    def compute_output_shape(self, inputs_shape, initial_state_shape=None) -> tuple:
        """Return `[B, units]` or `[B, T, units]`; with `return_state=True` also one per tensor of the state."""
        last = (inputs_shape[0], self.units)
        y = (*inputs_shape[:-1], self.units) if self.return_sequences else last
        return (y, *(last for _ in self.state_parts)) if self.return_state else y

    @property
    def cell(self):
        """Return the `KerasCell` under whose path Keras's files hold the weights."""
        if not hasattr(self, "_cell_namespace"):  # in a namespace, so that Keras does not track it as a sublayer
            self._cell_namespace = types.SimpleNamespace(cell=KerasCell(self))
        return self._cell_namespace.cell

    @property
    def state_size(self):
        """Raise a `TypeError`, because `keras.layers.RNN(layer)` reads this attribute of a cell."""
        class_name = type(self).__name__
        raise TypeError(
            f"{class_name} is not a cell for keras.layers.RNN; use {class_name}(...) instead of RNN({class_name}(...)) "
            "and a stack of layers with return_sequences=True instead of a list of cells."
        )

    def save_own_variables(self, store):
        """Write nothing, because the weights are saved under `cell`, as in Keras's files."""

    def save_cell_variables(self, store):
        """Write the weights to the path of the cell."""
        super().save_own_variables(store)

    def load_own_variables(self, store):
        """Read nothing, because the weights are saved under `cell`."""

    def load_cell_variables(self, store):
        """Read the weights from the path of the cell."""
        if self.weights and not store.keys():
            raise ValueError(f"The file has no weights of {self.name} under its cell.")
        super().load_own_variables(store)


# SimpleRNN, GRU and LSTM: one cell, applied to one time step after the other. Dropout is variational (Gal & Ghahramani,
# 2016): a row has the same dropout mask at every time step of a call.


class RecurrentBase(RNNInterface):
    """Base class of layers with a kernel `[D, gates units]`, a recurrent kernel `[units, gates units]` and a bias.

    A subclass sets `num_gates` and defines `scan(z, state, mask, recurrent_dropout_mask, reset_mask) -> (y, state)`,
    where z is `[B, T, gates units]`, the dropout mask `[B, units]`, or None, multiplies h before the recurrent matmul,
    and the state is set to zeros where the reset mask `[B, T]`, or None, is true. It may set `fused_kind`, the name of
    its formula in `fused_rnn`, which cuDNN and torch can run. The arguments are described in `LSTM`.
    """

    kernel, recurrent_kernel = MatrixAttribute(), MatrixAttribute()
    num_gates = 1

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
        activations = exportable(self.activation), exportable(self.recurrent_activation)
        return None if activations == (keras.activations.tanh, keras.activations.sigmoid) else activations

    def build(self, inputs_shape):
        """Create the weights for inputs of this shape."""
        width = self._read_width(inputs_shape)
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

    # What computes the time steps, the first that fits:
    #
    #     fused_rnn   LSTM, GRU   torch's own, on any device; cuDNN in float32 training on TensorFlow and JAX. For the
    #                             formula of Keras, T > 1, no mask, no reset mask, no dropout of the state
    #     lstm, gru   LSTM, GRU   a twin for tanh and sigmoid without a mask: on TensorFlow unrolled or by XLA loops, on
    #                             JAX (LSTM) a scan whose weights' gradient is one matmul
    #     recurrence  any cell    one time step after the other: unrolled if T is small, else a loop of the backend
    def sequence(self, x, state, mask, training: bool | None = None, projected_inputs=None, reset_mask=None):
        """Compute the outputs `[B, T, units]` at all time steps, with dropout in training, and the last state."""
        batch_size, recurrent_dropout_mask = ops.shape(x)[0], None
        if training and self.dropout:
            x = x * self._dropout_mask((batch_size, 1, x.shape[-1]), self.dropout)
        if training and self.recurrent_dropout:
            recurrent_dropout_mask = self._dropout_mask((batch_size, self.units), self.recurrent_dropout)
        masks = mask, recurrent_dropout_mask, reset_mask
        if self._has_fused_rnn and x.shape[1] != 1 and all(one is None for one in masks):
            args = self.fused_kind, x, state, self.kernel, self.recurrent_kernel, self.bias, training
            if fused_rnn.twin(*args):  # it rearranges the weights, which is longer than a single time step
                return fused_rnn(*args)
        return self.scan(
            self.project_inputs(x) if projected_inputs is None else projected_inputs,
            state,
            mask,
            recurrent_dropout_mask,
            reset_mask,
        )

    def _keep_from_xla(self):
        """Tell Keras, before a model is compiled, that XLA cannot call cuDNN."""
        if keras.backend.backend() == "tensorflow" and self._has_fused_rnn and self.compute_dtype == "float32":
            self.supports_jit = dispatch.on_cpu()

    @property
    def _has_fused_rnn(self):
        """Return whether cuDNN and torch have the formula of the class itself: a subclass may compute another one."""
        if "fused_kind" not in vars(type(self)) or self.use_cudnn is False or self.matrix_mode is not None:
            return False
        return self.activations is None and self.use_bias and getattr(self, "reset_after", True)  # as cuDNN's GRU

    def _dropout_mask(self, shape, rate):
        return keras.random.dropout(ops.ones(shape, self.compute_dtype), rate, seed=self.seed_generator)
