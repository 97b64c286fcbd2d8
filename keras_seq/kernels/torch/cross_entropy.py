"""Cross-entropy of logits on torch, with the classes last in memory (Keras moves them, which is slower)."""

import torch


def supports(targets, logits) -> bool:
    """Return whether there is an axis of classes more than targets.

    Args:
        targets: Ids `[...]`.
        logits: `[..., V]`.
    """
    return logits.ndim == targets.ndim + 1


def apply(targets, logits):
    """Compute the cross-entropy of each target.

    Args:
        targets: Ids `[...]`, each below V.
        logits: `[..., V]`.

    Returns:
        `[...]`, in nats.
    """
    targets, width = targets.long(), logits.shape[-1]
    losses = torch.nn.functional.cross_entropy(logits.reshape(-1, width), targets.reshape(-1), reduction="none")
    return losses.reshape(targets.shape)
