"""Cross-attention, and what it shares with self-attention: arguments, four projections, attention between them.

Cross-attention has queries from one sequence, keys and values from another (Bahdanau et al., 2015):

    q = x W_Q,   k, v = context W_K, context W_V,   y = softmax(q kᵀ / sqrt(K)) v W_O

While decoding, the context stays the same: its keys and values are computed once and are the state.
"""

import functools
import math
from collections.abc import Mapping

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.base.layer import Layer, freeze_inner_layers, same_shape
from keras_seq.layers.base.state import check_state, nan_where_attended, shapes, with_nan
from keras_seq.layers.dense import inner_dense, scaled
from keras_seq.layers.normalization import make_normalization, merge_heads, split_heads
from keras_seq.ops import tensor_checks
from keras_seq.ops.attention import checked_attention_inputs, finite_slots, masked_attention, softmax_attention
from keras_seq.ops.tensor_checks import where_valid

QK_NORMALIZATIONS = ("rms", "zero_centered_rms")


class MultiHeadAttentionBase(Layer):
    """Base class of self-attention and cross-attention: their arguments and the four projections."""

    loops_over_positions = False
    compute_output_shape = same_shape

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
        self.use_qk_norm = checks.boolean("use_qk_norm", use_qk_norm)
        self.qk_normalization = checks.one_of("qk_normalization", qk_normalization, QK_NORMALIZATIONS)
        self.dropout = checks.fraction("dropout", dropout)
        self.use_bias = checks.boolean("use_bias", use_bias)
        self.output_bias = self.use_bias if output_bias is None else checks.boolean("output_bias", output_bias)
        self.epsilon = checks.positive_number("epsilon", epsilon)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)
        self.seed = seed
        self.scale = None if scale is None else checks.positive_number("scale", scale)

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
        q = split_heads(self.query_dense(x), self.num_heads)
        q = self.query_normalization(q) if self.use_qk_norm else q
        return q if self._query_factor is None else q * self._query_factor

    def project_key_value(self, x):
        """Compute keys `[B, S, G, K]` and values `[B, S, G, K']` of `x [B, S, D]`, with G key and value heads."""
        k = split_heads(self.key_dense(x), self._num_kv_heads)
        v = split_heads(self.value_dense(x), self._num_kv_heads)
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
        y = merge_heads(y)
        return self.output_dense(y if gate is None else y * ops.sigmoid(gate))


@keras.saving.register_keras_serializable(package="keras_seq")
class CrossAttention(MultiHeadAttentionBase):
    """Multi-head attention from one sequence to another.

    ```python
    layer = CrossAttention(num_heads=4)
    y = layer(x, context=encoded, context_mask=encoded_mask)  # x [B, T, D], encoded [B, S, D'] -> y [B, T, D]

    state = layer.project_context(encoded, context_mask=encoded_mask)  # once
    y = layer(x[:, :1], state=state)  # equals layer(x, context=encoded, context_mask=encoded_mask)[:, :1]
    ```

    Args:
        num_heads, key_dim, value_dim, num_key_value_heads: As for `MultiHeadSelfAttention`.
        use_qk_norm, qk_normalization, epsilon, dropout, seed, scale, use_bias, output_bias: As there.
        kernel_initializer: Initializer of the query `[D, H K]`, key and value `[D', H K]` matrices.
        output_initializer: Initializer of the output matrix, `[H K', D]`.
        **kwargs: Those of `keras.layers.Layer`.

    Call arguments:
        inputs: `[B, T, D]`, source of the queries.
        context: `[B, S, D']`, source of keys and values; None with a `state`.
        state: The context's keys, values and mask, from `project_context`.
        mask: `[B, T]`, true at non-padding positions of the inputs; padding counts as zeros. It is passed on.
        inputs_mask: What Keras passes for `mask`.
        context_mask: `[B, S]`, true at non-padding positions of the context; Keras passes the context's own mask. Where
            all positions are padding, y is zeros (plus the output bias).
        attention_mask: Booleans, true where attending is allowed, `[T, S]`, `[B, T, S]` or `[B, H, T, S]` (any axis may
            be 1), combined with the context mask.
        return_state: Whether to return the state too.
        return_attention_scores: Whether to return the attention weights (before dropout) too.

    Returns:
        y `[B, T, D]`, or a tuple `(y, scores [B, H, T, S], state)` of y and the requested outputs, in this order.

    Raises:
        ValueError: If an argument is out of its range, neither a context nor a state is passed, or both, either has
            another batch size, or a mask has another shape or is a float mask.
    """

    def build(self, inputs_shape, context_shape=None):
        """Create the weights for inputs `[B, T, D]` and a context `[B, S, D']`."""
        if context_shape is None:
            raise ValueError("context=None; expected [B, S, D'] in the first call, to read its width D'.")
        width = self._read_width(inputs_shape)
        self.build_projections(width, tensor_checks.sequence_shape("context", context_shape))

    def project_context(self, context, context_mask=None):
        """Compute the state from the context.

        Args:
            context: `[B, S, D']`.
            context_mask: `[B, S]`, true at non-padding positions. None for the context's own mask, if Keras has one.

        Returns:
            `{"key": [B, S, G, K], "value": [B, S, G, K'], "mask": [B, S]}`, G the number of key and value heads.

        Raises:
            ValueError: If the layer is not built, or the mask does not match the context.
        """
        if not hasattr(self, "key_dense"):
            raise ValueError(
                f"{self.name} is not built; expected a call or `build(inputs_shape, context_shape)` first."
            )
        context_mask = tensor_checks.keras_mask(context) if context_mask is None else context_mask
        context = tensor_checks.real("context", context, self.compute_dtype)
        context, is_valid = tensor_checks.masked("context_mask", context, context_mask)
        k, v = self.project_key_value(where_valid(is_valid, context))
        is_valid = ops.ones(ops.shape(context)[:2], "bool") if is_valid is None else is_valid
        return {"key": k, "value": v, "mask": is_valid}

    def _state_shapes(self, batch_size, state):
        mask = shapes(state).get("mask") if isinstance(state, Mapping) else None
        size = mask[1] if isinstance(mask, list) and len(mask) == 2 else None
        return {
            "key": [batch_size, size, self._num_kv_heads, self._key_dim],
            "value": [batch_size, size, self._num_kv_heads, self._value_dim],
            "mask": [batch_size, size],
        }

    def call(
        self,
        inputs,
        context=None,
        state=None,
        context_mask=None,
        mask=None,
        attention_mask=None,
        training: bool | None = None,
        return_state: bool = False,
        return_attention_scores: bool = False,
        inputs_mask=None,
    ):
        """Apply cross-attention; the arguments are documented in the class."""
        x, mask = self._valid_inputs(inputs, inputs_mask if mask is None else mask)
        if state is None:
            if context is None:
                raise ValueError("context=None and state=None; expected one of them.")
            state = self.project_context(context, context_mask)
        else:
            for name, value in {"context": context, "context_mask": context_mask}.items():
                if value is not None:
                    raise ValueError(
                        f"{name} was passed with a state; expected it in `project_context`, which creates the state."
                    )
            check_state(self.name, state, self._state_shapes(x.shape[0], state))
            x = tensor_checks.with_axes_of(x, state["mask"], rank=1)
        x = tensor_checks.where_boolean(x, attention_mask)
        attention_mask = tensor_checks.attention_mask(
            "attention_mask", attention_mask, x.shape[0], self.num_heads, x.shape[1], state["mask"].shape[1]
        )
        allowed = ops.expand_dims(state["mask"], 1)  # [B, 1, S]
        if attention_mask is not None:
            allowed = ops.expand_dims(allowed, 1) if len(attention_mask.shape) == 4 else allowed
            allowed = ops.logical_and(allowed, attention_mask)
        q, k, v = self.project_query(x), state["key"], state["value"]
        if attention_mask is not None:  # a weight of 0 times NaN is NaN
            is_finite, k, v = finite_slots(k, v)
        y, scores = self.attend(q, k, v, allowed, None, training, return_attention_scores)
        if attention_mask is not None:
            y, _ = with_nan(nan_where_attended(ops.logical_not(is_finite), allowed), y)
        outputs = (y, *((scores,) if return_attention_scores else ()), *((state,) if return_state else ()))
        return outputs if len(outputs) > 1 else y
