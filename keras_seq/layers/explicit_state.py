"""The state protocol, which every layer with a state answers: state in, state out, nothing kept in between.

state = layer.initial_state(batch_size)
y, state = layer(x, state=state, return_state=True)         x [B, T, D]
y, state = layer.step(x, state)                             x [B, D]: one position
"""

import functools

import keras
from keras import ops, tree

from keras_seq import checks
from keras_seq.layers.precision import at_least_float32
from keras_seq.layers.state_checks import as_initial, check_state, shapes


class ExplicitState(keras.layers.Layer):
    """What layers with a state share. A subclass has `initial_state(batch_size)` and calls `enter` first."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.autocast = False  # Keras would cast the state too, and a memory is wider than the rest

    @property
    def state_dtype(self):
        """The dtype of what is added up over the positions: float32, or float64 under that policy."""
        return at_least_float32(self.compute_dtype)

    def prepare_inputs(self, x, state, mask):
        """What a call starts from: x in the compute dtype, a state in its own dtypes, a boolean mask or None.

        Raises:
            ValueError: x is complex or has no position, the state is not what `initial_state` gives for the rows of x,
                the mask is not `[B, T]` or not boolean.
        """
        checks.real("x", x)
        if x.shape[1] == 0:
            raise ValueError(f"x has shape {tuple(x.shape)}; expected at least one position.")
        initial = self.get_initial_state(ops.shape(x)[0])
        if state is not None:
            check_state(self.name, state, shapes(initial))
            initial = as_initial(state, initial)
            x = functools.reduce(lambda x, part: checks.with_axes_of(x, part, rank=1), tree.flatten(initial), x)
        x, mask = checks.masked("mask", ops.cast(x, self.compute_dtype), mask)
        return x, initial, mask

    def step(self, x, state):
        """One position: `x [B, D]`, `state` -> `(y [B, D'], state)`, at the same cost wherever it stands."""
        y, state = self(ops.expand_dims(x, 1), state=state, return_state=True)
        return y[:, 0], state

    def compute_mask(self, inputs, mask=None):
        """The mask goes on to the layers above."""
        return mask

    def compute_output_spec(self, *args, **kwargs):
        """The shapes and dtypes of `call` itself, whatever it is asked to return."""
        return keras.Operation.compute_output_spec(self, *args, **kwargs)
