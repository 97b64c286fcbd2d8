"""Multiply all gradients by one number on torch, in one call."""

import torch


def supports(tensors, factor) -> bool:
    """Return whether all are floating tensors of torch, or None.

    Args:
        tensors: A list of tensors; None for a missing one.
        factor: A number or a scalar.
    """
    return all(x is None or (isinstance(x, torch.Tensor) and x.is_floating_point()) for x in tensors)


def apply(tensors, factor):
    """Multiply each tensor by the factor.

    Args:
        tensors: A list of tensors; None for a missing one.
        factor: A number or a scalar tensor.

    Returns:
        A list of tensors of the same dtypes, the same ones for a factor of 1; None for a missing one.
    """
    if factor == 1:
        return [*tensors]
    scaled = iter(torch._foreach_mul([x for x in tensors if x is not None], factor))
    return [None if x is None else next(scaled).to(x.dtype) for x in tensors]
