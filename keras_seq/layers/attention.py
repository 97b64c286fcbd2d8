"""Scaled dot-product attention (Vaswani et al., 2017): every position asks, every position answers.

    weights = softmax(q kᵀ / sqrt(K) + bias)         over the positions that the mask allows
    y = weights v

Without 1 / sqrt(K) the scores grow with K, the softmax saturates and its gradient dies. Several query heads may
share one head of keys and values (multi-query: Shazeer, 2019; grouped-query: Ainslie et al., 2023).
`MultiHead` owns the four matrices; `MultiHeadSelfAttention` and `CrossAttention` say who attends to whom.
"""

import functools

import keras
from keras import ops

from keras_seq import checks, kernels
from keras_seq.layers.dense import Dense
from keras_seq.layers.masks import compute_attention_mask
from keras_seq.layers.normalization import RMSNormalization
from keras_seq.layers.precision import at_least_float32


def attention(q, k, v, mask=None, bias=None, scale=None, dropout=None):
    """Softmax attention, the softmax in float32 at least.

    Args:
        q: queries `[B, T, H, K]`.
        k: keys `[B, S, H, K]`; or fewer heads, a divisor of H: head h of the queries reads h * (heads of k) // H.
        v: values `[B, S, heads of k, K']`.
        mask: booleans (or 0 and 1) `[T, S]`, `[B, T, S]` or `[B, H, T, S]` (any axis may be 1), true where attending
            is allowed. A query with nothing to attend to gives zeros. An additive mask of floats is a `bias`.
        bias: added to the scores, broadcastable to `[B, H, T, S]`.
        scale: factor of the scores, 1 / sqrt(K) unless given.
        dropout: a function applied to the weights before they meet the values.

    Returns:
        `(y [B, T, H, K'], weights [B, H, T, S])`, weights before dropout, both in the dtype of v.

    Raises:
        ValueError: shapes that do not belong together, complex numbers, a mask of floats.
    """
    q, k, v = (ops.convert_to_tensor(x) for x in (q, k, v))
    for name, x in (("q", q), ("k", k), ("v", v)):
        checks.real(name, x)
        if len(x.shape) != 4:
            raise ValueError(f"{name} has shape {tuple(x.shape)}; expected [B, T, H, K].")
    if q.shape[3] != k.shape[3] or k.shape[2] != v.shape[2] or q.shape[2] % k.shape[2]:
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in (("q", q), ("k", k), ("v", v)))
        raise ValueError(f"{shapes}; expected q and k of one width, k and v of one number of heads, a divisor of q's.")
    if _differ(q.shape[0], k.shape[0], v.shape[0]) or _differ(k.shape[1], v.shape[1]):
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in (("q", q), ("k", k), ("v", v)))
        raise ValueError(f"{shapes}; expected one number of rows B, and k and v of one length S.")
    batch_size = -1 if q.shape[0] is None and isinstance(q, keras.KerasTensor) else ops.shape(q)[0]
    q = checks.where_boolean(q, mask)
    mask = checks.attention_mask("mask", mask, q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    heads, key_dim = q.shape[2:]
    groups = k.shape[2]
    length, size = ops.shape(q)[1], ops.shape(k)[1]
    scale = ops.convert_to_tensor(key_dim**-0.5 if scale is None else scale, q.dtype)
    q = q * scale  # before the product, so that float16 overflows later
    q = ops.reshape(q, (-1, length, groups, heads // groups, key_dim))
    scores = ops.einsum("btngk,bsnk->bngts", q, k)
    scores = ops.reshape(scores, (batch_size, heads, length, size))  # an error where k has other rows in a graph
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
        weights = ops.where(mask, weights, 0.0)  # matters where the whole row is masked
    weights = ops.cast(weights, v.dtype)
    dropped = weights if dropout is None else dropout(weights)
    dropped = ops.reshape(dropped, (batch_size, groups, heads // groups, length, size))  # and where the mask has
    y = ops.einsum("bngts,bsnk->btngk", dropped, v)
    return ops.reshape(y, (-1, length, heads, v.shape[-1])), weights


def _differ(*sizes):
    """Whether those sizes that are known are not all the same."""
    return len({size for size in sizes if size is not None}) > 1


def causal_attention(q, k, v):
    """`attention` where every position attends to itself and to all before it; the weights are not told.

    Args:
        q: queries `[B, T, H, K]`.
        k: keys `[B, T, H, K]`; or fewer heads, a divisor of H.
        v: values `[B, T, heads of k, K']`.

    Returns:
        y `[B, T, H, K']`.
    """
    return kernels.dispatch("causal_attention", _causal_attention, q, k, v)(q, k, v)


def _causal_attention(q, k, v):
    positions = ops.arange(ops.shape(q)[1])
    return attention(q, k, v, compute_attention_mask(positions, positions, causal=True))[0]


class MultiHeadAttentionBase(keras.layers.Layer):
    """What self-attention and cross-attention share: the arguments, the four matrices, the way to heads and back."""

    def __init__(
        self,
        num_heads,
        key_dim=None,
        value_dim=None,
        num_key_value_heads=None,
        use_qk_norm=False,
        dropout=0.0,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        output_initializer="glorot_uniform",
        seed=None,
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
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)
        self.seed = seed
        self.supports_masking = True

    def build_projections(self, query_width, context_width):
        """Makes the matrices: queries from `query_width`, keys and values from `context_width`."""
        if self.key_dim is None and query_width % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads}; expected a divisor of the width D={query_width}, or a key_dim."
            )
        self._key_dim = self.key_dim or query_width // self.num_heads
        self._value_dim = self.value_dim or self._key_dim
        self._groups = self.num_key_value_heads or self.num_heads

        def dense(name, units, width, initializer):
            # a clone each: an initializer gives the same values at every call
            if isinstance(initializer, keras.initializers.Initializer):
                initializer = initializer.clone()
            layer = Dense(
                units, use_bias=self.use_bias, kernel_initializer=initializer, dtype=self.dtype_policy, name=name
            )
            layer.build((None, None, width))
            return layer

        kernel = self.kernel_initializer
        self.query_dense = dense("query", self.num_heads * self._key_dim, query_width, kernel)
        self.key_dense = dense("key", self._groups * self._key_dim, context_width, kernel)
        self.value_dense = dense("value", self._groups * self._value_dim, context_width, kernel)
        self.output_dense = dense("output", query_width, self.num_heads * self._value_dim, self.output_initializer)
        if self.use_qk_norm:
            rms = functools.partial(RMSNormalization, dtype=self.dtype_policy)
            self.query_normalization = rms(name="query_normalization")
            self.key_normalization = rms(name="key_normalization")
            self.query_normalization.build((None, None, None, self._key_dim))
            self.key_normalization.build((None, None, None, self._key_dim))
        self.dropout_layer = keras.layers.Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)

    def project_query(self, x):
        """`x [B, T, D]` -> queries `[B, T, H, K]`."""
        q = ops.reshape(self.query_dense(x), (-1, ops.shape(x)[1], self.num_heads, self._key_dim))
        return self.query_normalization(q) if self.use_qk_norm else q

    def project_key_value(self, x):
        """`x [B, S, D]` -> keys `[B, S, heads, K]` and values `[B, S, heads, K']`."""
        k = ops.reshape(self.key_dense(x), (-1, ops.shape(x)[1], self._groups, self._key_dim))
        v = ops.reshape(self.value_dense(x), (-1, ops.shape(x)[1], self._groups, self._value_dim))
        return self.key_normalization(k) if self.use_qk_norm else k, v

    def attend(self, q, k, v, mask, bias, training):
        """Attention, the heads joined and mixed: `(y [B, T, D], weights [B, H, T, S])`."""
        dropout = (lambda weights: self.dropout_layer(weights, training=training)) if self.dropout else None
        y, weights = attention(q, k, v, mask, bias, dropout=dropout)
        return self.merge_heads(y), weights

    def merge_heads(self, y):
        """The heads `[B, T, H, K']` joined and mixed: `[B, T, D]`."""
        return self.output_dense(ops.reshape(y, (-1, ops.shape(y)[1], self.num_heads * self._value_dim)))

    def compute_output_spec(self, *args, **kwargs):
        """The shapes and dtypes of `call` itself, whatever it is asked to return."""
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self):
        """The arguments."""
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "num_key_value_heads": self.num_key_value_heads,
            "use_qk_norm": self.use_qk_norm,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "output_initializer": keras.initializers.serialize(self.output_initializer),
            "seed": self.seed,
        }
