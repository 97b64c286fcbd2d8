"""Call interface of recurrent layers, as in Keras: the last output, or every output with `return_sequences=True`.

    y [B, units] = layer(x)                                 the output at the last non-padding position
    y, h, c      = layer(x)                                 with return_state=True in the constructor, as in Keras
    y, state     = layer(x, return_state=True)              in the call: the state as one structure

`initial_state=`, Keras's name, means the same as `state=`; of several tensors both take a tuple or a list. As in Keras,
`initial_state=` also takes a list of one.
"""

import types

from keras import ops, tree

from keras_seq import checks
from keras_seq.layers.document_borders import finite_inputs, with_nan
from keras_seq.layers.explicit_state import prepare_inputs
from keras_seq.layers.keras_cell import KerasCell
from keras_seq.layers.layer import Layer
from keras_seq.layers.state_checks import shapes
from keras_seq.ops.tensor_checks import where_valid


class RNNInterface(Layer):
    """Base class of recurrent layers.

    A subclass defines `get_initial_state(batch_size)`, `units`, the names `state_parts` of the tensors of its state,
    and `sequence(x, state, mask, training, projected_inputs, reset_mask) -> (y [B, T, units], state)`. The dict
    `unsupported_arguments` maps each Keras argument that it does not support to a remedy for the error message. Keras's
    `implementation` is ignored, and `stateful` must be False.
    """

    stateful, states = False, None  # read by Keras's wrappers
    state_parts = ("h",)
    unsupported_arguments = types.MappingProxyType({})

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
        for name in kwargs.keys() & self.unsupported_arguments.keys():
            raise ValueError(f"{class_name} does not support {name}=: {self.unsupported_arguments[name]}.")
        super().__init__(**kwargs)
        self.supports_masking = True
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
        x, reset_mask = checks.masked("reset_mask", x, reset_mask)
        if projected_inputs is None:
            x, state, is_nan = finite_inputs(x, state, reset_mask)
        else:  # x is not used
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
