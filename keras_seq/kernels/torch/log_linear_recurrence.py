"""`layers.linear_recurrence.log_linear_recurrence` on torch's CPU.

The direct form is used: a product of decays that underflows is negligible, and sums of non-negative terms lose no
precision.
"""

import torch

from keras_seq.kernels.torch import linear_recurrence


def supports(log_a, log_b, h) -> bool:
    """Return whether the direct form is computed by a kernel.

    Args:
        log_a: `[B, T, ...]`.
        log_b: `[B, T, ...]`.
        h: `[B, ...]`.
    """
    return linear_recurrence.supports(log_a, log_b, h)


def apply(log_a, log_b, h):
    """Compute h at every position, as `keras_seq.layers.linear_recurrence.log_linear_recurrence`.

    Args:
        log_a: `[B, T, ...]`, logarithms of the decays.
        log_b: `[B, T, ...]`, logarithms of b.
        h: `[B, ...]`, state before the first position.

    Returns:
        `[B, T, ...]`.
    """
    return linear_recurrence.apply(torch.exp(log_a), torch.exp(log_b), h)
