"""Sums of squares of all gradients on torch, in one call."""

import torch


def supports(tensors) -> bool:
    """Return whether all are floating tensors of torch, or None.

    Args:
        tensors: A list of tensors; None for a missing one.
    """
    return all(x is None or (isinstance(x, torch.Tensor) and x.is_floating_point()) for x in tensors)


def apply(tensors):
    """Compute the sum of squares of each tensor.

    Args:
        tensors: A list of tensors; None for a missing one.

    Returns:
        float32 `[N]`; 0 for a missing tensor.
    """
    present = [n for n, x in enumerate(tensors) if x is not None]
    sums = torch.zeros(len(tensors), device=tensors[present[0]].device if present else None)
    if present:
        sums[present] = torch.stack(torch._foreach_norm([tensors[n].float() for n in present])).square()
    return sums
