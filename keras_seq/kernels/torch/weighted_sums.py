"""Add a multiple of each of several tensors to another on torch, in one call."""

import torch


def supports(tensors, others, factor) -> bool:
    """Return whether all are tensors, the two of each pair of one dtype.

    Args:
        tensors: A list of tensors.
        others: As many tensors.
        factor: A number.
    """
    pairs = zip(tensors, others, strict=True)
    return all(isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) and x.dtype == y.dtype for x, y in pairs)


def apply(tensors, others, factor):
    """Compute `tensor + factor * other` for each pair.

    Args:
        tensors: A list of tensors.
        others: As many tensors, of their shapes.
        factor: A number.

    Returns:
        A list of tensors.
    """
    return [*torch._foreach_add(tensors, others, alpha=factor)]
