"""x W + b as one operation of torch, and the cross-entropy with the classes last: Keras moves them."""

import torch
from keras import ops

from keras_seq.ops.dense.reference import cross_entropy, dense


def is_real(x, kernel, bias) -> bool:
    """Return whether x is a tensor of real numbers."""
    return isinstance(x, torch.Tensor) and x.is_floating_point()


@dense.on("torch", supports=is_real)
def linear(x, kernel, bias):
    """Compute x W + b by one matmul that adds the bias, in the dtype of x."""
    bias = None if bias is None else ops.convert_to_tensor(bias, x.dtype)
    return torch.nn.functional.linear(x, ops.convert_to_tensor(kernel, x.dtype).t(), bias)


def has_classes(targets, logits) -> bool:
    """Return whether there is an axis of classes more than targets."""
    return logits.ndim == targets.ndim + 1


@cross_entropy.on("torch", supports=has_classes)
def cross_entropy_of_rows(targets, logits):
    """Compute the cross-entropy of each target."""
    targets, width = targets.long(), logits.shape[-1]
    losses = torch.nn.functional.cross_entropy(logits.reshape(-1, width), targets.reshape(-1), reduction="none")
    return losses.reshape(targets.shape)
