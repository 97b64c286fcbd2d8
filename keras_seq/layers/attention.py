"""Scaled dot-product attention (Vaswani et al., 2017).

    weights = softmax(q kᵀ / sqrt(K) + bias)         over the positions that the mask allows
    y = weights v

Without 1 / sqrt(K) the scores grow with K, and the softmax saturates. Several query heads may share one head of keys
and values (multi-query: Shazeer, 2019; grouped-query: Ainslie et al., 2023). `MultiHeadAttentionBase` holds the four
projections of `MultiHeadSelfAttention` and `CrossAttention`.
"""

import functools
from collections.abc import Callable

import keras
from keras import ops

from keras_seq import checks, kernels
from keras_seq.layers.dense import inner_dense
from keras_seq.layers.frozen import freeze_inner_layers
from keras_seq.layers.layer import Layer
from keras_seq.layers.masks import compute_attention_mask, where_valid
from keras_seq.layers.normalization import RMSNormalization
from keras_seq.layers.precision import at_least_float32


def attention(q, k, v, mask=None, bias=None, scale: float | None = None, dropout: Callable | None = None):
    """Compute softmax attention, with the softmax in float32 or wider.

    Args:
        q: Queries `[B, T, H, K]`.
        k: Keys `[B, S, G, K]` with G a divisor of H: query head h attends to key head h * G // H.
        v: Values `[B, S, G, K']`.
        mask: Booleans (or 0 and 1) `[T, S]`, `[B, T, S]` or `[B, H, T, S]` (any axis may be 1), true where attending is
            allowed. A query with nothing to attend to gives zeros. Keys and values that are not finite count for the
            queries that may attend to them only. An additive float mask is a `bias`.
        bias: Added to the scores, broadcastable to `[B, H, T, S]`.
        scale: Factor of the scores; 1 / sqrt(K) unless given.
        dropout: A function applied to the weights before the product with the values.

    Returns:
        `(y [B, T, H, K'], weights [B, H, T, S])`, weights before dropout, both in the dtype of v.

    Raises:
        ValueError: If the shapes do not match, a tensor is complex, or the mask is a float mask.
    """
    q, k, v, mask = _checked(q, k, v, mask)
    if mask is None:
        return _attention(q, k, v, mask, bias, scale, dropout)
    is_finite = ops.logical_and(*(ops.all(ops.isfinite(x), axis=(2, 3)) for x in (k, v)))  # [B, S]
    k, v = where_valid(is_finite, k), where_valid(is_finite, v)  # a weight of 0 times NaN is NaN
    y, weights = _attention(q, k, v, mask, bias, scale, dropout)
    mask = mask[None] if len(mask.shape) == 2 else mask
    mask = mask[:, None] if len(mask.shape) == 3 else mask  # [B, H, T, S]
    is_nan = ops.any(ops.logical_and(mask, ops.logical_not(is_finite)[:, None, None]), axis=-1, keepdims=True)
    y = ops.where(ops.swapaxes(is_nan, 1, 2), float("nan"), y)
    return y, ops.where(is_nan, float("nan"), weights)


def _checked(q, k, v, mask):
    q, k, v = (checks.real(name, ops.convert_to_tensor(x), "float32") for name, x in (("q", q), ("k", k), ("v", v)))
    for name, x in (("q", q), ("k", k), ("v", v)):
        if len(x.shape) != 4:
            raise ValueError(f"{name} has shape {tuple(x.shape)}; expected [B, T, H, K].")
    if q.shape[3] != k.shape[3] or k.shape[2] != v.shape[2] or q.shape[2] % k.shape[2]:
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in (("q", q), ("k", k), ("v", v)))
        raise ValueError(
            f"{shapes}; expected q and k of one width, k and v with one number of heads, a divisor of q's."
        )
    if _sizes_differ(q.shape[0], k.shape[0], v.shape[0]) or _sizes_differ(k.shape[1], v.shape[1]):
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in (("q", q), ("k", k), ("v", v)))
        raise ValueError(f"{shapes}; expected one batch size B, and k and v of one length S.")
    q = checks.where_boolean(q, mask)
    mask = checks.attention_mask("mask", mask, q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    return q, k, v, mask


def _attention(q, k, v, mask, bias=None, scale=None, dropout=None):
    """Compute `attention` of checked arguments, keys and values finite where a mask hides some."""
    heads, key_dim = q.shape[2:]
    kv_heads = k.shape[2]
    (batch_size, length), size = _batch_and_length(q), ops.shape(k)[1]
    if 0 in (q.shape[1], k.shape[1]):  # which TensorFlow's einsum refuses
        y_shape, shape = (batch_size, length, heads, v.shape[-1]), (batch_size, heads, length, size)
        return ops.zeros(y_shape, v.dtype), ops.zeros(shape, v.dtype)
    scale = ops.convert_to_tensor(key_dim**-0.5 if scale is None else scale, q.dtype)
    q = q * scale  # before the product, so that float16 overflows later
    q = ops.reshape(q, (batch_size, length, kv_heads, heads // kv_heads, key_dim))
    scores = ops.einsum("btngk,bsnk->bngts", q, k)
    scores = ops.reshape(
        scores, (batch_size, heads, length, size)
    )  # an error where k has another batch size in a graph
    if keras.backend.standardize_dtype(scores.dtype) == "float16":
        scores = ops.clip(scores, -65504, 65504)  # an infinite score would make the softmax NaN
    scores = ops.cast(scores, at_least_float32(scores.dtype))
    if bias is not None:
        scores = scores + ops.cast(bias, scores.dtype)
    if mask is not None:
        if len(mask.shape) == 3:
            mask = ops.expand_dims(mask, 1)  # [B, 1, T, S]
        scores = ops.where(mask, scores, -1e30)
    weights = ops.softmax(scores, axis=-1)
    if mask is not None:
        weights = ops.where(mask, weights, 0.0)  # for queries with all keys masked
    weights = ops.cast(weights, v.dtype)
    dropped_weights = weights if dropout is None else dropout(weights)
    # an error where the mask has another batch size in a graph
    dropped_weights = ops.reshape(dropped_weights, (batch_size, kv_heads, heads // kv_heads, length, size))
    y = ops.einsum("bngts,bsnk->btngk", dropped_weights, v)
    return ops.reshape(y, (batch_size, length, heads, v.shape[-1])), weights


def _sizes_differ(*sizes):
    """Return whether the known sizes are not all equal."""
    return len({size for size in sizes if size is not None}) > 1


def causal_attention(q, k, v):
    """Compute `attention` of every position to itself and all earlier ones, without returning the weights.

    Args:
        q: Queries `[B, T, H, K]`.
        k: Keys `[B, T, G, K]` with G a divisor of H.
        v: Values `[B, T, G, K']`.

    Returns:
        y `[B, T, H, K']`.
    """
    return kernels.dispatch("causal_attention", _causal_attention, q, k, v)(q, k, v)


def _causal_attention(q, k, v):
    positions = ops.arange(ops.shape(q)[1])
    return _attention(*_checked(q, k, v, compute_attention_mask(positions, positions, causal=True)))[0]


def _reshape(x, shape):
    return kernels.dispatch("reshape", ops.reshape, x, shape)(x, shape)


def _batch_and_length(x):
    """Return B and T of `[B, T, ...]` for a reshape; -1 only for a symbolic B, as -1 is ambiguous where T is 0."""
    batch_size, length = ops.shape(x)[:2]
    return -1 if batch_size is None else batch_size, length


def _split_heads(x, num_heads, key_dim):
    return _reshape(x, (*_batch_and_length(x), num_heads, key_dim))


class MultiHeadAttentionBase(Layer):
    """Base class of self-attention and cross-attention: their arguments and the four projections."""

    def __init__(
        self,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        num_key_value_heads: int | None = None,
        use_qk_norm: bool = False,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_bias: bool | None = None,
        epsilon: float = 1e-6,
        kernel_initializer="glorot_uniform",
        output_initializer="glorot_uniform",
        seed: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = checks.positive_integer("num_heads", num_heads)
        self.key_dim = None if key_dim is None else checks.positive_integer("key_dim", key_dim)
        self.value_dim = None if value_dim is None else checks.positive_integer("value_dim", value_dim)
        self.num_key_value_heads = num_key_value_heads
        if num_key_value_heads is not None:
            self.num_key_value_heads = checks.positive_integer("num_key_value_heads", num_key_value_heads)
            if self.num_heads % self.num_key_value_heads:
                raise ValueError(f"num_key_value_heads={num_key_value_heads}; expected a divisor of {num_heads=}.")
        self.use_qk_norm = bool(use_qk_norm)
        self.dropout = checks.fraction("dropout", dropout)
        self.use_bias = bool(use_bias)
        self.output_bias = self.use_bias if output_bias is None else checks.boolean("output_bias", output_bias)
        self.epsilon = checks.positive_number("epsilon", epsilon)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)
        self.seed = seed
        self.supports_masking = True

    def build_projections(self, query_dim: int, context_dim: int):
        """Create the projections, of queries from one width and of keys and values from another, and normalizations."""
        if self.key_dim is None and query_dim % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads}; expected a divisor of the width D={query_dim}, or a key_dim."
            )
        self._key_dim = self.key_dim or query_dim // self.num_heads
        self._value_dim = self.value_dim or self._key_dim
        self._num_kv_heads = self.num_key_value_heads or self.num_heads

        queries, values = self.num_heads * self._key_dim, self.num_heads * self._value_dim
        keys, kv_values = self._num_kv_heads * self._key_dim, self._num_kv_heads * self._value_dim
        options = self.use_bias, self.kernel_initializer
        self.query_dense = inner_dense(self, "query", query_dim, queries, *options)
        self.key_dense = inner_dense(self, "key", context_dim, keys, *options)
        self.value_dense = inner_dense(self, "value", context_dim, kv_values, *options)
        self.output_dense = inner_dense(self, "output", values, query_dim, self.output_bias, self.output_initializer)
        if self.use_qk_norm:
            rms = functools.partial(RMSNormalization, epsilon=self.epsilon, dtype=self.dtype_policy)
            self.query_normalization = rms(name="query_normalization")
            self.key_normalization = rms(name="key_normalization")
            self.query_normalization.build((None, None, None, self._key_dim))
            self.key_normalization.build((None, None, None, self._key_dim))
        self.dropout_layer = keras.layers.Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)
        freeze_inner_layers(self)

    def project_query(self, x):
        """Compute the queries `[B, T, H, K]` of `x [B, T, D]`."""
        return self._query_heads(self.query_dense(x))

    def project_key_value(self, x):
        """Compute keys `[B, S, G, K]` and values `[B, S, G, K']` of `x [B, S, D]`, with G key and value heads."""
        return self._key_value_heads(self.key_dense(x), self.value_dense(x))

    def project_all(self, x):
        """Compute queries, keys and values of `x [B, T, D]`, in one matmul where that is faster."""
        dense = self.query_dense, self.key_dense, self.value_dense
        kernel = kernels.dispatch("joint_dense", None, dense, x)
        if kernel is None:
            return self.project_query(x), *self.project_key_value(x)
        q, k, v = kernel(dense, x)
        return self._query_heads(q), *self._key_value_heads(k, v)

    def _query_heads(self, q):
        q = _split_heads(q, self.num_heads, self._key_dim)
        return self.query_normalization(q) if self.use_qk_norm else q

    def _key_value_heads(self, k, v):
        k = _split_heads(k, self._num_kv_heads, self._key_dim)
        v = _split_heads(v, self._num_kv_heads, self._value_dim)
        return self.key_normalization(k) if self.use_qk_norm else k, v

    def attend(self, q, k, v, mask, bias, training: bool | None, return_scores: bool = True):
        """Compute attention and the output projection.

        q is `[B, T, H, K]`, k and v `[B, S, G, K]` and `[B, S, G, K']`, finite where a mask hides some; mask and bias
        broadcast to `[B, H, T, S]`, the mask to `[B, T, S]` too. It returns y `[B, T, D]` and the weights `[B, H, T,
        S]`, or None where they are not needed.
        """
        dropout = self.active_dropout(training)
        args = q, k, v, mask, bias, dropout
        kernel = None if return_scores else kernels.dispatch("masked_attention", None, *args)
        if kernel is not None:
            return self.project_output(kernel(*args)), None
        dropout = dropout and functools.partial(dropout, training=training)
        y, weights = _attention(*_checked(q, k, v, mask), bias, dropout=dropout)
        return self.project_output(y), weights

    def active_dropout(self, training: bool | None):
        """Return the layer that drops attention weights, or None where nothing is dropped."""
        return self.dropout_layer if self.dropout and training else None

    def project_output(self, y):
        """Concatenate the heads `[B, T, H, K']` and apply the output projection: `[B, T, D]`."""
        return self.output_dense(_reshape(y, (*_batch_and_length(y), self.num_heads * self._value_dim)))
