"""Linear recurrences on JAX's CPU: one `lax.scan`.

Without thousands of cores, log2(T) rounds over all positions cost more than T steps over one.
"""

import jax.numpy as jnp
from jax import lax

from keras_seq.ops.linear_recurrence import (
    has_several_positions,
    linear_recurrence,
    log_linear_recurrence,
)


@linear_recurrence.on("jax", supports=has_several_positions, device="cpu")
def scanned(a, b, h):
    """Compute h at every position."""

    def time_step(h, decay_and_input):
        a_t, b_t = decay_and_input
        h = a_t * h + b_t
        return h, h

    _, states = lax.scan(time_step, h, (jnp.swapaxes(a, 0, 1), jnp.swapaxes(b, 0, 1)))
    return jnp.swapaxes(states, 0, 1)


@log_linear_recurrence.on("jax", supports=has_several_positions, device="cpu")
def direct_form(log_a, log_b, h):
    """Compute it without logarithms, whose products underflow only where they are negligible."""
    return scanned(jnp.exp(log_a), jnp.exp(log_b), h)
