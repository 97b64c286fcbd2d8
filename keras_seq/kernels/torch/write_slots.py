"""Write slots of a key/value cache on torch: one operation, without an index for each number."""

import torch


def supports(slots, start, new) -> bool:
    """Return whether the slots are a tensor of torch.

    Args:
        slots: `[B, S, ...]`.
        start: int32 scalar, the first slot to write.
        new: `[B, T, ...]`.
    """
    return isinstance(slots, torch.Tensor)


def apply(slots, start, new):
    """Return the slots with T of them replaced.

    Args:
        slots: `[B, S, ...]`.
        start: int32 scalar, the first slot to write.
        new: `[B, T, ...]`, of the dtype of the slots.
    """
    return slots.index_copy(1, start + torch.arange(new.shape[1], device=slots.device), new)
