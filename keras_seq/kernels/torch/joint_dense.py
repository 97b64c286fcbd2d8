"""Several dense layers of the same input on torch: one matmul with all of their kernels beside each other.

[y_1 | y_2 | y_3] = x [W_1 | W_2 | W_3] + [b_1 | b_2 | b_3]
"""

import torch

from keras_seq.kernels.torch import direct_call
from keras_seq.kernels.torch.values import value_like


def supports(layers, x) -> bool:
    """Return whether the layers may be called directly, and either all have a bias or none.

    Args:
        layers: `keras_seq.layers.Dense` layers without an activation.
        x: `[..., D]`.
    """
    return len({layer.bias is None for layer in layers}) == 1 and all(
        direct_call.supports(layer, (x,), {}) for layer in layers
    )


def apply(layers, x):
    """Compute all layers.

    Args:
        layers: `keras_seq.layers.Dense` layers without an activation.
        x: `[..., D]`.

    Returns:
        A tuple of `[..., units]`, views of one tensor.
    """
    kernels = [value_like(layer.kernel, x) for layer in layers]
    bias = None if layers[0].bias is None else torch.cat([value_like(layer.bias, x) for layer in layers])
    y = torch.nn.functional.linear(x, torch.cat(kernels, dim=1).t(), bias)
    return y.split([kernel.shape[1] for kernel in kernels], dim=-1)
