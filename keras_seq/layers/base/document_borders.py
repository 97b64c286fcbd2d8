"""Keep NaN and infinity within their document: 0 times NaN is NaN, so a decay or a weight of 0 separates nothing.

    inputs      1  NaN   1  |  1   1             | : a document begins
    computed    1   0    1  |  1   1
    outputs     a   b    c  |  d   e
    returned    a  NaN  NaN |  d   e             NaN from there to the end of the document, and in its state

What is computed with is finite, and no gradient comes back from what is returned as NaN: those of the other documents
are clean too.
"""

import math

from keras import ops, tree

from keras_seq.ops import tensor_checks
from keras_seq.ops.attention import count_elements
from keras_seq.ops.tensor_checks import where_valid

MAX_FACTOR = 1e9  # of layers with products of several inputs, which then are far inside float32


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
        return ops.where(_with_axes(begins_finite, tensor), tensor, 0.0) if _is_float(tensor) else tensor

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
        return ops.where(_with_axes(is_nan, x), float("nan"), x) if _is_float(x) else x

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


def _with_axes(rows, x):
    """Return a tensor with axes of size 1 appended, as many as x has."""
    for _ in range(len(x.shape) - len(rows.shape)):
        rows = ops.expand_dims(rows, -1)
    return rows
