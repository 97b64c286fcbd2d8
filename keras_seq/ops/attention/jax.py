"""Causal attention for JAX on a GPU: Keras's attention, which calls cuDNN's flash attention.

It does not store T x T scores (Dao et al., 2022, arXiv:2205.14135). Where dtype, width or GPU do not support it, Keras
computes plain attention.
"""

import keras
from keras import ops

from keras_seq.ops.attention import causal_attention


def is_plain_in_half_precision(q, k, v, *others) -> bool:
    """Return whether the arguments are float16 or bfloat16, without dropout, segments, sinks and decays."""
    is_half_precision = keras.backend.standardize_dtype(q.dtype) in ("float16", "bfloat16")
    return is_half_precision and all(x is None for x in others)


@causal_attention.on("jax", supports=is_plain_in_half_precision, device="gpu")
def flash_attention(q, k, v, *others):
    """Compute causal attention."""
    queries_per_key = q.shape[2] // k.shape[2]
    k, v = (ops.repeat(x, queries_per_key, axis=2) if queries_per_key > 1 else x for x in (k, v))
    return ops.dot_product_attention(q, k, v, is_causal=True)
