"""Base class of layers whose state is an argument and a result of the call, and is not kept in between.

state = layer.get_initial_state(batch_size)
y, state = layer(x, state=state, return_state=True)         x [B, T, D]
y, state = layer.step(x, state)                             x [B, D]: one position
"""

import functools

import keras
from keras import ops, tree

from keras_seq import checks
from keras_seq.layers.layer import Layer
from keras_seq.layers.state_checks import cast_like, check_state, shapes
from keras_seq.ops.tensor_checks import where_valid


def has_explicit_state(layer) -> bool:
    """Return whether a layer takes and returns its state in the call.

    Keras's recurrent layers have a `get_initial_state` too, but another call interface.
    """
    return hasattr(layer, "get_initial_state") and not isinstance(layer, keras.layers.RNN)


def prepare_inputs(layer, inputs, state, mask):
    """Check and cast the inputs `[B, T, ...]` of a call, and fill in the initial state.

    Returns `(x, state, mask)`: x in the compute dtype, zeros where the mask is false, the state in the dtypes of the
    initial state, a boolean mask `[B, T]` or None.
    """
    inputs = checks.real("inputs", inputs, layer.compute_dtype)
    if inputs.shape[1] == 0:
        raise ValueError(f"inputs has shape {tuple(inputs.shape)}; expected at least one position.")
    initial = layer.get_initial_state(ops.shape(inputs)[0])
    if state is not None:
        check_state(layer.name, state, shapes(initial))
        initial = cast_like(state, initial)
    x, mask = checks.masked("mask", ops.cast(inputs, layer.compute_dtype), mask)
    x = where_valid(mask, x)  # whatever stands there
    if state is not None:
        x = functools.reduce(lambda x, tensor: checks.with_axes_of(x, tensor, rank=1), tree.flatten(initial), x)
    return x, initial, mask


class ExplicitState(Layer):
    """Base class of layers that take and return their state.

    A subclass defines `get_initial_state(batch_size)` and calls `prepare_inputs` first in its `call(inputs, state=None,
    mask=None, inputs_mask=None, return_state=False)`. Its state is a tensor or a nested structure of tensors. The mask
    is passed on to the next layer.

    Args:
        **kwargs: Those of `keras.layers.Layer`: `name`, `dtype`, `trainable`.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.autocast = False  # autocast would also cast the state, which is wider than the compute dtype

    def prepare_inputs(self, inputs, state, mask):
        """Check and cast the inputs of a call, and fill in the initial state.

        Args:
            inputs: `[B, T, ...]`.
            state: A state as `get_initial_state` returns it, or None.
            mask: `[B, T]`, true at non-padding positions, or None.

        Returns:
            `(x, state, mask)`: x in the compute dtype, zeros where the mask is false, the state in the dtypes of the
            initial state, a boolean mask or None.

        Raises:
            ValueError: If inputs are complex or have no position, the state has other shapes than `get_initial_state`
                returns for this batch, or the mask is not `[B, T]` or not boolean.
        """
        return prepare_inputs(self, inputs, state, mask)

    def step(self, x, state):
        """Apply the layer to one position.

        Args:
            x: `[B, D]`.
            state: The state before this position, as `get_initial_state` or the previous call returns it.

        Returns:
            `(y [B, D'], state)`. The cost does not depend on the number of positions before.
        """
        y, state = self(ops.expand_dims(x, 1), state=state, return_state=True)
        return y[:, 0], state

    def compute_mask(self, inputs, mask=None):
        """Return the mask unchanged."""
        return mask
