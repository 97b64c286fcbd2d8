"""The LSTM on JAX: one `lax.scan` in each direction, with the gradient of the weights outside of the loop.

da_t = gradient of z_t + h_{t-1} U
dU = [h_0 .. h_{T-1}]^T [da_1 .. da_T]                 one matmul, where autodiff would add T small ones
"""

import jax
import jax.numpy as jnp
from jax import lax

from keras_seq.ops.lstm import lstm


def is_plain(z, recurrent_kernel, h, c, mask=None, dropout_mask=None, activations=None, reset_mask=None) -> bool:
    """Return whether there is no mask, no reset and no other activation."""
    return mask is None and activations is None and reset_mask is None


@lstm.on("jax", supports=is_plain)
def fast_lstm(z, recurrent_kernel, h, c, mask=None, dropout_mask=None, activations=None, reset_mask=None):
    """Compute all time steps."""
    y, h, c = _lstm(jnp.swapaxes(z, 0, 1), recurrent_kernel, h, c, dropout_mask)
    return jnp.swapaxes(y, 0, 1), h, c


def _drop(h, dropout_mask):
    return h if dropout_mask is None else h * dropout_mask


@jax.custom_vjp
def _lstm(z, recurrent_kernel, h, c, dropout_mask):
    return _forward(z, recurrent_kernel, h, c, dropout_mask)[0]


def _forward(z, recurrent_kernel, h, c, dropout_mask):
    def time_step(state, z_t):
        h, c = state
        a = (z_t + _drop(h, dropout_mask) @ recurrent_kernel).astype(c.dtype)
        i, f, g, o = jnp.split(a, 4, axis=-1)
        i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
        new_c = f * c + i * g
        tanh_c = jnp.tanh(new_c)
        new_h = (o * tanh_c).astype(h.dtype)
        return (new_h, new_c), (new_h, c, tanh_c, jnp.concatenate([i, f, g, o], axis=-1))

    (last_h, last_c), (y, *stored) = lax.scan(time_step, (h, c), z)
    return (y, last_h, last_c), (y, *stored, recurrent_kernel, h, dropout_mask)


def _backward(residuals, gradients):
    y, previous_c, tanh_c, gates, recurrent_kernel, h, dropout_mask = residuals
    dy, dh, dc = gradients

    def time_step(state, stored):
        dh, dc = state
        dy_t, c, tanh_c, gates = stored
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        dh = (dh + dy_t).astype(dc.dtype)
        dc = dc + dh * o * (1 - tanh_c * tanh_c)
        da = [dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g * g), dh * tanh_c * o * (1 - o)]
        da = jnp.concatenate(da, axis=-1).astype(y.dtype)
        return (_drop(da @ recurrent_kernel.T, dropout_mask), dc * f), da

    (dh, dc), da = lax.scan(time_step, (dh, dc), (dy, previous_c, tanh_c, gates), reverse=True)
    previous_h = _drop(jnp.concatenate([h[None], y[:-1]]), dropout_mask)
    d_dropped = None if dropout_mask is None else jnp.zeros_like(dropout_mask)
    return da, jnp.einsum("tbu,tbw->uw", previous_h, da), dh, dc, d_dropped


_lstm.defvjp(_forward, _backward)
