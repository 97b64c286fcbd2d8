"""Dtypes and padding of tensors."""

import keras
from keras import ops


def at_least_float32(dtype) -> str:
    """Return `"float64"` for float64, else `"float32"`.

    (`keras.backend.result_type` narrows float64 on JAX and torch.)
    """
    return "float64" if keras.backend.standardize_dtype(dtype) == "float64" else "float32"


def where_valid(mask, x, otherwise: float = 0.0):
    """Return x `[B, T, ...]`, with another number at padding.

    Args:
        mask: `[B, T]` boolean, or None.
        x: `[B, T, ...]`.
        otherwise: The number.
    """
    if mask is None:
        return x
    for _ in x.shape[2:]:
        mask = ops.expand_dims(mask, -1)
    return ops.where(mask, x, otherwise)
