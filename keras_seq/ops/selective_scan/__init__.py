"""The state-space model whose step depends on the input (Gu & Dao, 2023, "Mamba"), for all positions.

    h_t = exp(delta_t A) h_{t-1} + delta_t B_t x_t          N numbers for each of the E features
    y_t = C_t h_t

It discretizes h' = A h + B x with the time step delta_t: a large step replaces the state by the input, and a step of
zero leaves it unchanged.
"""

import keras
from keras import ops

from keras_seq.ops.dispatch import optimized
from keras_seq.ops.linear_recurrence import linear_recurrence


@optimized
def selective_scan(x, delta, a, b, c, h, reset_mask=None):
    """Compute y at every position and the last state.

    Args:
        x: `[B, T, E]`.
        delta: `[B, T, E]`, time steps, non-negative.
        a: `[E, N]`, negative.
        b: `[B, T, N]`.
        c: `[B, T, N]`.
        h: `[B, E, N]`, state before the first position.
        reset_mask: `[B, T]` boolean, or None. Where it is true, the state before the position counts as zeros.

    Returns:
        `(y [B, T, E], h [B, E, N])`.
    """
    decay = ops.exp(ops.expand_dims(delta, -1) * a)  # [B, T, E, N]
    if reset_mask is not None:
        decay = ops.where(ops.reshape(reset_mask, (*ops.shape(reset_mask), 1, 1)), 0.0, decay)
    drive = ops.expand_dims(delta * x, -1) * ops.expand_dims(b, 2)
    h = linear_recurrence(decay, drive, h)
    return ops.sum(h * ops.expand_dims(c, 2), axis=-1), h[:, -1]


if keras.backend.backend() == "tensorflow":
    import keras_seq.ops.selective_scan.tensorflow  # noqa: F401  (binds the twin)
