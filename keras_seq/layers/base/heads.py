"""Features in heads: split and merge them, and normalize those of each head."""

from keras import ops


def split_heads(x, num_heads: int):
    """Return `[B, T, H K]` as `[B, T, H, K]`."""
    return ops.reshape(x, (*ops.shape(x)[:2], num_heads, x.shape[-1] // num_heads))


def merge_heads(x):
    """Return `[B, T, H, V]` as `[B, T, H V]`."""
    return ops.reshape(x, (*ops.shape(x)[:2], x.shape[2] * x.shape[3]))


def normalize_heads(x, gamma, epsilon: float, beta=None, centered: bool = False):
    """Normalize `[B, T, H, V]` over V: RMS normalization, or layer normalization if `centered`.

    gamma and beta are `[V]` or `[H, V]`.
    """
    if centered:
        x = x - _mean(x)
    x = x * ops.rsqrt(_mean(ops.square(x)) + epsilon) * ops.cast(gamma, x.dtype)
    return x if beta is None else x + ops.cast(beta, x.dtype)


def _mean(x):
    """Return the mean over the features; Keras's own takes the mean of float64 in float32 on JAX."""
    return ops.sum(x, axis=-1, keepdims=True) / x.shape[-1]


def normalize_length(x, epsilon: float = 1e-6):
    """Return vectors `[..., K]` of length 1: x / sqrt(sum x^2 + epsilon)."""
    return x * ops.rsqrt(ops.sum(ops.square(x), axis=-1, keepdims=True) + epsilon)
