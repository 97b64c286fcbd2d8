"""Keep NaN and infinity within their document: 0 times NaN is NaN, so a decay or a weight of 0 separates nothing.

    inputs      1  NaN   1  |  1   1             | : a document begins
    computed    1   0    1  |  1   1
    outputs     a   b    c  |  d   e
    returned    a  NaN  NaN |  d   e             NaN from there to the end of the document, and in its state

What is computed with is finite, so gradients are clean too, those of the weights included where the outputs of the
other document have no part in the loss.
"""

from keras import ops, tree

from keras_seq import checks
from keras_seq.layers.masks import count_elements, where_valid


def finite_inputs(x, state, reset_mask):
    """Replace what is not finite by zeros, for `with_nan` to put NaN back.

    Args:
        x: `[B, T, D]`.
        state: State before the first position, a nested structure of tensors `[B, ...]`.
        reset_mask: `[B, T]` boolean, true where a document begins; None changes nothing.

    Returns:
        `(x, state, nan)`: nan is `[B, T]`, NaN from what was not finite to the end of its document, else 0; or None.
    """
    if reset_mask is None:
        return x, state, None
    is_finite = ops.all(ops.isfinite(x), axis=-1)
    begins_finite = ops.ones_like(is_finite[:, 0])
    for tensor in filter(_is_float, tree.flatten(state)):
        begins_finite = ops.logical_and(begins_finite, ops.all(_as_rows(ops.isfinite(tensor)), axis=-1))

    def finite(tensor):
        return ops.where(_with_axes(begins_finite, tensor), tensor, 0.0) if _is_float(tensor) else tensor

    nan = nan_to_the_end(is_finite, reset_mask, ops.cast(ops.logical_not(begins_finite), "int32"))
    return where_valid(is_finite, x), tree.map_structure(finite, state), nan


def nan_to_the_end(is_finite, reset_mask, start=0):
    """Return NaN from positions that are not finite to the ends of their documents, else 0: `[B, T]`.

    Args:
        is_finite: `[B, T]` boolean.
        reset_mask: `[B, T]` boolean, true where a document begins.
        start: int32 `[B]`, 1 where the state before the first position was not finite.
    """
    count = count_elements(ops.shape(is_finite)[1], ops.logical_not(is_finite), start, reset_mask)
    return ops.where(count > 0, float("nan"), 0.0)


def nan_where_attended(is_nan, allowed):
    """Return NaN for queries that may attend to a key that was not finite, else 0: `[B, T]`.

    Args:
        is_nan: `[B, S]` boolean.
        allowed: Booleans, broadcastable to `[B, T, S]` or `[B, H, T, S]`.
    """
    is_nan = ops.expand_dims(is_nan, [1, 2] if len(allowed.shape) == 4 else 1)
    attends = ops.any(ops.logical_and(allowed, is_nan), axis=(1, 3) if len(allowed.shape) == 4 else 2)
    return ops.where(attends, float("nan"), 0.0)


def with_nan(nan, y, state=None):
    """Add NaN to what a layer computed from what is finite.

    Args:
        nan: `[B, T]`, NaN or 0; None changes nothing.
        y: `[B, T, ...]`.
        state: The last state, of tensors `[B, ...]`, or None.

    Returns:
        `(y, state)`.
    """
    if nan is None:
        return y, state

    def add(nan, x):
        return x + ops.cast(_with_axes(nan, x), x.dtype) if _is_float(x) else x

    return add(nan, y), None if state is None else tree.map_structure(lambda tensor: add(nan[:, -1], tensor), state)


def flagged(x):
    """Replace what is not finite by zeros and append a feature that is 1 there, for layers that select positions.

    Args:
        x: `[..., D]`.

    Returns:
        `[..., D + 1]`.
    """
    is_finite = ops.all(ops.isfinite(x), axis=-1, keepdims=True)
    return ops.concatenate([ops.where(is_finite, x, 0.0), ops.cast(ops.logical_not(is_finite), x.dtype)], axis=-1)


def unflagged(x):
    """Return `[..., D]` of `flagged` ones `[..., D + 1]`, plus NaN where the last feature is not 0."""
    return x[..., :-1] + ops.cast(ops.where(x[..., -1:] > 0, float("nan"), 0.0), x.dtype)


def _is_float(tensor):
    return "float" in checks.dtype_of(tensor)


def _with_axes(rows, x):
    """Return a tensor with axes of size 1 appended, as many as x has."""
    for _ in range(len(x.shape) - len(rows.shape)):
        rows = ops.expand_dims(rows, -1)
    return rows


def _as_rows(x):
    return ops.reshape(x, (ops.shape(x)[0], -1)) if len(x.shape) != 2 else x
