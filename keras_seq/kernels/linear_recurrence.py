"""`layers.linear_recurrence.linear_recurrence` on TensorFlow.

On a CPU one position after the other: without thousands of cores to fill, log2(T) rounds over all positions cost more
than T steps over one. The gradient is the same recurrence from the end:

    g_t = dy_t + a_{t+1} g_{t+1};      db_t = g_t;    da_t = g_t h_{t-1};    dh_0 = a_1 g_1

The two loops are functions of their own, compiled by XLA, which makes one loop over memory of each step.

On a GPU in log2(T) rounds of the composition (Hillis & Steele, 1986), each position with the one 1, 2, 4, ... before.
Keras's own associative scan cannot be compiled by XLA on TensorFlow.
"""

import tensorflow as tf

from keras_seq.kernels.devices import on_cpu


def supports(a, b, h):
    """Whether the twin takes these arguments: all."""
    return True


def apply(a, b, h):
    """The twin of `keras_seq.layers.linear_recurrence.linear_recurrence`; see there."""
    a, b, h = (tf.convert_to_tensor(v) for v in (a, b, h))
    return _recurrence(a, b, h) if on_cpu() or a.shape[1] is None else _rounds(a, b, h)


def _rounds(a, b, h):
    b = tf.concat([b[:, :1] + a[:, :1] * h[:, None], b[:, 1:]], axis=1)
    shift = 1
    while shift < a.shape[1]:
        b = tf.concat([b[:, :shift], b[:, shift:] + a[:, shift:] * b[:, :-shift]], axis=1)
        a = tf.concat([a[:, :shift], a[:, shift:] * a[:, :-shift]], axis=1)
        shift *= 2
    return b


def _recurrence(a, b, h):
    memory = _loop(*map(tf.stop_gradient, (a, b, h)))  # an eager tape is not to look inside
    memory.set_shape(b.shape)
    return _differentiable(a, b, h, memory)


@tf.custom_gradient
def _differentiable(a, b, h, memory):
    """`memory`, which is what the loop gave for a, b and h, with the gradient by these."""

    def gradient(dy):
        after = tf.concat([a[:, 1:], tf.zeros_like(a[:, :1])], axis=1)
        g = tf.reverse(_recurrence(tf.reverse(after, [1]), tf.reverse(dy, [1]), tf.zeros_like(h)), [1])
        again = _differentiable(a, b, h, memory)  # no constant, for whoever differentiates once more
        before = tf.concat([h[:, None], again[:, :-1]], axis=1)
        return g * before, g, a[:, 0] * g[:, 0], tf.zeros_like(memory)

    return tf.identity(memory), gradient


@tf.function(jit_compile=True, reduce_retracing=True)
def _loop(a, b, h):
    a, b = (tf.einsum("bt...->tb...", v) for v in (a, b))
    length = tf.shape(a)[0]
    memory = tf.TensorArray(h.dtype, length, element_shape=h.shape)

    def position(t, h, memory):
        h = a[t] * h + b[t]
        return t + 1, h, memory.write(t, h)

    _, _, memory = tf.while_loop(lambda t, *_: t < length, position, (0, h, memory))
    return tf.einsum("tb...->bt...", memory.stack())
