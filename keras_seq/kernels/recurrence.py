"""`layers.recurrent.recurrence` on TensorFlow.

Short sequences are unrolled: the executor starts the next small operation without the bookkeeping of a `while_loop`.
For long ones, and where the length is not known, the loop is told how often it runs at most, without which XLA cannot
differentiate it (Keras's own `ops.scan` is not told).
"""

import tensorflow as tf

MAX_UNROLLED_STEPS = 128  # positions that are unrolled; beyond it the graph takes longer to build than the loop costs


def supports(cell, z, state, mask=None):
    """Whether the twin takes these arguments: all but a sequence of no position."""
    return z.shape[1] != 0


def apply(cell, z, state, mask=None):
    """The twin of `keras_seq.layers.recurrent_base.recurrence`; see there."""

    def position(z, state, real):
        new = cell(z, state)
        return new if real is None else tf.nest.map_structure(lambda n, o: tf.where(real[:, None], n, o), new, state)

    short = z.shape[1] is not None and z.shape[1] <= MAX_UNROLLED_STEPS
    return (_unrolled if short else _looped)(position, z, state, mask)


def _unrolled(position, z, state, mask):
    outputs = []
    real = [None] * z.shape[1] if mask is None else tf.unstack(mask, z.shape[1], axis=1)
    for z_t, real_t in zip(tf.unstack(z, axis=1), real, strict=True):
        state = position(z_t, state, real_t)
        outputs.append(tf.nest.flatten(state)[0])
    return tf.stack(outputs, axis=1), state


def _looped(position, z, state, mask):
    z = tf.einsum("btw->tbw", z)
    length = z.shape[0] or tf.shape(z)[0]
    mask = None if mask is None else tf.transpose(mask)
    first = tf.nest.flatten(state)[0]
    outputs = tf.TensorArray(first.dtype, length, element_shape=first.shape)

    def body(t, state, outputs):
        state = position(z[t], state, None if mask is None else mask[t])
        return t + 1, state, outputs.write(t, tf.nest.flatten(state)[0])

    _, state, outputs = tf.while_loop(lambda t, *_: t < length, body, (0, state, outputs), maximum_iterations=length)
    outputs = outputs.stack()
    outputs.set_shape([z.shape[0], *first.shape])
    return tf.einsum("tbw->btw", outputs), state
