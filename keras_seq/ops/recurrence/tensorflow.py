"""A cell over time on TensorFlow.

Short sequences are unrolled: the executor starts the next small operation without the overhead of a `while_loop`. For
long or unknown T, the loop gets `maximum_iterations`, without which XLA cannot differentiate it (`ops.scan` sets none).
"""

import tensorflow as tf

from keras_seq.ops.recurrence import MAX_UNROLLED, recurrence


def has_steps(cell, z, state, mask=None, reset_mask=None) -> bool:
    """Return whether T is not 0."""
    return z.shape[1] != 0


@recurrence.on("tensorflow", supports=has_steps)
def unrolled_or_looped(cell, z, state, mask=None, reset_mask=None):
    """Apply a cell to all time steps."""

    def position(z, state, is_valid, is_reset):
        if is_reset is not None:
            state = tf.nest.map_structure(lambda s: tf.where(is_reset[:, None], tf.zeros_like(s), s), state)
        new = cell(z, state)
        if is_valid is None:
            return new
        return tf.nest.map_structure(lambda new, old: tf.where(is_valid[:, None], new, old), new, state)

    unroll = z.shape[1] is not None and z.shape[1] <= MAX_UNROLLED
    return (_unrolled if unroll else _looped)(position, z, state, mask, reset_mask)


def _unrolled(position, z, state, mask, reset_mask):
    outputs = []
    masks = [[None] * z.shape[1] if x is None else tf.unstack(x, z.shape[1], axis=1) for x in (mask, reset_mask)]
    for z_t, *masks_t in zip(tf.unstack(z, axis=1), *masks, strict=True):
        state = position(z_t, state, *masks_t)
        outputs.append(tf.nest.flatten(state)[0])
    return tf.stack(outputs, axis=1), state


def _looped(position, z, state, mask, reset_mask):
    z = tf.einsum("btw->tbw", z)
    length = z.shape[0] or tf.shape(z)[0]
    # A TensorArray, because the gradient of z[t] is as large as z.
    rows = tf.TensorArray(z.dtype, length, element_shape=z.shape[1:]).unstack(z)
    masks = [None if x is None else tf.transpose(x) for x in (mask, reset_mask)]
    first = tf.nest.flatten(state)[0]
    outputs = tf.TensorArray(first.dtype, length, element_shape=first.shape)

    def body(t, state, outputs):
        state = position(rows.read(t), state, *(None if x is None else x[t] for x in masks))
        return t + 1, state, outputs.write(t, tf.nest.flatten(state)[0])

    _, state, outputs = tf.while_loop(lambda t, *_: t < length, body, (0, state, outputs), maximum_iterations=length)
    outputs = outputs.stack()
    outputs.set_shape([z.shape[0], *first.shape])
    return tf.einsum("tbw->btw", outputs), state
