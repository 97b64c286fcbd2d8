"""`layers.linear_recurrence.linear_recurrence` on JAX's CPU: one `lax.scan`.

Without thousands of cores, log2(T) rounds over all positions cost more than T steps over one.
"""

import jax.numpy as jnp
from jax import lax

from keras_seq.kernels.devices import on_cpu


def supports(a, b, h) -> bool:
    """Return whether there is no GPU.

    Args:
        a: `[B, T, ...]`.
        b: `[B, T, ...]`.
        h: `[B, ...]`.
    """
    return on_cpu()


def apply(a, b, h):
    """Compute h at every position, as `keras_seq.layers.linear_recurrence.linear_recurrence`.

    Args:
        a: `[B, T, ...]`, decays.
        b: `[B, T, ...]`, of the same shape.
        h: `[B, ...]`, state before the first position.

    Returns:
        `[B, T, ...]`.
    """

    def time_step(h, decay_and_input):
        a_t, b_t = decay_and_input
        h = a_t * h + b_t
        return h, h

    _, states = lax.scan(time_step, h, (jnp.swapaxes(a, 0, 1), jnp.swapaxes(b, 0, 1)))
    return jnp.swapaxes(states, 0, 1)
