"""Compute the position of each element, and which positions may attend to which.

The position of an element is the number of non-padding elements before it. Padding is skipped and has position -1.

    mask      1  1  0  1            may attend (causal) = 0 <= key position <= query position
    position  0  1 -1  2

So order, distances and the sliding window of a padded sequence are those of the sequence without padding. A row may
hold several documents: they begin where `reset_mask` is true, and there positions begin again at 0.

    reset     0  0  1  0  0  1
    segment   0  0  1  1  1  2      a query attends to keys of its own segment only
    position  0  1  0  1  2  0
"""

from keras import ops


def segment_numbers(reset_mask):
    """Return how many documents begin in a row up to each position, int32 `[B, T]`, from booleans `[B, T]`."""
    return ops.cast(ops.cumsum(ops.cast(reset_mask, "int32"), axis=-1), "int32")


def count_elements(length, mask=None, start=0, reset_mask=None):
    """Count the non-padding elements of a document up to each position, its own included.

    Args:
        length: T.
        mask: `[B, T]`, true at non-padding elements, or None if there is no padding.
        start: Number of non-padding elements before, as for `compute_positions`.
        reset_mask: `[B, T]`, true where a document begins, or None.

    Returns:
        int32 `[T]`, or `[B, T]` where an argument differs by row.
    """
    if mask is None:
        counted = ops.arange(length, dtype="int32") + 1
    else:
        counted = ops.cast(ops.cumsum(ops.cast(mask, "int32"), axis=-1), "int32")
    if not isinstance(start, int):
        start = ops.cast(start, "int32")
        start = ops.expand_dims(start, -1) if len(start.shape) else start  # [B, 1] or a scalar
    if reset_mask is None:
        return counted + start
    counted = ops.broadcast_to(counted, ops.shape(reset_mask))
    segment, position = segment_numbers(reset_mask), ops.arange(length, dtype="int32")
    # entry n is the position where segment n + 1 begins
    begins = ops.argsort(ops.where(reset_mask, position, position + length), axis=-1)
    begin = ops.take_along_axis(ops.cast(begins, "int32"), ops.maximum(segment - 1, 0), axis=-1)
    before = ops.take_along_axis(counted if mask is None else counted - ops.cast(mask, "int32"), begin, axis=-1)
    before = before - 1 if mask is None else before
    return ops.where(segment > 0, counted - before, counted + start)


def where_valid(mask, x, otherwise: float = 0.0):
    """Return x `[B, T, ...]`, with another number at padding.

    Args:
        mask: `[B, T]` boolean, or None.
        x: `[B, T, ...]`.
        otherwise: The number.
    """
    if mask is None:
        return x
    for _ in x.shape[2:]:
        mask = ops.expand_dims(mask, -1)
    return ops.where(mask, x, otherwise)


def compute_positions(length, mask=None, start=0, reset_mask=None):
    """Compute the positions of `length` elements that follow `start` non-padding elements.

    Args:
        length: T.
        mask: `[B, T]`, true at non-padding elements, or None if there is no padding.
        start: Number of non-padding elements before: an int, a scalar tensor or `[B]`.
        reset_mask: `[B, T]`, true where a document begins and positions begin again at 0, or None.

    Returns:
        int32 `[T]`, or `[B, T]` where an argument differs by row; -1 where the mask is false.
    """
    positions = count_elements(length, mask, start, reset_mask) - 1
    return positions if mask is None else ops.where(mask, positions, -1)


def compute_attention_mask(query_positions, key_positions, causal: bool = False, sliding_window: int | None = None):
    """Compute which query may attend to which key.

    Args:
        query_positions: `[T]` or `[B, T]`.
        key_positions: `[S]` or `[B, S]`; -1 for a key that must not be attended to.
        causal: Whether to mask later positions.
        sliding_window: Attend only to positions less than this far away, the own position included; None for all.

    Returns:
        Boolean, broadcastable to `[B, T, S]`, or None where everything may attend to everything.
    """
    keys = ops.expand_dims(key_positions, -2)  # [..., 1, S]
    conditions = []
    if len(key_positions.shape) == 2:  # only positions by row can be absent
        conditions.append(keys >= 0)
    if causal or sliding_window is not None:
        distance = ops.expand_dims(query_positions, -1) - keys  # [..., T, S]
        if causal:
            conditions.append(distance >= 0)
        if sliding_window is not None:
            conditions.append(distance < sliding_window if causal else ops.abs(distance) < sliding_window)
    allowed = None
    for condition in conditions:
        allowed = condition if allowed is None else ops.logical_and(allowed, condition)
    return allowed
