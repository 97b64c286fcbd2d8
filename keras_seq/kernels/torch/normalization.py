"""Layer and RMS normalization on torch, which computes in float32 or wider inside."""

import torch

from keras_seq.kernels.torch.values import value_like


def supports(x, gamma, beta, epsilon, centered) -> bool:
    """Return whether x is a tensor of real numbers.

    Args:
        x: `[..., D]`.
        gamma: `[D]`.
        beta: `[D]`, or None.
        epsilon: Added to the variance.
        centered: Whether to subtract the mean first.
    """
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def apply(x, gamma, beta, epsilon, centered):
    """Normalize the last axis, as `keras_seq.layers.normalization.normalize`.

    Args:
        x: `[..., D]`.
        gamma: `[D]`.
        beta: `[D]`, or None.
        epsilon: Added to the variance.
        centered: Whether to subtract the mean first.

    Returns:
        `[..., D]`.
    """
    shape, gamma, beta = x.shape[-1:], value_like(gamma, x), value_like(beta, x)
    if centered:
        return torch.nn.functional.layer_norm(x, shape, gamma, beta, epsilon)
    return torch.nn.functional.rms_norm(x, shape, gamma, epsilon)
