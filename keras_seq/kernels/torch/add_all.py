"""Add a tensor to each of several variables on torch, in place and in one call."""

import torch

from keras_seq.kernels.torch.values import values


def supports(variables, tensors, decay, factor) -> bool:
    """Return whether each tensor has the dtype of its variable.

    Args:
        variables: Keras variables.
        tensors: As many tensors.
        decay: A number or a scalar.
        factor: A number or a scalar.
    """
    return all(variable.dtype == tensor.dtype for variable, tensor in zip(values(variables), tensors, strict=True))


@torch.no_grad()
def apply(variables, tensors, decay, factor):
    """Assign `decay * variable + factor * tensor` to each variable.

    Args:
        variables: Keras variables.
        tensors: As many tensors, of their shapes.
        decay: A number or a scalar.
        factor: A number or a scalar.
    """
    weights = values(variables)
    if factor == 1 - decay:
        torch._foreach_lerp_(weights, tensors, float(factor))  # one pass
        return
    if decay != 1:
        torch._foreach_mul_(weights, decay)
    torch._foreach_add_(weights, tensors, alpha=factor)
