"""Linear recurrences on TensorFlow.

On a CPU it runs one position after the other: without thousands of cores, log2(T) rounds over all positions cost more
than T steps over one. The gradient is the same recurrence in reverse:

    g_t = dy_t + a_{t+1} g_{t+1};      db_t = g_t;    da_t = g_t h_{t-1};    dh_0 = a_1 g_1

Both loops are separate functions compiled by XLA, which fuses each step into one loop over memory.

On a GPU it runs log2(T) rounds of the composition (Hillis & Steele, 1986), which combine each position with the one 1,
2, 4, ... before. XLA cannot compile Keras's own associative scan on TensorFlow.
"""

import tensorflow as tf

from keras_seq.ops.dispatch import on_cpu
from keras_seq.ops.linear_recurrence import (
    has_several_positions,
    linear_recurrence,
    log_linear_recurrence,
)


@linear_recurrence.on("tensorflow", supports=has_several_positions)
def looped_or_composed(a, b, h):
    """Compute h at every position."""
    a, b, h = (tf.convert_to_tensor(v) for v in (a, b, h))
    return _recurrence(a, b, h) if on_cpu() or a.shape[1] is None else _hillis_steele_scan(a, b, h)


@log_linear_recurrence.on("tensorflow", supports=has_several_positions)
def direct_form(log_a, log_b, h):
    """Compute it without logarithms, whose products underflow only where they are negligible."""
    return looped_or_composed(tf.exp(log_a), tf.exp(log_b), h)


def _hillis_steele_scan(a, b, h):
    b = tf.concat([b[:, :1] + a[:, :1] * h[:, None], b[:, 1:]], axis=1)
    shift = 1
    while shift < a.shape[1]:
        b = tf.concat([b[:, :shift], b[:, shift:] + a[:, shift:] * b[:, :-shift]], axis=1)
        a = tf.concat([a[:, :shift], a[:, shift:] * a[:, :-shift]], axis=1)
        shift *= 2
    return b


def _recurrence(a, b, h):
    # Hides the loop from eager gradient tapes, and from gradients of functions.
    states = tf.stop_gradient(_loop(*map(tf.stop_gradient, (a, b, h))))
    states.set_shape(b.shape)
    return _with_custom_gradient(a, b, h, states)


@tf.custom_gradient
def _with_custom_gradient(a, b, h, states):
    """Return `states`, the result of the loop for a, b and h, with the gradient by these three."""

    def gradient(dy):
        next_a = tf.concat([a[:, 1:], tf.zeros_like(a[:, :1])], axis=1)
        g = tf.reverse(_recurrence(tf.reverse(next_a, [1]), tf.reverse(dy, [1]), tf.zeros_like(h)), [1])
        differentiable_states = _with_custom_gradient(a, b, h, states)  # for second derivatives
        previous = tf.concat([h[:, None], differentiable_states[:, :-1]], axis=1)
        return g * previous, g, a[:, 0] * g[:, 0], tf.zeros_like(states)

    return tf.identity(states), gradient


@tf.function(jit_compile=True, reduce_retracing=True, autograph=False)
def _loop(a, b, h):
    a, b = (tf.einsum("bt...->tb...", v) for v in (a, b))
    length = tf.shape(a)[0]
    states = tf.TensorArray(h.dtype, length, element_shape=h.shape)

    def position(t, h, states):
        h = a[t] * h + b[t]
        return t + 1, h, states.write(t, h)

    _, _, states = tf.while_loop(lambda t, *_: t < length, position, (0, h, states))
    return tf.einsum("tb...->bt...", states.stack())
