"""Compute the position of each element, and which positions may attend to which.

The position of an element is the number of non-padding elements before it. Padding is skipped and has position -1.

    mask      1  1  0  1            may attend (causal) = 0 <= key position <= query position
    position  0  1 -1  2

So order, distances and the sliding window of a padded sequence are those of the sequence without padding.
"""

from keras import ops


def compute_positions(length, mask=None, start=0):
    """Compute the positions of `length` elements that follow `start` non-padding elements.

    Args:
        length: T.
        mask: `[B, T]`, true at non-padding elements, or None if there is no padding.
        start: Number of non-padding elements before: an int, a scalar tensor or `[B]`.

    Returns:
        int32 `[T]`, or `[B, T]` where `mask` or `start` differ by row; -1 where the mask is false.
    """
    if not isinstance(start, int):
        start = ops.cast(start, "int32")
        start = ops.expand_dims(start, -1) if len(start.shape) else start  # [B, 1] or a scalar
    if mask is None:
        return ops.arange(length, dtype="int32") + start
    counted = ops.cast(ops.cumsum(ops.cast(mask, "int32"), axis=-1), "int32")
    return ops.where(mask, counted - 1 + start, -1)


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
