"""Hold what self- and cross-attention share: their arguments, the four projections, and attention between them."""

import functools
import math

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.base.layer import Layer, freeze_inner_layers
from keras_seq.layers.dense import inner_dense, scaled
from keras_seq.layers.normalization import make_normalization
from keras_seq.ops.attention import batch_and_length, checked_attention_inputs, masked_attention, softmax_attention

QK_NORMALIZATIONS = ("rms", "zero_centered_rms")


def _split_heads(x, num_heads, key_dim):
    return ops.reshape(x, (*batch_and_length(x), num_heads, key_dim))


class MultiHeadAttentionBase(Layer):
    """Base class of self-attention and cross-attention: their arguments and the four projections."""

    loops_over_positions = False

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
        qk_normalization: str = "rms",
        scale: float | None = None,
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
        self.qk_normalization = checks.one_of("qk_normalization", qk_normalization, QK_NORMALIZATIONS)
        self.dropout = checks.fraction("dropout", dropout)
        self.use_bias = bool(use_bias)
        self.output_bias = self.use_bias if output_bias is None else checks.boolean("output_bias", output_bias)
        self.epsilon = checks.positive_number("epsilon", epsilon)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)
        self.seed = seed
        self.scale = None if scale is None else checks.positive_number("scale", scale)
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
        options, query_initializer = (self.use_bias, self.kernel_initializer), self.kernel_initializer
        # what attention, which divides by sqrt(K), multiplies queries by; at first the matrix makes up for it
        self._query_factor = None if self.scale is None else self.scale * math.sqrt(self._key_dim)
        if self._query_factor is not None:
            query_initializer = scaled(self.kernel_initializer, 1 / self._query_factor)
        self.query_dense = inner_dense(self, "query", query_dim, queries, self.use_bias, query_initializer)
        self.key_dense = inner_dense(self, "key", context_dim, keys, *options)
        self.value_dense = inner_dense(self, "value", context_dim, kv_values, *options)
        self.output_dense = inner_dense(self, "output", values, query_dim, self.output_bias, self.output_initializer)
        if self.use_qk_norm:
            options = self.qk_normalization, self.epsilon
            self.query_normalization = make_normalization(*options, name="query_normalization", dtype=self.dtype_policy)
            self.key_normalization = make_normalization(*options, name="key_normalization", dtype=self.dtype_policy)
            self.query_normalization.build((None, None, None, self._key_dim))
            self.key_normalization.build((None, None, None, self._key_dim))
        self.dropout_layer = keras.layers.Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy, name="dropout")
        freeze_inner_layers(self)

    def project_query(self, x):
        """Compute the queries `[B, T, H, K]` of `x [B, T, D]`."""
        q = _split_heads(self.query_dense(x), self.num_heads, self._key_dim)
        q = self.query_normalization(q) if self.use_qk_norm else q
        return q if self._query_factor is None else q * self._query_factor

    def project_key_value(self, x):
        """Compute keys `[B, S, G, K]` and values `[B, S, G, K']` of `x [B, S, D]`, with G key and value heads."""
        k = _split_heads(self.key_dense(x), self._num_kv_heads, self._key_dim)
        v = _split_heads(self.value_dense(x), self._num_kv_heads, self._value_dim)
        return self.key_normalization(k) if self.use_qk_norm else k, v

    def project_all(self, x):
        """Compute queries, keys and values of `x [B, T, D]`."""
        return self.project_query(x), *self.project_key_value(x)

    def attend(self, q, k, v, mask, bias, training: bool | None, return_scores: bool = True, sinks=None, gate=None):
        """Compute attention and the output projection.

        q is `[B, T, H, K]`, k and v `[B, S, G, K]` and `[B, S, G, K']`, finite where a mask hides some; mask and bias
        broadcast to `[B, H, T, S]`, the mask to `[B, T, S]` too. sinks are `[H]`, and the gate is that of
        `project_output`. It returns y `[B, T, D]` and the weights `[B, H, T, S]`, or None where they are not needed.
        """
        dropout = self.active_dropout(training)
        args = q, k, v, mask, bias, dropout, sinks
        twin = None if return_scores else masked_attention.twin(*args)
        if twin:
            return self.project_output(twin(*args), gate), None
        dropout = dropout and functools.partial(dropout, training=training)
        y, weights = softmax_attention(*checked_attention_inputs(q, k, v, mask), bias, dropout=dropout, sinks=sinks)
        return self.project_output(y, gate), weights

    def active_dropout(self, training: bool | None):
        """Return the layer that drops attention weights, or None where nothing is dropped."""
        return self.dropout_layer if self.dropout and training else None

    def project_output(self, y, gate=None):
        """Concatenate the heads `[B, T, H, K']`, times sigmoid of `gate [B, T, H K']`, and project: `[B, T, D]`."""
        y = ops.reshape(y, (*batch_and_length(y), self.num_heads * self._value_dim))
        return self.output_dense(y if gate is None else y * ops.sigmoid(gate))
