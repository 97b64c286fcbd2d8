"""`layers.attention.causal_attention` for JAX on a GPU: Keras's attention, which calls cuDNN's flash attention.

It does not store T x T scores (Dao et al., 2022, arXiv:2205.14135). Where dtype, width or GPU do not support it, Keras
computes plain attention.
"""

import keras
from keras import ops

from keras_seq.kernels.devices import on_gpu


def supports(q, k, v, dropout=None, segments=None) -> bool:
    """Return whether the arguments are float16 or bfloat16 on a GPU, without dropout and segments.

    Args:
        q: Queries `[B, T, H, K]`.
        k: Keys `[B, T, G, K]`.
        v: Values `[B, T, G, K']`.
        dropout: A `keras.layers.Dropout` for the weights, or None.
        segments: Number of the document at each position, int32 `[B, T]`, or None.
    """
    is_half_precision = keras.backend.standardize_dtype(q.dtype) in ("float16", "bfloat16")
    return dropout is None and segments is None and is_half_precision and on_gpu()


def apply(q, k, v, dropout=None, segments=None):
    """Compute causal attention, as `keras_seq.layers.attention.causal_attention`.

    Args:
        q: Queries `[B, T, H, K]`.
        k: Keys `[B, T, G, K]` with G a divisor of H.
        v: Values `[B, T, G, K']`.
        dropout: None.
        segments: None.

    Returns:
        y `[B, T, H, K']`.
    """
    queries_per_key = q.shape[2] // k.shape[2]
    k, v = (ops.repeat(x, queries_per_key, axis=2) if queries_per_key > 1 else x for x in (k, v))
    return ops.dot_product_attention(q, k, v, is_causal=True)
