"""x W + b as one operation of torch, the cross-entropy with the classes last, which Keras moves, and normalization.

torch normalizes in float32 or wider inside. On a CPU it has no operation for RMS normalization, and differentiates each
of the six that it takes; here it has a gradient of its own. With n = x / r and r = sqrt(mean x^2 + epsilon), for rows x
of D elements:

    y = gamma n,    d gamma = sum over rows of dy n,    dx = (gamma dy - n (gamma dy . n) / D) / r
"""

import torch
from keras import ops

from keras_seq.ops.position_wise import cross_entropy, dense, normalize


def is_real(x, *others) -> bool:
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


@normalize.on("torch", supports=is_real)
def normalize_rows(x, gamma, beta, epsilon, centered):
    """Normalize the last axis."""
    shape, gamma, beta = x.shape[-1:], _like(gamma, x), _like(beta, x)
    if centered:
        return torch.nn.functional.layer_norm(x, shape, gamma, beta, epsilon)
    is_slow = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    if is_slow and torch.is_grad_enabled() and not torch.compiler.is_dynamo_compiling():
        return _RMSNormalization.apply(x, gamma, epsilon)[0]
    return torch.nn.functional.rms_norm(x, shape, gamma, epsilon)


def _like(weight, x):
    return None if weight is None else ops.convert_to_tensor(weight, x.dtype)


class _RMSNormalization(torch.autograd.Function):
    """Return y, n and 1 / r, the last two for the gradient: as results they have gradients, for second derivatives."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, gamma, epsilon):
        inverse = (torch.linalg.vector_norm(x, dim=-1, keepdim=True).square() / x.shape[-1] + epsilon).rsqrt()
        n = x * inverse
        return n * gamma, n, inverse

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[1], *output[1:])

    @staticmethod
    def backward(ctx, dy, dn, dinverse):
        gamma, n, inverse = ctx.saved_tensors
        dy = torch.zeros_like(n) if dy is None else dy
        products = dy * n
        dgamma, dot = products.reshape(-1, len(gamma)).sum(0), (products @ gamma).unsqueeze(-1)
        dy = dy * gamma
        if dn is not None:
            dy, dot = dy + dn, dot + torch.linalg.vecdot(dn, n).unsqueeze(-1)
        if dinverse is not None:
            dot = dot + dinverse * inverse
        return torch.addcmul(dy, n, dot, value=-1 / n.shape[-1]) * inverse, dgamma, None
