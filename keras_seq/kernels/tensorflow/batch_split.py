"""Split a batch into two halves that run in parallel, for recurrent layers, whose rows are independent.

There are two halves on every machine, so that the same seed gives the same bits everywhere.
"""

import tensorflow as tf

MIN_BATCH_TO_SPLIT = 8  # rows, for the XLA loops
MIN_STATE_SIZE_TO_SPLIT = 2**14  # rows x units, for the unrolled versions: below, building two graphs costs more time


def batch_halves(state, xla_loop):
    """Return slices of the batch: two halves where that is faster, else the whole batch.

    Args:
        state: `[B, units]`, for its shape.
        xla_loop: Whether the time steps run in an XLA loop; otherwise they are unrolled.

    Returns:
        A list of one or two slices.
    """
    rows, units = state.shape
    if rows is None or (rows < MIN_BATCH_TO_SPLIT if xla_loop else rows * units < MIN_STATE_SIZE_TO_SPLIT):
        return [slice(None)]
    return [slice(0, rows // 2), slice(rows // 2, rows)]


def concat_batch(tensors_of_halves):
    """Concatenate the results of the halves along the batch axis.

    Args:
        tensors_of_halves: For each half, a sequence of tensors `[..., rows, W]`.

    Returns:
        A sequence of tensors `[..., B, W]`.
    """
    if len(tensors_of_halves) == 1:
        return tensors_of_halves[0]
    return [tf.concat(tensors, axis=-2) for tensors in zip(*tensors_of_halves, strict=True)]


def to_time_major(x):
    """Transpose `[B, T, W]` to `[T, B, W]`, or back."""
    return tf.transpose(x, (1, 0, 2))
