"""The state of a layer: an argument and a result of the call, which the layer does not keep.

    state = layer.get_initial_state(batch_size)
    y, state = layer(x, state=state, return_state=True)         x [B, T, D]
    y, state = layer.step(x, state)                             x [B, D]: one position

A state is `[B, units]`, a tuple of such tensors, or a dictionary, e.g. {"key": [B, S, H, K], "position": ..., ...}. Its
structure, shapes and dtypes are checked against those of the initial state.
"""

import functools
import math
from collections.abc import Mapping

import keras
from keras import ops, tree

from keras_seq.layers.base.layer import Layer
from keras_seq.ops import tensor_checks
from keras_seq.ops.attention import count_elements
from keras_seq.ops.tensor_checks import where_valid

MAX_FACTOR = 1e9  # of layers with products of several inputs, which then are far inside float32
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


def tensors_in_order(state, like) -> list:
    """Return the tensors of a state in the order of another one; on torch a dict within a dict has its own order."""
    return tree.flatten(tree.map_structure(lambda _, tensor: tensor, like, state))


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
    if isinstance(initial, tuple | list):
        parts = [*map(cast_like, state, initial)]
        return parts if isinstance(initial, list) else tuple(parts)
    return ops.cast(state, initial.dtype)


def has_explicit_state(layer) -> bool:
    """Return whether a layer takes and returns its state in the call.

    Keras's recurrent layers have a `get_initial_state` too, but another call interface.
    """
    return hasattr(layer, "get_initial_state") and not isinstance(layer, keras.layers.RNN)


def prepare_inputs(layer, inputs, state, mask):
    """Check and cast the inputs of a call, and fill in the initial state.

    Args:
        layer: The layer, whose method this is.
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
    if inputs.shape[1] == 0:
        raise ValueError(f"inputs has shape {tuple(inputs.shape)}; expected at least one position.")
    x, mask = layer._valid_inputs(inputs, mask)
    initial = layer.get_initial_state(ops.shape(inputs)[0])
    if state is not None:
        check_state(layer.name, state, shapes(initial))
        initial = cast_like(state, initial)
        rows = [tensor for tensor in tree.flatten(initial) if len(tensor.shape)]  # all rows share a scalar
        x = functools.reduce(lambda x, tensor: tensor_checks.with_axes_of(x, tensor, rank=1), rows, x)
    return x, initial, mask


class ExplicitState(Layer):
    """Base class of layers that take and return their state.

    ```python
    y = layer(x)  # x [B, T, D], from the initial state
    y, state = layer(x, return_state=True)
    y, state = layer(more, state=state, return_state=True)  # continues from that state
    y, state = layer.step(x[:, 0], layer.get_initial_state(B))  # one position: y [B, D']
    ```

    A subclass defines `get_initial_state(batch_size)` and `sequence(x, state, mask, reset_mask)`, or a `call(inputs,
    state=None, mask=None, inputs_mask=None, return_state=False)` of its own, which calls `prepare_inputs` first. Its
    state is a tensor or a nested structure of tensors. The mask is passed on to the next layer.

    Args:
        **kwargs: Those of `keras.layers.Layer`: `name`, `dtype`, `trainable`.
    """

    largest_input = math.inf  # with a `reset_mask`, what is not below it counts as not finite
    prepare_inputs = prepare_inputs

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.autocast = False  # autocast would also cast the state, which is wider than the compute dtype

    def call(self, inputs, state=None, mask=None, inputs_mask=None, reset_mask=None, return_state: bool = False):
        """Apply the layer; the class docstring describes the call arguments."""
        x, state, mask = self.prepare_inputs(inputs, state, inputs_mask if mask is None else mask)
        x, reset_mask = tensor_checks.masked("reset_mask", x, reset_mask)
        x, state, is_nan = finite_inputs(x, state, reset_mask, self.largest_input)
        y, state = with_nan(is_nan, *self.sequence(x, state, mask, reset_mask))
        return (y, state) if return_state else y

    def sequence(self, x, state, mask, reset_mask):
        """Compute the outputs `[B, T, ...]` and the next state, of checked arguments; x is zero at padding."""
        raise NotImplementedError

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


# Keep NaN and infinity within their document: 0 times NaN is NaN, so a decay or a weight of 0 separates nothing.
#
#     inputs      1  NaN   1  |  1   1             | : a document begins
#     computed    1   0    1  |  1   1
#     outputs     a   b    c  |  d   e
#     returned    a  NaN  NaN |  d   e             NaN from there to the end of the document, and in its state
#
# What is computed with is finite, and no gradient comes back from what is returned as NaN: those of the other documents
# are clean too.


def finite_inputs(x, state, reset_mask, largest: float = math.inf):
    """Replace what is not finite, or not below `largest`, by zeros, for `with_nan` to put NaN back.

    It returns x, the state, and booleans `[B, T]`, true from what was not finite to the end of its document, or None.
    """
    if reset_mask is None:
        return x, state, None
    is_finite = ops.all(ops.abs(x) < largest, axis=-1)
    begins_finite = ops.ones_like(is_finite[:, 0])
    for tensor in filter(_is_float, tree.flatten(state)):
        of_rows = ops.all(ops.isfinite(tensor), axis=tuple(range(1, len(tensor.shape))))
        begins_finite = ops.logical_and(begins_finite, of_rows)

    def finite(tensor):
        return where_valid(begins_finite, tensor) if _is_float(tensor) else tensor

    is_nan = nan_to_the_end(is_finite, reset_mask, ops.cast(ops.logical_not(begins_finite), "int32"))
    return where_valid(is_finite, x), tree.map_structure(finite, state), is_nan


def nan_to_the_end(is_finite, reset_mask, start=0):
    """Return booleans `[B, T]`, true from what is not finite, a state too, to the end of its document."""
    return count_elements(ops.shape(is_finite)[1], ops.logical_not(is_finite), start, reset_mask) > 0


def nan_where_attended(is_nan, allowed):
    """Return booleans `[B, T]`, true for queries that are allowed to attend to a key of `is_nan [B, S]`."""
    is_nan = ops.expand_dims(is_nan, [1, 2] if len(allowed.shape) == 4 else 1)
    return ops.any(ops.logical_and(allowed, is_nan), axis=(1, 3) if len(allowed.shape) == 4 else 2)


def with_nan(is_nan, y, state=None):
    """Put NaN into y `[B, T, ...]` where `is_nan [B, T]` is true, and into the last state by its last column."""
    if is_nan is None:
        return y, state

    def put(is_nan, x):
        return where_valid(ops.logical_not(is_nan), x, float("nan")) if _is_float(x) else x

    return put(is_nan, y), None if state is None else tree.map_structure(lambda x: put(is_nan[:, -1], x), state)


def split_finite(x):
    """Split `[..., D]` into vectors, zeros for those that are not finite, and flags `[..., 1]`, 1 for these."""
    is_finite = ops.all(ops.isfinite(x), axis=-1, keepdims=True)
    return ops.where(is_finite, x, 0.0), ops.cast(ops.logical_not(is_finite), x.dtype)


def join_finite(y, flags):
    """Return `y [..., D]`, NaN where the flags `[..., 1]` are not 0."""
    return ops.where(flags > 0, float("nan"), y)


def _is_float(tensor):
    return "float" in tensor_checks.dtype_of(tensor)
