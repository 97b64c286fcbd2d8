"""What `MultiHeadSelfAttention` and `CrossAttention` share: their arguments and the four projections."""

import functools

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.dense import Dense
from keras_seq.layers.frozen import freeze_inner_layers
from keras_seq.layers.matrix import KeepsMatrixModes
from keras_seq.layers.normalization import RMSNormalization
from keras_seq.layers.output_spec import output_spec
from keras_seq.ops.attention import batch_and_length, checked_attention_inputs, masked_attention, softmax_attention


def _split_heads(x, num_heads, key_dim):
    return ops.reshape(x, (*batch_and_length(x), num_heads, key_dim))


class MultiHeadAttentionBase(KeepsMatrixModes):
    """Base class of self-attention and cross-attention: their arguments and the four projections.

    Args:
        num_heads: H.
        key_dim: K, width of a query or key head; D / H unless given.
        value_dim: Width of a value head; `key_dim` unless given.
        num_key_value_heads: Number of key and value heads, a divisor of H; H unless given.
        use_qk_norm: Whether to RMS-normalize queries and keys per head.
        dropout: Fraction of the attention weights to drop in training.
        use_bias: Whether the four projections add a bias.
        output_bias: Whether the output projection adds a bias; as `use_bias` unless given.
        epsilon: Added to the mean square in the normalizations of `use_qk_norm`.
        kernel_initializer: Initializer of the query, key and value matrices.
        output_initializer: Initializer of the output matrix.
        seed: Random seed of the dropout.
        **kwargs: Those of `keras.layers.Layer`.

    Raises:
        ValueError: If an argument is out of its range, or `num_key_value_heads` does not divide `num_heads`.
    """

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
        """Create the matrices of the four projections, and the normalizations of `use_qk_norm`.

        Args:
            query_dim: D, width of the inputs that the queries are computed from.
            context_dim: Width of the inputs that the keys and values are computed from.

        Raises:
            ValueError: If `key_dim` is not given and `num_heads` does not divide `query_dim`.
        """
        if self.key_dim is None and query_dim % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads}; expected a divisor of the width D={query_dim}, or a key_dim."
            )
        self._key_dim = self.key_dim or query_dim // self.num_heads
        self._value_dim = self.value_dim or self._key_dim
        self._num_kv_heads = self.num_key_value_heads or self.num_heads

        def dense(name, units, width, initializer, use_bias=self.use_bias):
            # clones, because an initializer returns the same values at every call
            if isinstance(initializer, keras.initializers.Initializer):
                initializer = initializer.clone()
            layer = Dense(units, use_bias=use_bias, kernel_initializer=initializer, dtype=self.dtype_policy, name=name)
            layer.build((None, None, width))
            return layer

        kernel = self.kernel_initializer
        self.query_dense = dense("query", self.num_heads * self._key_dim, query_dim, kernel)
        self.key_dense = dense("key", self._num_kv_heads * self._key_dim, context_dim, kernel)
        self.value_dense = dense("value", self._num_kv_heads * self._value_dim, context_dim, kernel)
        self.output_dense = dense(
            "output", query_dim, self.num_heads * self._value_dim, self.output_initializer, self.output_bias
        )
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
        q = _split_heads(self.query_dense(x), self.num_heads, self._key_dim)
        return self.query_normalization(q) if self.use_qk_norm else q

    def project_key_value(self, x):
        """Compute keys `[B, S, G, K]` and values `[B, S, G, K']` of `x [B, S, D]`, with G key and value heads."""
        k = _split_heads(self.key_dense(x), self._num_kv_heads, self._key_dim)
        v = _split_heads(self.value_dense(x), self._num_kv_heads, self._value_dim)
        return self.key_normalization(k) if self.use_qk_norm else k, v

    def project_all(self, x):
        """Compute queries, keys and values of `x [B, T, D]`."""
        return self.project_query(x), *self.project_key_value(x)

    def attend(self, q, k, v, mask, bias, training: bool | None, return_scores: bool = True):
        """Compute attention and the output projection.

        Args:
            q: Queries `[B, T, H, K]`.
            k: Keys `[B, S, G, K]`, G the number of key and value heads, finite where a mask hides some.
            v: Values `[B, S, G, K']`, likewise.
            mask: Booleans, broadcastable to `[B, T, S]` or `[B, H, T, S]`, or None.
            bias: Added to the scores, broadcastable to `[B, H, T, S]`, or None.
            training: Whether to apply dropout.
            return_scores: Whether the weights are needed.

        Returns:
            `(y [B, T, D], weights [B, H, T, S])`; the weights may be None if they are not needed.
        """
        dropout = self.active_dropout(training)
        args = q, k, v, mask, bias, dropout
        twin = None if return_scores else masked_attention.twin(*args)
        if twin:
            return self.merge_heads(twin(*args)), None
        dropout = dropout and functools.partial(dropout, training=training)
        y, weights = softmax_attention(*checked_attention_inputs(q, k, v, mask), bias, dropout=dropout)
        return self.merge_heads(y), weights

    def active_dropout(self, training: bool | None):
        """Return the layer that drops attention weights, or None where nothing is dropped."""
        return self.dropout_layer if self.dropout and training else None

    def merge_heads(self, y):
        """Concatenate the heads `[B, T, H, K']` and apply the output projection: `[B, T, D]`."""
        return self.output_dense(ops.reshape(y, (*batch_and_length(y), self.num_heads * self._value_dim)))

    def compute_output_spec(self, *args, **kwargs):
        """Return the shapes and dtypes of `call`, including the optional outputs."""
        return output_spec(self, *args, **kwargs)

    def get_config(self):
        """Return the constructor arguments."""
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "num_key_value_heads": self.num_key_value_heads,
            "use_qk_norm": self.use_qk_norm,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "output_bias": self.output_bias,
            "epsilon": self.epsilon,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "output_initializer": keras.initializers.serialize(self.output_initializer),
            "seed": self.seed,
        }
