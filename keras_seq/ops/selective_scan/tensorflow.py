"""The selective scan on TensorFlow's CPU: one position after the other.

Only h is ever stored as `[B, T, E, N]`.

With  a_t = exp(delta_t A)  and  g_t  the gradient of the loss by h_t, in reverse:

    g_t = dy_t C_t + a_{t+1} g_{t+1}                                               [B, E, N]
    dC_t = sum_E dy_t h_t;   dB_t = sum_E g_t delta_t x_t;   dx_t = delta_t sum_N g_t B_t
    d(delta_t) = x_t sum_N g_t B_t + sum_N A g_t a_t h_{t-1};   dA = sum_{B, t} delta_t g_t a_t h_{t-1}

Both loops are separate functions compiled by XLA, which fuses each step into one loop over memory.
"""

import tensorflow as tf

from keras_seq.ops.linear_recurrence.tensorflow import looped_or_composed as linear_recurrence
from keras_seq.ops.selective_scan import selective_scan
from keras_seq.ops.xla import differentiable_vjp


def has_several_positions(x, delta, a, b, c, h, reset_mask=None) -> bool:
    """Return whether T is not known to be 1, for which the reference has no loop."""
    return x.shape[1] != 1


@selective_scan.on("tensorflow", supports=has_several_positions, device="cpu")
def looped(x, delta, a, b, c, h, reset_mask=None):
    """Compute y at every position and the last state."""
    resets = None if reset_mask is None else tf.transpose(reset_mask)

    def reference(x, delta, a, b, c, h):
        decay = tf.exp(delta[..., None] * a)
        if reset_mask is not None:
            decay = tf.where(reset_mask[..., None, None], tf.zeros_like(decay), decay)
        states = linear_recurrence(decay, (delta * x)[..., None] * b[:, :, None], h)
        return tf.reduce_sum(states * c[:, :, None], axis=-1), states[:, -1]

    @tf.custom_gradient
    def scan(*args):
        # hides the loop from eager gradient tapes
        stopped = [*map(tf.stop_gradient, args)]
        y, last, previous_states = _forward(*stopped, resets)
        y.set_shape(args[0].shape)

        def gradient(dy, dh):
            return _backward(*stopped[:-1], previous_states, last, resets, dy, dh)

        return (y, last), differentiable_vjp(gradient, reference, args)

    return scan(*(tf.convert_to_tensor(v) for v in (x, delta, a, b, c, h)))


@tf.function(jit_compile=True, reduce_retracing=True)
def _forward(x, delta, a, b, c, h, resets):
    """Return y, the last h, and the h before each position, as it is before `resets [T, B]` make it zeros."""
    x, delta, b, c = map(_swap_batch_and_time, (x, delta, b, c))
    length = tf.shape(x)[0]

    def position(t, h, y, previous_states):
        previous_states = previous_states.write(t, h)
        h = _reset(h, resets, t)
        h = tf.exp(delta[t][:, :, None] * a) * h + (delta[t] * x[t])[:, :, None] * b[t][:, None]
        return t + 1, h, y.write(t, tf.reduce_sum(h * c[t][:, None], axis=-1)), previous_states

    arrays = (tf.TensorArray(h.dtype, length, element_shape=shape) for shape in (x.shape[1:], h.shape))
    _, h, y, previous_states = tf.while_loop(lambda t, *_: t < length, position, (0, h, *arrays))
    return _swap_batch_and_time(y.stack()), h, previous_states.stack()


@tf.function(jit_compile=True, reduce_retracing=True)
def _backward(x, delta, a, b, c, previous_states, last, resets, dy, dh):
    x, delta, b, c, dy = map(_swap_batch_and_time, (x, delta, b, c, dy))
    length = tf.shape(x)[0]

    def position(t, dh, h, da, dx, ddelta, db, dc):
        g = dh + dy[t][:, :, None] * c[t][:, None]
        dc = dc.write(t, tf.reduce_sum(dy[t][:, :, None] * h, axis=1))
        db = db.write(t, tf.reduce_sum(g * (delta[t] * x[t])[:, :, None], axis=1))
        g_b = tf.reduce_sum(g * b[t][:, None], axis=-1)
        dx = dx.write(t, g_b * delta[t])
        dh = _reset(g * tf.exp(delta[t][:, :, None] * a), resets, t)
        h = previous_states[t]
        ddelta = ddelta.write(t, g_b * x[t] + tf.reduce_sum(dh * h * a, axis=-1))
        da = da + tf.reduce_sum(dh * h * delta[t][:, :, None], axis=0)
        return t - 1, dh, h, da, dx, ddelta, db, dc

    arrays = (tf.TensorArray(dh.dtype, length, element_shape=v.shape[1:]) for v in (x, delta, b, c))
    start = (length - 1, dh, last, tf.zeros_like(a), *arrays)
    _, dh, _, da, *arrays = tf.while_loop(lambda t, *_: t >= 0, position, start)
    dx, ddelta, db, dc = (_swap_batch_and_time(array.stack()) for array in arrays)
    return dx, ddelta, da, db, dc, dh


def _reset(h, resets, t):
    return h if resets is None else tf.where(resets[t][:, None, None], tf.zeros_like(h), h)


def _swap_batch_and_time(x):
    """Transpose `[B, T, ...]` to `[T, B, ...]`, or back."""
    return tf.einsum("bt...->tb...", x)
