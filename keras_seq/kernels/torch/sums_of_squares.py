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
    zero = torch.zeros((), device=next((x.device for x in tensors if x is not None), None))
    norms = torch._foreach_norm([zero if x is None else x.float() for x in tensors])
    return torch.stack(norms).square()
