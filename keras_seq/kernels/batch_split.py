"""The rows of a batch, which no recurrent layer mixes: halves of them are worked on side by side, a core for each.

Two halves whatever the machine, so that the same seed gives the same bits on every one.
"""

import tensorflow as tf

MIN_BATCH_TO_SPLIT = 8  # of a batch that is halved, in loops
MIN_STATE_SIZE_TO_SPLIT = (
    2**14
)  # of h, where positions are unrolled; halves of fewer take longer to build than they save


def batch_halves(memory, looped):
    """Slices of the rows: two halves of `memory [B, units]` where that is the faster way, else all rows at once."""
    rows, units = memory.shape
    if rows is None or (rows < MIN_BATCH_TO_SPLIT if looped else rows * units < MIN_STATE_SIZE_TO_SPLIT):
        return [slice(None)]
    return [slice(0, rows // 2), slice(rows // 2, rows)]


def concat_batch(tensors_of_parts):
    """What each part of the rows gave, `[..., rows, W]` each, all rows of each of its tensors together again."""
    if len(tensors_of_parts) == 1:
        return tensors_of_parts[0]
    return [tf.concat(tensors, axis=-2) for tensors in zip(*tensors_of_parts, strict=True)]


def to_time_major(x):
    """`[B, T, W]` <-> `[T, B, W]`."""
    return tf.transpose(x, (1, 0, 2))
