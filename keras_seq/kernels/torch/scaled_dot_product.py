"""Attention by torch's `scaled_dot_product_attention`: flash attention where torch has it, on a CPU too.

It does not store the T x S scores (Dao et al., 2022, arXiv:2205.14135). A query with nothing to attend to gives zeros,
and gradients of zero.
"""

import contextlib

import torch


def scaled_dot_product_attention(q, k, v, mask=None, bias=None, causal: bool = False, dropout=None):
    """Compute attention without its weights, as `keras_seq.layers.attention.attention`.

    Args:
        q: Queries `[B, T, H, K]`.
        k: Keys `[B, S, G, K]` with G a divisor of H.
        v: Values `[B, S, G, K']`.
        mask: Booleans `[T, S]`, `[B, T, S]` or `[B, H, T, S]` (any axis may be 1), or None.
        bias: Added to the scores, broadcastable to `[B, H, T, S]`, or None.
        causal: Whether to mask later positions, instead of a mask.
        dropout: A `keras.layers.Dropout` for the weights, or None.

    Returns:
        y `[B, T, H, K']`.
    """
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
