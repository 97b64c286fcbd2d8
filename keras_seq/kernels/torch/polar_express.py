"""The matrix polynomials of Muon on torch: sums are part of the products, as of `a x + M x`, which saves passes."""

import torch


def supports(x, coefficients) -> bool:
    """Return whether these are tensors of matrices.

    Args:
        x: `[..., rows, columns]`.
        coefficients: A list of (a, b, c).
    """
    return isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel() > 0


def apply(x, coefficients):
    """Compute the steps of `training/polar_express.py`.

    Args:
        x: `[..., rows, columns]`.
        coefficients: A list of (a, b, c), one for each step.

    Returns:
        `[..., rows, columns]`.
    """
    shape = x.shape
    x = x.reshape(-1, *shape[-2:])
    for k, (a, b, c) in enumerate(coefficients):
        gram = torch.bmm(x, x.mT)
        if k == 0:  # the norm is the root of that trace
            factor = torch.linalg.vector_norm(gram, dim=(1, 2), keepdim=True).clamp(min=1e-6) ** -0.5
            x, gram = x * factor, gram * factor**2
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.reshape(shape)
