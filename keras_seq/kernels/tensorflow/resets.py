"""Where the state of a recurrence starts anew: documents in one row."""

import tensorflow as tf


def reset_rows(state, reset_mask):
    """Return `state [..., units]` with zeros where `reset_mask [...]` is true; unchanged if that is None."""
    return state if reset_mask is None else tf.where(reset_mask[..., None], tf.zeros_like(state), state)


def time_step(reset_mask, t):
    """Return row t of `reset_mask [T, B]`, or None."""
    return None if reset_mask is None else reset_mask[t]
