"""Attention by torch's `scaled_dot_product_attention`: flash attention where torch has it, on a CPU too.

It does not store the T x S scores (Dao et al., 2022, arXiv:2205.14135). A query with nothing to attend to gives zeros,
and gradients of zero.
"""

import contextlib

import torch
from torch.nn.functional import pad

from keras_seq.ops.attention import causal_attention, masked_attention, write_slots


def has_no_segments(q, k, v, dropout=None, segments=None, sinks=None, decay_sums=None) -> bool:
    """Return whether there are no segments, which `masked_attention` takes as a mask."""
    return segments is None


@causal_attention.on("torch", supports=has_no_segments)
def causal_dot_product(q, k, v, dropout=None, segments=None, sinks=None, decay_sums=None):
    """Compute causal attention."""
    if sinks is None and decay_sums is None:
        return _scaled_dot_product(q, k, v, causal=True, dropout=dropout)
    dtype, (heads, key_dim), value_dim = q.dtype, q.shape[2:], v.shape[-1]
    wide = torch.promote_types(dtype, torch.float32)  # what is added to the scores is too coarse in half precision
    q, k, v = (x.to(wide) for x in (q * key_dim**-0.5, k, v))
    if decay_sums is not None:  # c_t - c_s = [c_t, 1] [1, -c_s], two more features of queries and keys
        k, v = (x.repeat_interleave(heads // x.shape[2], dim=2) for x in (k, v))
        decay_sums = decay_sums.to(wide)[..., None]
        q = torch.cat([q, decay_sums, torch.ones_like(decay_sums)], dim=-1)
        k = torch.cat([k, torch.ones_like(decay_sums), -decay_sums], dim=-1)
    if sinks is not None:  # the score of a key before all others, whose value is zero, by one more feature
        q = torch.cat([q, sinks.to(wide)[:, None].expand(*q.shape[:3], 1)], dim=-1)
        q, k, v = (pad(x, (0, width, 0, 0, 1, 0)) for x, width in ((q, 0), (k, 1), (v, 0)))
        is_sink = (torch.arange(k.shape[1], device=k.device) == 0)[:, None] & (
            torch.arange(k.shape[3], device=k.device) == k.shape[3] - 1
        )
        k = k + is_sink[:, None].to(wide)
    v = pad(v, (0, max(q.shape[-1] - value_dim, 0)))  # flash attention takes one width
    y = _scaled_dot_product(q, k, v, causal=True, dropout=dropout, scale=1.0)
    return y[:, 0 if sinks is None else 1 :, :, :value_dim].to(dtype)


def has_one_batch_size(q, k, v, mask, bias, dropout, sinks=None) -> bool:
    """Return whether queries, keys and values have the same batch size; the reference refuses others."""
    return q.shape[0] == k.shape[0] == v.shape[0] and k.shape[1] == v.shape[1]


@masked_attention.on("torch", supports=has_one_batch_size)
def masked_dot_product(q, k, v, mask, bias, dropout, sinks=None):
    """Compute attention without its weights."""
    if sinks is None:
        return _scaled_dot_product(q, k, v, mask, bias, dropout=dropout)
    # one more key, of score and value zero: the sink is its bias
    k, v = (pad(x, (0, 0, 0, 0, 0, 1)) for x in (k, v))
    size, wide = k.shape[1], torch.promote_types(q.dtype, torch.float32)
    bias = torch.zeros((1, 1, 1, size - 1), dtype=wide, device=q.device) if bias is None else bias.to(wide)
    shape = (*torch.broadcast_shapes(bias.shape[:-1], (1, q.shape[2], 1)), 1)
    bias = torch.cat([bias.expand(*shape[:-1], size - 1), sinks.to(wide)[:, None, None].expand(shape)], dim=-1)
    if mask is not None:
        mask = _with_head_axis(mask)
        mask = pad(mask.expand(*mask.shape[:-1], size - 1), (0, 1), value=True)
    return _scaled_dot_product(q, k, v, mask, bias, dropout=dropout)


def is_tensor(slots, start, new) -> bool:
    """Return whether the slots are a tensor of torch."""
    return isinstance(slots, torch.Tensor)


@write_slots.on("torch", supports=is_tensor)
def copied_slots(slots, start, new):
    """Replace slots by one operation, without an index for each number."""
    return slots.index_copy(1, start + torch.arange(new.shape[1], device=slots.device), new)


def _scaled_dot_product(q, k, v, mask=None, bias=None, causal: bool = False, dropout=None, scale=None):
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
            scale=scale,
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
