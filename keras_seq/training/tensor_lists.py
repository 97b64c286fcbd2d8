"""Measure, scale and add lists of tensors: the gradients, moments and weights of all layers.

On torch the operations are its own and work in place: Keras's call around each of them would take longer than they do.
"""

import keras
from keras import ops

ON_TORCH = keras.backend.backend() == "torch"
if ON_TORCH:
    import torch
    from torch.optim.adam import adam as torch_adam


def sums_of_squares(tensors: list):
    """Return the sum of squares of each tensor in float32 `[N]`, 0 for None."""
    if ON_TORCH:
        zero = torch.zeros((), device=next((x.device for x in tensors if x is not None), None))
        return torch.stack([zero if x is None else torch.linalg.vector_norm(x.float()) for x in tensors]).square()
    return ops.stack([ops.zeros(()) if x is None else ops.sum(ops.square(ops.cast(x, "float32"))) for x in tensors])


def scaled(tensors: list, factor) -> list:
    """Return all tensors times one factor, each in its dtype; None stays None."""
    if ON_TORCH:
        return tensors if factor == 1 else [None if x is None else (x * factor).to(x.dtype) for x in tensors]
    return [None if x is None else x * ops.cast(factor, x.dtype) for x in tensors]


def weighted_sums(tensors: list, others: list, factor: float) -> list:
    """Return `tensor + factor * other` for each pair."""
    if ON_TORCH:
        return [torch.add(x, y, alpha=factor) for x, y in zip(tensors, others, strict=True)]
    return [x + factor * y for x, y in zip(tensors, others, strict=True)]


def add_all(variables: list, tensors: list, decay=1.0, factor=1.0) -> None:
    """Assign `decay * variable + factor * tensor` to each variable; both numbers may be scalar tensors."""
    for variable, tensor in zip(variables, tensors, strict=True):
        if ON_TORCH:
            with torch.no_grad():
                value = variable.value if decay == 1 else variable.value.mul_(decay)
                value.add_(tensor.to(value.dtype), alpha=float(factor))
        else:
            old_share, new_share, new = (ops.cast(x, variable.dtype) for x in (decay, factor, tensor))
            variable.assign(old_share * variable + new_share * new)


def adam_on_torch(variables, gradients, momenta, velocities, iterations, learning_rate, betas, epsilon) -> None:
    """Update the weights and both moments by torch's own Adam, after as many iterations."""
    values = [[variable.value for variable in those] for those in (variables, momenta, velocities)]
    gradients = [gradient.to(value.dtype) for gradient, value in zip(gradients, values[0], strict=True)]
    steps = [torch.tensor(float(iterations)) for _ in variables]
    options = {"lr": float(learning_rate), "beta1": betas[0], "beta2": betas[1], "eps": epsilon, "weight_decay": 0.0}
    with torch.no_grad():
        torch_adam(values[0], gradients, *values[1:], [], steps, foreach=True, amsgrad=False, maximize=False, **options)


def polynomials_on_torch(x, coefficients):
    """Compute `polar_express` (muon.py) with sums inside of the products, as of `a x + M x`."""
    shape = x.shape
    x = x.reshape(-1, *shape[-2:])
    for k, (a, b, c) in enumerate(coefficients):
        gram = torch.bmm(x, x.mT)
        if k == 0:  # the norm is the root of the trace of its square
            factor = torch.linalg.vector_norm(gram, dim=(1, 2), keepdim=True).clamp(min=1e-6) ** -0.5
            x, gram = x * factor, gram * factor**2
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.reshape(shape)
