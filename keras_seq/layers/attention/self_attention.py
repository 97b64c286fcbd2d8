"""Self-attention, and what it shares with `CrossAttention`: arguments and the four projections."""

import functools

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.attention.cache import (
    append_to_cache,
    append_to_window,
    appended_segments,
    cache_shapes,
    empty_cache,
    full_cache,
    in_order,
    next_position,
    without_earlier_documents,
)
from keras_seq.layers.attention.relative_positions import deserialize_positions
from keras_seq.layers.base.layer import Layer, freeze_inner_layers, same_shape
from keras_seq.layers.base.state import check_state, nan_to_the_end, nan_where_attended, with_nan
from keras_seq.layers.dense import inner_dense
from keras_seq.layers.normalization import RMSNormalization
from keras_seq.ops import tensor_checks
from keras_seq.ops.attention import (
    batch_and_length,
    causal_attention,
    checked_attention_inputs,
    compute_attention_mask,
    compute_positions,
    masked_attention,
    segment_numbers,
    softmax_attention,
)
from keras_seq.ops.tensor_checks import where_valid


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
        self.dropout_layer = keras.layers.Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy, name="dropout")
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

        q is `[B, T, H, K]`, k and v `[B, S, G, K]` and `[B, S, G, K']`, finite where a mask hides some; mask and bias
        broadcast to `[B, H, T, S]`, the mask to `[B, T, S]` too. It returns y `[B, T, D]` and the weights `[B, H, T,
        S]`, or None where they are not needed.
        """
        dropout = self.active_dropout(training)
        args = q, k, v, mask, bias, dropout
        twin = None if return_scores else masked_attention.twin(*args)
        if twin:
            return self.project_output(twin(*args)), None
        dropout = dropout and functools.partial(dropout, training=training)
        y, weights = softmax_attention(*checked_attention_inputs(q, k, v, mask), bias, dropout=dropout)
        return self.project_output(y), weights

    def active_dropout(self, training: bool | None):
        """Return the layer that drops attention weights, or None where nothing is dropped."""
        return self.dropout_layer if self.dropout and training else None

    def project_output(self, y):
        """Concatenate the heads `[B, T, H, K']` and apply the output projection: `[B, T, D]`."""
        return self.output_dense(ops.reshape(y, (*batch_and_length(y), self.num_heads * self._value_dim)))


# Self-attention: queries, keys and values all from the same sequence (Vaswani et al., 2017).
#
#     x [B, T, D] -> q, k, v -> y = softmax(q kᵀ / sqrt(K)) v -> y W_O
#
# The order of x matters only through a position object (rotations or biases), causality or a sliding window (Beltagy
# et al., 2020); without these, a permutation of x permutes y. The state is the key/value cache of `cache.py`.


@keras.saving.register_keras_serializable(package="keras_seq")
class MultiHeadSelfAttention(MultiHeadAttentionBase):
    """Multi-head, grouped-query or multi-query self-attention with an explicit key/value cache.

    ```python
    layer = MultiHeadSelfAttention(num_heads=4, causal=True, positions=RotaryPositions())
    y = layer(x)  # x [B, T, D] -> y [B, T, D]
    y, scores = layer(x, return_attention_scores=True)  # scores [B, H, T, S]

    state = layer.get_initial_state(batch_size, capacity=T)
    y, state = layer(x[:, :5], state=state, return_state=True)  # any number of positions at a time
    y, state = layer(x[:, 5:6], state=state, return_state=True)  # equals layer(x)[:, 5:6]
    ```

    Args:
        num_heads: H.
        key_dim: K, width of a query or key head; D / H unless given.
        value_dim: Width of a value head; `key_dim` unless given.
        num_key_value_heads: Number of key and value heads, a divisor of H; H unless given, 1 is multi-query attention.
        causal: Whether to mask later positions.
        sliding_window: Attend only to positions less than this far away, the own position included; None for all.
        positions: How positions change the scores: `RotaryPositions()`, `AlibiPositions()` or None.
        use_qk_norm: Whether to RMS-normalize queries and keys per head, before the rotation, each with its own learned
            scale `[K]` (Henry et al., 2020; Dehghani et al., 2023).
        dropout: Fraction of the attention weights to drop in training.
        use_bias: Whether the four projections add a bias.
        output_bias: Whether the output projection adds a bias; as `use_bias` unless given.
        epsilon: Added to the mean square in the normalizations of `use_qk_norm`.
        kernel_initializer: Initializer of the query, key and value matrices, `[D, H K]`.
        output_initializer: Initializer of the output matrix `[H K', D]`, which writes to the residual stream; with
            `"zeros"` a residual block starts as the identity.
        seed: Random seed of the dropout.
        **kwargs: Those of `keras.layers.Layer`.

    Call arguments:
        inputs: `[B, T, D]`.
        state: A cache from `get_initial_state` or from the previous call; requires `causal=True`.
        mask: `[B, T]`, true at non-padding positions. Padding is not attended to and does not count as a position: the
            outputs at non-padding positions equal those for the sequence without padding. A position with nothing to
            attend to gives zeros (plus the output bias).
        reset_mask: `[B, T]`, true where another document begins: it is not attended to from other documents, and its
            positions begin at 0. Later calls with the state attend to the last document only.
        attention_mask: Booleans, true where attending is allowed, `[T, S]`, `[B, T, S]` or `[B, H, T, S]` (any axis may
            be 1), combined with the mask and causality.
        inputs_mask: What Keras passes for `mask` when the call has other tensors than the inputs.
        return_state: Whether to return the state too; without a `state` argument it holds exactly these T positions.
        return_attention_scores: Whether to return the attention weights (before dropout) too.

    Returns:
        y `[B, T, D]`, or a tuple `(y, scores [B, H, T, S], state)` of y and the requested outputs, in this order.

    Raises:
        ValueError: If an argument is out of its range, a state is passed with `causal=False`, has other shapes than
            this layer's or another batch size, a mask has another shape or is a float mask, or the capacity of the
            cache is exceeded. In compiled code, where the length is unknown, exceeding the capacity gives NaN.
    """

    compute_output_shape = same_shape

    def __init__(
        self,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        num_key_value_heads: int | None = None,
        causal: bool = False,
        sliding_window: int | None = None,
        positions=None,
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
        super().__init__(
            num_heads=num_heads,
            key_dim=key_dim,
            value_dim=value_dim,
            num_key_value_heads=num_key_value_heads,
            use_qk_norm=use_qk_norm,
            dropout=dropout,
            use_bias=use_bias,
            output_bias=output_bias,
            epsilon=epsilon,
            kernel_initializer=kernel_initializer,
            output_initializer=output_initializer,
            seed=seed,
            **kwargs,
        )
        self.causal = bool(causal)
        self.sliding_window = (
            None if sliding_window is None else checks.positive_integer("sliding_window", sliding_window)
        )
        self.positions = None if positions is None else deserialize_positions(positions)

    def build(self, inputs_shape):
        """Create the weights for inputs `[B, T, D]`."""
        width = tensor_checks.sequence_shape("inputs", inputs_shape)
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: width})
        self.build_projections(width, width)
        if self.positions is not None:
            self.positions.validate_key_dim(self._key_dim)

    def get_initial_state(self, batch_size, capacity: int | None = None):
        """Return an empty key/value cache.

        Args:
            batch_size: B, an integer or an integer tensor.
            capacity: Number of positions that the cache can hold; required without a sliding window. With one, the
                cache holds the last of any number of positions, at most as many as the window has.

        Returns:
            The cache, see `cache.py`.

        Raises:
            ValueError: If the layer is not causal or not built, or the capacity is not a positive integer.
        """
        if not self.causal:
            raise ValueError(
                "causal=False; expected causal=True; without it, earlier outputs depend on later positions."
            )
        if not self.built:
            raise ValueError(
                f"{self.name} is not built; expected a call or `build((B, T, D))` before `get_initial_state`."
            )
        if capacity is None and self.sliding_window is None:
            raise ValueError(
                f"{self.name}: capacity=None; expected the number of positions that its cache holds, or a "
                "sliding_window; a LanguageModel takes it from its context_length, e.g. context_length=64."
            )
        capacity = checks.positive_integer("capacity", self.sliding_window if capacity is None else capacity)
        capacity = min(capacity, self.sliding_window or capacity)
        return empty_cache(batch_size, capacity, self._num_kv_heads, self._key_dim, self._value_dim, self.compute_dtype)

    def call(
        self,
        inputs,
        state=None,
        mask=None,
        attention_mask=None,
        inputs_mask=None,
        training: bool | None = None,
        return_state: bool = False,
        return_attention_scores: bool = False,
        reset_mask=None,
    ):
        """Apply self-attention; the arguments are documented in the class."""
        if state is not None and not self.causal:
            raise ValueError(
                "A state, the second argument, was passed with causal=False; expected causal=True, or CrossAttention, "
                "which attends to another sequence."
            )

        # the inputs: zeros at padding; what is not finite is kept apart where a mask may separate it from others
        x = tensor_checks.real("inputs", inputs, self.compute_dtype)
        x, mask = tensor_checks.masked("mask", x, inputs_mask if mask is None else mask)
        x = where_valid(mask, x)
        x, reset_mask = tensor_checks.masked("reset_mask", x, reset_mask)
        x = tensor_checks.where_boolean(x, attention_mask)
        is_first_call, is_finite = state is None, None
        if reset_mask is not None or attention_mask is not None:  # a weight of 0 times NaN is NaN
            is_finite = ops.all(ops.isfinite(x), axis=-1)
            x = where_valid(is_finite, x)

        # the state, and how many slots the queries attend to: those before and, of a window, the new ones too
        if not is_first_call:
            check_state(
                self.name, state, cache_shapes(state, x.shape[0], self._num_kv_heads, self._key_dim, self._value_dim)
            )
            x = tensor_checks.with_axes_of(x, state["position"], rank=1)
        size = x.shape[1] if is_first_call else state["position"].shape[1]
        holds_window = not is_first_call and self.sliding_window is not None and size >= self.sliding_window
        if holds_window:
            size = None if x.shape[1] is None else size + x.shape[1]
        attention_mask = tensor_checks.attention_mask(
            "attention_mask", attention_mask, x.shape[0], self.num_heads, x.shape[1], size
        )

        # queries [B, T, H, K], keys [B, T, G, K], values [B, T, G, K'] of the new positions
        start = 0 if is_first_call else next_position(state)
        query_positions = key_positions = compute_positions(ops.shape(x)[1], mask, start, reset_mask)  # [T] or [B, T]
        q, k, v = self.project_all(x)
        if self.positions is not None:
            q, k = self.positions.rotate(q, query_positions), self.positions.rotate(k, key_positions)
        query_segments = key_segments = None if reset_mask is None else segment_numbers(reset_mask)

        # append them to the cache: from here on keys and values are those of all S slots, [B, S, G, K]
        holds_nan = is_finite is not None and (return_state or not is_first_call)
        if holds_nan:
            k = where_valid(is_finite, k, float("nan"))  # for the state to remember
        if holds_window:
            masked = mask is not None
            slots, key_segments, state = append_to_window(state, k, v, key_positions, masked, key_segments)
            k, v, key_positions = slots["key"], slots["value"], slots["position"]
        elif state is not None:
            key_segments = appended_segments(state, key_segments)
            state = append_to_cache(state, k, v, key_positions)
            k, v, key_positions = state["key"], state["value"], state["position"]
        elif return_state:
            state = full_cache(k, v, key_positions)
        if return_state and reset_mask is not None and not holds_window:
            state = without_earlier_documents(state, key_segments)
        if return_state and is_first_call and self.sliding_window is not None and mask is not None:
            state = in_order(state)
        if holds_nan:
            is_finite = ops.logical_not(ops.isnan(k[:, :, 0, 0]))
            k = where_valid(is_finite, k)

        # without masks or biases, causal attention has kernels of its own
        bias = None
        if self.positions is not None:
            bias = self.positions.bias(query_positions, key_positions, self.num_heads)
        extra_masks = [x for x in (mask, attention_mask, self.sliding_window, bias) if x is not None]
        is_plain_causal = self.causal and is_first_call and not (return_attention_scores or extra_masks)
        args = q, k, v, self.active_dropout(training), query_segments
        twin = causal_attention.twin(*args) if is_plain_causal else None
        if twin:
            y = self.project_output(twin(*args))
            if is_finite is not None:
                y, _ = with_nan(nan_to_the_end(is_finite, reset_mask), y)
            return (y, state) if return_state else y

        # otherwise all masks become one, [T, S], [B, T, S] or [B, H, T, S]
        allowed = compute_attention_mask(query_positions, key_positions, self.causal, self.sliding_window)
        if reset_mask is not None:
            same = ops.equal(ops.expand_dims(query_segments, -1), ops.expand_dims(key_segments, -2))
            allowed = same if allowed is None else ops.logical_and(allowed, same)
        if attention_mask is not None:
            if allowed is not None and len(attention_mask.shape) == 4 and len(allowed.shape) == 3:
                allowed = ops.expand_dims(allowed, 1)
            allowed = attention_mask if allowed is None else ops.logical_and(allowed, attention_mask)
        y, scores = self.attend(q, k, v, allowed, bias, training, return_attention_scores)
        if is_finite is not None:
            y, _ = with_nan(nan_where_attended(ops.logical_not(is_finite), allowed), y)
        outputs = (y, *((scores,) if return_attention_scores else ()), *((state,) if return_state else ()))
        return outputs if len(outputs) > 1 else y
