"""RWKV's token shift: a learned mixture of each position with the position before it.

x_t + (x_{t-1} - x_t) mu               mu: [D];  x before the start: 0
"""

import keras
from keras import ops

from keras_seq.ops.attention import count_elements


def previous_positions(x, last, mask=None, reset_mask=None):
    """Return the position before each one, and the last position.

    Args:
        x: `[B, T, D]`.
        last: `[B, D]`, the position before the first.
        mask: `[B, T]` boolean, or None. A masked position is skipped: the next one follows that before it.
        reset_mask: `[B, T]` boolean, or None. Where it is true a document begins: the position before it is 0.

    Returns:
        `(previous [B, T, D], last [B, D])`.
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


@keras.saving.register_keras_serializable(package="keras_seq")
class ShiftRamp(keras.initializers.Initializer):
    """Initialize mu: 1 - (n / D)^power for feature n, so the first features see the previous position.

    Args:
        power: A smaller one has more features see their own position.
    """

    def __init__(self, power: float):
        self.power = power

    def __call__(self, shape, dtype=None):
        """Return one number for each feature."""
        return 1.0 - ops.power(ops.arange(shape[0], dtype=dtype or "float32") / shape[0], self.power)

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {"power": self.power}
