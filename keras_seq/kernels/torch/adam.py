"""Adam and AdamW on torch: the fused update of all weights, which takes the place of ten operations for each of them.

Keras divides by sqrt(v) + epsilon and torch by sqrt(v / (1 - beta_2^t)) + epsilon: torch's epsilon is the larger one by
1 / sqrt(1 - beta_2^t).
"""

import torch

from keras_seq.kernels.torch.values import values


def supports(variables, gradients, *others) -> bool:
    """Return whether all gradients and variables are of float32 or float64, and without gaps.

    Args:
        variables: Weights.
        gradients: Their gradients.
        *others: The other arguments of `apply`.
    """
    weights = values(variables)
    kinds = {(x.dtype, x.device) for x in (*gradients, *weights)}
    return (
        len(kinds) == 1
        and kinds.pop()[0] in (torch.float32, torch.float64)
        and all(x.is_contiguous() or x.permute(_axes_in_memory(x)).is_contiguous() for x in weights)
    )


@torch.no_grad()
def apply(variables, gradients, momenta, velocities, iterations, learning_rate, beta_1, beta_2, epsilon):
    """Update the variables and the moments; neither weight decay nor the count of the steps is included.

    Args:
        variables: Weights.
        gradients: Their gradients, already clipped.
        momenta: Their first moments.
        velocities: Their second moments.
        iterations: Steps before this one, a number or a scalar as all that follow.
        learning_rate: Of this step.
        beta_1: Decay of the first moment.
        beta_2: Decay of the second moment.
        epsilon: Keras's.
    """
    step = float(iterations) + 1
    moments = values(momenta), values(velocities)
    weights = values(variables)
    gradients = [*gradients]
    for n, weight in enumerate(weights):  # the operation reads all four in the order of memory: that of the weight
        if not all(x.is_contiguous() for x in (weight, moments[0][n], moments[1][n])):
            axes = _axes_in_memory(weight)
            for moment in moments:
                if not moment[n].permute(axes).is_contiguous():
                    moment[n].data = moment[n].permute(axes).contiguous().permute([*map(axes.index, range(len(axes)))])
            for tensors in (weights, gradients, *moments):
                tensors[n] = tensors[n].permute(axes)
    torch._fused_adam_(
        weights,
        [gradient.contiguous() for gradient in gradients],
        *moments,
        [],
        [torch.tensor(step, device=weights[0].device)] * len(weights),
        amsgrad=False,
        lr=float(learning_rate),
        beta1=beta_1,
        beta2=beta_2,
        weight_decay=0.0,
        eps=float(epsilon) / (1 - beta_2**step) ** 0.5,
        maximize=False,
    )


def _axes_in_memory(x):
    """Return the axes of a tensor, the one that changes least often in memory first."""
    return sorted(range(x.ndim), key=x.stride, reverse=True)
