"""What recurrent layers take and give, as in Keras: the last output, or with `return_sequences=True` every one.

    y [B, units] = layer(x)                                 the output at the last real position
    y, h, c      = layer(x)                                 with return_state=True in the constructor, as in Keras
    y, state     = layer(x, return_state=True)              in the call: the state as one thing, whatever it is made of

`initial_state=` is Keras's word for `state=`; either takes the state as a structure or as a flat list.
"""

import types

from keras import ops, tree

from keras_seq import checks
from keras_seq.layers.explicit_state import ExplicitState
from keras_seq.layers.keras_cell import KerasCell
from keras_seq.layers.state_checks import shapes


class RNNInterface(ExplicitState):
    """The base of recurrent layers.

    A subclass has `initial_state(batch_size)`, `units`, the names of its `state_parts` and
    `sequence(x, state, mask, training, projected) -> (y [B, T, units], state)`. What it has no use for stands in
    `refused`, an argument and the remedy each.
    """

    stateful, states = False, None  # Keras's wrappers ask
    state_parts = ("h",)
    refused = types.MappingProxyType({})
    before_keras = types.MappingProxyType({"return_sequences": True})  # what a config of 0.1.0 leaves unsaid

    def __init__(
        self,
        return_sequences=False,
        return_state=False,
        go_backwards=False,
        unroll=False,
        zero_output_for_mask=False,
        stateful=False,
        **kwargs,
    ):
        kind = type(self).__name__
        kwargs.pop("implementation", None)  # a hint of Keras's, which changes no number
        if stateful:
            raise ValueError(
                f"{kind} has no stateful=True, for no layer keeps a state; "
                f"wrap it: Carry({kind}(...), batch_size=...) carries it from batch to batch in training."
            )
        for name in kwargs.keys() & self.refused.keys():
            raise ValueError(f"{kind} has no {name}=: {self.refused[name]}.")
        super().__init__(**kwargs)
        self.return_sequences = checks.boolean("return_sequences", return_sequences)
        self.return_state = checks.boolean("return_state", return_state)
        self.go_backwards = checks.boolean("go_backwards", go_backwards)
        self.unroll = checks.boolean("unroll", unroll)
        self.zero_output_for_mask = checks.boolean("zero_output_for_mask", zero_output_for_mask)

    def call(
        self,
        x,
        state=None,
        mask=None,
        x_mask=None,
        training=None,
        return_state=None,
        initial_state=None,
        projected=None,
    ):
        """The layer over all positions; `projected` is what `project(x)` would give, where it was had for less."""
        x, state, mask = self.prepare_inputs(
            x, self._structured(state, initial_state), x_mask if mask is None else mask
        )
        if self.go_backwards:
            x, mask, projected = (None if v is None else ops.flip(v, axis=1) for v in (x, mask, projected))
        y, state = self.sequence(x, state, mask, training, projected)
        if not self.return_sequences:
            y = tree.flatten(state)[0]  # a masked position copies it, so it is that of the last real one
        if mask is not None and self.zero_output_for_mask:
            y = ops.where(ops.expand_dims(mask if self.return_sequences else mask[:, -1], -1), y, ops.zeros_like(y))
        y = ops.cast(y, self.compute_dtype)
        if return_state is None:
            return (y, *tree.flatten(state)) if self.return_state else y
        return (y, state) if return_state else y

    def _structured(self, state, initial_state):
        """The state of either argument as `initial_state(batch_size)` gives it."""
        if initial_state is not None:
            if state is not None:
                raise ValueError(
                    f"{self.name} got state= and initial_state=, which are the same; expected one of them."
                )
            state = initial_state
        if state is None:
            return None
        parts, names = tree.flatten(state), self.state_parts
        if len(parts) != len(names):
            raise ValueError(f"{self.name}: state has the shapes {shapes(state)}; expected {', '.join(names)}.")
        return tuple(parts) if len(names) > 1 else parts[0]

    def step(self, x, state):
        """One position: `x [B, D]`, `state` -> `(y [B, units], state)`, at the same cost wherever it stands."""
        y, state = self(ops.expand_dims(x, 1), state=state, return_state=True)
        return y[:, 0] if self.return_sequences else y, state

    def compute_mask(self, inputs, mask=None):
        """The mask goes on to the layers above with the sequence, in its order; one output a row has none."""
        if mask is None or not self.return_sequences:
            return None
        return ops.flip(mask, axis=1) if self.go_backwards else mask

    def compute_output_shape(self, x_shape, initial_state_shape=None):
        """`[B, units]` or `[B, T, units]`; with `return_state=True` before `[B, units]` for each part of the state."""
        last = (x_shape[0], self.units)
        y = (*x_shape[:-1], self.units) if self.return_sequences else last
        return (y, *(last for _ in self.state_parts)) if self.return_state else y

    @property
    def cell(self):
        """Where Keras's files hold the weights of such a layer."""
        if not hasattr(self, "_for_files"):  # in a namespace, where Keras does not find it a second time
            self._for_files = types.SimpleNamespace(cell=KerasCell(self))
        return self._for_files.cell

    @property
    def state_size(self):
        """Refuses `keras.layers.RNN(layer)`, which asks a cell for this."""
        kind = type(self).__name__
        raise TypeError(
            f"{kind} is a whole layer, no cell of keras.layers.RNN: use {kind}(...) in place of RNN({kind}(...)), and "
            "several in a row, with return_sequences=True, in place of a list of cells."
        )

    def save_own_variables(self, store):
        """Writes nothing here: the weights stand where Keras's layer of the same name looks for them."""

    def save_cell_variables(self, store):
        """Writes the weights where Keras puts them."""
        super().save_own_variables(store)

    def load_own_variables(self, store):
        """Reads the weights from a file of 0.1.0, which has them here."""
        self._found = bool(store.keys()) or not self.weights
        if self._found:
            self.load_weights_of(store)

    def load_cell_variables(self, store):
        """Reads them from where Keras puts them, if they were not where 0.1.0 did."""
        if self._found:
            return
        if not store.keys():
            raise ValueError(f"The file has no weights of {self.name}, neither in its own place nor in that of a cell.")
        self.load_weights_of(store)

    def load_weights_of(self, store):
        """Reads the weights, from wherever they stand in the file."""
        super().load_own_variables(store)

    def get_config(self):
        return {
            **super().get_config(),
            "return_sequences": self.return_sequences,
            "return_state": self.return_state,
            "go_backwards": self.go_backwards,
            "unroll": self.unroll,
            "zero_output_for_mask": self.zero_output_for_mask,
        }

    @classmethod
    def from_config(cls, config):
        """Revives a layer; a whole config without `return_sequences` is of 0.1.0, where every position was given."""
        whole = "trainable" in config  # which Keras writes; a config by hand means what the constructor means
        return cls(**(cls.before_keras if whole and "return_sequences" not in config else {}), **config)
