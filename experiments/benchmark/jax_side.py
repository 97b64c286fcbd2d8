"""Differentiate a function, wait for the device and describe it, with JAX."""

import jax
import jax.numpy as jnp

wait = jax.block_until_ready  # JAX returns before the device has finished


def gradients(function):
    """Return a compiled function from arrays to the gradients of the sum of squares of `function(*arrays)`."""

    def total(*arrays):
        return jnp.sum(jnp.square(function(*arrays).astype("float32")))

    return jax.jit(lambda *arrays: jax.grad(total, argnums=range(len(arrays)))(*arrays))


def device() -> tuple[str, str]:
    """Return the platform, "cpu" or "gpu", and the name of the device."""
    first = jax.local_devices()[0]
    return first.platform, first.device_kind


def peak_bytes() -> int | None:
    """Return the peak memory of the device; None where it does not report it, as on a CPU."""
    return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
