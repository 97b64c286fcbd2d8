"""State that is carried from batch to batch while training, and only then.

Row b of batch n+1 goes on where row b of batch n ended (`keras_seq.text.Lanes` cuts a text that way), so the state
that ended one batch starts the next: truncated backpropagation through time (Williams & Peng, 1990). Gradients stop
at the border. Outside of training the inner layer runs from its own initial state, as if `Carry` were not there.
"""

import inspect

import keras
from keras import ops, tree

from keras_seq import checks


@keras.saving.register_keras_serializable(package="keras_seq")
class Stateful(keras.layers.Layer):
    """Wraps a layer or model that takes and returns a state, and owns that state while training.

    ```python
    ids = keras.Input((64,), batch_size=12, dtype="int32")
    fresh = keras.Input((), batch_size=12, dtype="bool")
    trainee = keras.Model([ids, fresh], Carry(model, batch_size=12)(ids, fresh))
    trainee.fit(lanes.carried(0, 1000))  # ((ids, fresh), targets)
    model.save("model.keras")  # the inner model, which knows nothing of the carry
    ```

    Args:
        layer: anything with `initial_state(batch_size)` and `layer(x, state=..., return_state=True) -> (y, state)`
            whose state is `[B, ...]` in every part; a key/value cache, which grows, is not.
        batch_size: rows of a training batch; evaluation and prediction may use any other.

    Call arguments:
        x: `[B, T, ...]`, what the layer takes.
        fresh: `[B]` boolean, optional. Rows where it is true start from the initial state instead of the carried one:
            the start of a pass, the border between two documents.
        mask: handed to the layer as it is, if it takes one.
        x_mask: what Keras passes for `mask` when `fresh` is given.

    The state is held in non-trainable weights (`carry.state`), so it is in a checkpoint of the training
    model and in nothing that is made from the inner layer. `reset()` puts all rows back to the initial state,
    `reset(rows)` those where the boolean `rows [B]` is true.
    """

    def __init__(self, layer, batch_size, **kwargs):
        super().__init__(**kwargs)
        if not hasattr(layer, "get_initial_state"):
            raise ValueError(f"Carry: {layer!r} has no initial_state(batch_size); expected a layer that keeps a state.")
        if getattr(layer, "return_state", False):
            raise ValueError(f"Carry: {layer.name} has return_state=True; leave it out, for Carry owns the state.")
        if getattr(layer, "go_backwards", False):
            raise ValueError(f"Carry: {layer.name} reads backwards; expected a layer whose batches follow each other.")
        self.supports_masking = True
        self.autocast = False  # the layer casts what it takes; the state keeps its own dtypes
        self.layer = layer
        self.batch_size = checks.positive_integer("batch_size", batch_size)

    def build(self, x_shape, fresh_shape=None):
        if not self.layer.built:
            self.layer.build(x_shape)

        def start(n):  # computed when it is asked for: a traced value must not leave its trace
            return lambda shape, dtype: tree.flatten(self.layer.get_initial_state(self.batch_size))[n]

        parts = tree.flatten(self.layer.get_initial_state(self.batch_size))
        if any(len(part.shape) == 0 or part.shape[0] != self.batch_size for part in parts):
            raise ValueError(f"Carry: the state of {self.layer.name} is not [B, ...] in every part, so it has no rows.")
        self.state = [
            self.add_weight(
                shape=part.shape,
                dtype=keras.backend.standardize_dtype(part.dtype),
                initializer=start(n),
                trainable=False,
                autocast=False,
                name="state",
            )
            for n, part in enumerate(parts)
        ]

    def reset_state(self, rows=None):
        """Puts every row, or those where `rows [B]` is true, back to the layer's initial state.

        Between two calls of `fit`; inside one, `fresh` does it (on JAX, `fit` holds the variables itself).
        """
        if not self.built:
            raise ValueError("reset() of a Carry that is not built has no state to reset; call or build it first.")
        rows = ops.ones((self.batch_size,), "bool") if rows is None else ops.convert_to_tensor(rows)
        if tuple(rows.shape) != (self.batch_size,):
            raise ValueError(f"rows has shape {tuple(rows.shape)}; expected [B] with B={self.batch_size}.")
        rows = checks.boolean_mask("rows", rows, ranks=(1,))
        for variable, value in zip(self.state, self._with_reset_rows(self._read_state(), rows), strict=True):
            variable.assign(value)

    def _read_state(self):
        # copies, for torch assigns in place what the backward pass still needs
        return [ops.copy(ops.stop_gradient(ops.convert_to_tensor(variable))) for variable in self.state]

    def _with_reset_rows(self, state, rows):
        """The parts of the state with those rows put back to the initial one."""
        return [
            ops.where(ops.reshape(rows, (-1,) + (1,) * (len(start.shape) - 1)), start, part)
            for start, part in zip(tree.flatten(self.layer.get_initial_state(self.batch_size)), state, strict=True)
        ]

    def call(self, x, reset_mask=None, mask=None, x_mask=None, training=None):
        mask = x_mask if mask is None else mask
        takes_mask = mask is not None and "mask" in inspect.signature(self.layer.call).parameters
        masked = {"mask": mask} if takes_mask else {}
        given, reset_mask = reset_mask, checks.boolean_mask("reset_mask", reset_mask, ranks=(1,), x=x)
        if not training:
            return self.layer(x, training=False, **masked)
        if x.shape[0] not in (None, self.batch_size):
            raise ValueError(f"Carry: a batch of {x.shape[0]} rows; expected batch_size={self.batch_size} in training.")
        state = self._read_state()
        if reset_mask is not None:
            state = self._with_reset_rows(state, reset_mask)
        state = tree.pack_sequence_as(self.layer.get_initial_state(self.batch_size), state)
        y, state = self.layer(x, state=state, training=True, return_state=True, **masked)
        for variable, value in zip(self.state, tree.flatten(state), strict=True):
            variable.assign(ops.stop_gradient(value))
        return checks.with_axes_of(checks.where_boolean(y, given), reset_mask, rank=1)

    def compute_mask(self, x, mask=None):
        """The layer's own: none where it gives one output a row."""
        return self.layer.compute_mask(x, mask)

    def compute_output_spec(self, x, reset_mask=None, mask=None, x_mask=None, training=None):
        """The layer's own: carrying changes no shape."""
        return self.layer.compute_output_spec(x)

    def get_config(self):
        return {
            **super().get_config(),
            "layer": keras.saving.serialize_keras_object(self.layer),
            "batch_size": self.batch_size,
        }

    @classmethod
    def from_config(cls, config):
        """Revives the inner layer too."""
        config = dict(config)
        return cls(layer=keras.saving.deserialize_keras_object(config.pop("layer")), **config)
