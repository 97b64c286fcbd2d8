"""Check the structure, static shapes and dtypes of a state against those of the initial state.

[B, units]      ([B, units], [B, units])      {"key": [B, S, H, K], "value": ..., "position": ..., "length": []}
"""

import functools
from collections.abc import Mapping

import keras
from keras import ops, tree

from keras_seq.layers.base.layer import Layer
from keras_seq.ops import tensor_checks
from keras_seq.ops.tensor_checks import where_valid

PART_DTYPES = {
    "position": ("int",),
    "length": ("int",),
    "mask": ("bool",),
}  # by key, of attention states; all others are NUMERIC_DTYPES
NUMERIC_DTYPES = ("float", "int")


def shapes(state):
    """Return the shapes of the tensors in a state as lists, nested as the state is.

    Other values are returned unchanged.
    """
    if isinstance(state, Mapping):
        return {key: shapes(part) for key, part in state.items()}
    if isinstance(state, tuple | list):
        return tuple(shapes(part) for part in state)
    return list(state.shape) if hasattr(state, "shape") else state


def check_state(name: str, state, expected):
    """Check that a state has the expected `shapes`, None if unknown, and dtypes that can be cast without loss."""
    actual = shapes(state)
    if not _agree(actual, expected):
        raise ValueError(
            f"{name}: state has the shapes {actual}; expected {expected}, as get_initial_state returns them for this "
            "batch size."
        )
    _check_dtypes(name, state)


def _check_dtypes(name, state, dtypes=NUMERIC_DTYPES):
    if isinstance(state, Mapping):
        for key, part in state.items():
            _check_dtypes(name, part, PART_DTYPES.get(key, NUMERIC_DTYPES))
    elif isinstance(state, tuple | list):
        for part in state:
            _check_dtypes(name, part)
    elif not any(dtype in tensor_checks.dtype_of(state) for dtype in dtypes):
        expected = "real numbers" if dtypes == NUMERIC_DTYPES else {"int": "integers", "bool": "booleans"}[dtypes[0]]
        raise ValueError(
            f"{name}: a tensor of the state has the dtype {tensor_checks.dtype_of(state)}; expected {expected}, as "
            "get_initial_state returns it."
        )


def _agree(actual, expected):
    if isinstance(expected, dict):
        return (
            isinstance(actual, dict)
            and actual.keys() == expected.keys()
            and all(_agree(actual[key], part) for key, part in expected.items())
        )
    if type(actual) is not type(expected) or len(actual) != len(expected):
        return False
    if isinstance(expected, tuple):
        return all(map(_agree, actual, expected))
    return all(
        actual_size is None or size is None or actual_size == size
        for actual_size, size in zip(actual, expected, strict=True)
    )


def cast_like(state, initial):
    """Return a state that passed `check_state` with the structure and dtypes of the initial state."""
    if isinstance(initial, Mapping):
        return {key: cast_like(state[key], part) for key, part in initial.items()}
    if isinstance(initial, tuple):
        return tuple(map(cast_like, state, initial))
    return ops.cast(state, initial.dtype)


# Base class of layers whose state is an argument and a result of the call, and is not kept in between.
#
# state = layer.get_initial_state(batch_size)
# y, state = layer(x, state=state, return_state=True)         x [B, T, D]
# y, state = layer.step(x, state)                             x [B, D]: one position


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
    inputs = tensor_checks.real("inputs", inputs, layer.compute_dtype)
    if inputs.shape[1] == 0:
        raise ValueError(f"inputs has shape {tuple(inputs.shape)}; expected at least one position.")
    initial = layer.get_initial_state(ops.shape(inputs)[0])
    if state is not None:
        check_state(layer.name, state, shapes(initial))
        initial = cast_like(state, initial)
    x, mask = tensor_checks.masked("mask", ops.cast(inputs, layer.compute_dtype), mask)
    x = where_valid(mask, x)  # whatever stands there
    if state is not None:
        x = functools.reduce(lambda x, tensor: tensor_checks.with_axes_of(x, tensor, rank=1), tree.flatten(initial), x)
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
