"""x W + b on torch: one matmul that adds the bias."""

import torch

from keras_seq.kernels.torch.values import value_like


def supports(x, kernel, bias) -> bool:
    """Return whether x is a tensor of real numbers.

    Args:
        x: `[..., D]`.
        kernel: `[D, W]`.
        bias: `[W]`, or None.
    """
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def apply(x, kernel, bias):
    """Compute x W + b, as `keras_seq.layers.dense.dense`.

    Args:
        x: `[..., D]`.
        kernel: `[D, W]`.
        bias: `[W]`, or None.

    Returns:
        `[..., W]`, in the dtype of x.
    """
    return torch.nn.functional.linear(x, value_like(kernel, x).t(), value_like(bias, x))
