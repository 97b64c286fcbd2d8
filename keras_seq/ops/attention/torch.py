"""Attention by torch's `scaled_dot_product_attention`: flash attention where torch has it, on a CPU too.

It does not store the T x S scores (Dao et al., 2022, arXiv:2205.14135). A query with nothing to attend to gives zeros,
and gradients of zero.
"""

import contextlib

import torch

from keras_seq.ops.attention.reference import causal_attention, masked_attention, write_slots


def has_no_segments(q, k, v, dropout=None, segments=None) -> bool:
    """Return whether there are no segments, which `masked_attention` takes as a mask."""
    return segments is None


@causal_attention.on("torch", supports=has_no_segments)
def causal_dot_product(q, k, v, dropout=None, segments=None):
    """Compute causal attention."""
    return _scaled_dot_product(q, k, v, causal=True, dropout=dropout)


def has_one_batch_size(q, k, v, mask, bias, dropout) -> bool:
    """Return whether queries, keys and values have the same batch size; the reference refuses others."""
    return q.shape[0] == k.shape[0] == v.shape[0] and k.shape[1] == v.shape[1]


@masked_attention.on("torch", supports=has_one_batch_size)
def masked_dot_product(q, k, v, mask, bias, dropout):
    """Compute attention without its weights."""
    return _scaled_dot_product(q, k, v, mask, bias, dropout=dropout)


def is_tensor(slots, start, new) -> bool:
    """Return whether the slots are a tensor of torch."""
    return isinstance(slots, torch.Tensor)


@write_slots.on("torch", supports=is_tensor)
def copied_slots(slots, start, new):
    """Replace slots by one operation, without an index for each number."""
    return slots.index_copy(1, start + torch.arange(new.shape[1], device=slots.device), new)


def _scaled_dot_product(q, k, v, mask=None, bias=None, causal: bool = False, dropout=None):
    dtype = q.dtype
    if bias is not None:
        wide = torch.promote_types(dtype, torch.float32)  # biases are too coarse in half precision
        q, k, v, mask = q.to(wide), k.to(wide), v.to(wide), _as_bias(mask, bias.to(wide))
    elif mask is not None:
        mask = _with_head_axis(mask)
    with contextlib.nullcontext() if dropout is None else _seeded(dropout, q.device):
        y = torch.nn.functional.scaled_dot_product_attention(
            *(x.transpose(1, 2) for x in (q, k, v)),
            attn_mask=mask,
            dropout_p=0.0 if dropout is None else dropout.rate,
            is_causal=causal,
            enable_gqa=q.shape[2] != k.shape[2],
        )
    return y.transpose(1, 2).to(dtype)


def _with_head_axis(mask):
    mask = mask.to(torch.bool)
    return mask[:, None] if mask.ndim == 3 else mask


def _as_bias(mask, bias):
    return bias if mask is None else bias.masked_fill(~_with_head_axis(mask), -torch.inf)


@contextlib.contextmanager
def _seeded(dropout, device):
    """Let the seed generator of the layer decide what torch drops."""
    seed = hash(tuple(dropout.seed_generator.next().tolist()))
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
