"""`layers.attention.causal_attention` for JAX on a GPU: Keras's own, which is cuDNN's flash attention where that fits.

It keeps nothing of T x T (Dao et al., 2022, https://arxiv.org/abs/2205.14135); Keras asks dtype, width and chip whether
it fits, and computes it plainly where not.
"""

import keras
from keras import ops


def supports(q, k, v):
    """Whether the twin takes these arguments: narrow floats, and a GPU to compute on."""
    narrow = keras.backend.standardize_dtype(q.dtype) in ("float16", "bfloat16")
    return narrow and any(device.startswith("gpu") for device in keras.distribution.list_devices())


def apply(q, k, v):
    """The twin of `keras_seq.layers.attention.causal_attention`; see there."""
    shared = q.shape[2] // k.shape[2]
    k, v = (ops.repeat(x, shared, axis=2) if shared > 1 else x for x in (k, v))
    return ops.dot_product_attention(q, k, v, is_causal=True)
