"""RWKV's token shift: a learned mixture of each position with the position before it.

x_t + (x_{t-1} - x_t) mu               mu: [D];  x before the start: 0
"""

from keras import ops

from keras_seq.ops.attention import count_elements


def previous_positions(x, last, mask=None, reset_mask=None):
    """Return the position before each one, `[B, T, D]`, and the last, `[B, D]`, given the one before the first.

    Masked positions are skipped; before a position where `reset_mask` is true there are zeros.
    """
    length, valid = ops.shape(x)[1], 1
    if mask is None:
        previous, last = ops.concatenate([ops.expand_dims(last, 1), x[:, :-1]], axis=1), x[:, -1]
    else:
        position = ops.arange(length, dtype="int32")
        order = ops.argsort(ops.where(mask, position, position + length), axis=1)  # valid positions first
        positions = ops.concatenate([ops.expand_dims(last, 1), _gather(x, order)], axis=1)
        valid = ops.cast(mask, "int32")
        count = ops.cumsum(valid, axis=1)
        previous, last = _gather(positions, count - valid), _gather(positions, count[:, -1:])[:, 0]
    if reset_mask is not None:
        count = count_elements(length, mask, 1, reset_mask)  # in the own document
        previous = ops.where(ops.expand_dims(count > valid, -1), previous, 0)
        last = ops.where(count[:, -1:] > 0, last, 0)
    return previous, last


def _gather(x, indices):
    return ops.take_along_axis(x, ops.expand_dims(indices, -1), axis=1)
