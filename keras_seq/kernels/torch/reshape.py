"""`ops.reshape` on torch, without Keras's search for symbolic tensors, which takes ten times as long as the view."""

import torch


def supports(x, shape) -> bool:
    """Return whether x is a tensor of torch.

    Args:
        x: A tensor.
        shape: Its new shape, one size of which may be -1.
    """
    return isinstance(x, torch.Tensor)


def apply(x, shape):
    """Return the tensor in its new shape.

    Args:
        x: A tensor.
        shape: Its new shape, one size of which may be -1.
    """
    return x.reshape(shape)
