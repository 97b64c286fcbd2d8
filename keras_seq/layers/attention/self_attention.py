"""Self-attention: queries, keys and values all from the same sequence (Vaswani et al., 2017).

    x [B, T, D] -> q, k, v -> y = softmax(q kᵀ / sqrt(K)) v -> y W_O

The order of x matters only through a position object (rotations or biases), causality or a sliding window (Beltagy et
al., 2020); without these, a permutation of x permutes y. The state is the key/value cache of `cache.py`. Optional are:

    y = softmax(...) v * sigmoid(x W_G)      an output gate for each feature of a head (Qiu et al., 2025)
    softmax over the scores and a sink       a score of each head, whose key has no value (gpt-oss: OpenAI, 2025)
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.attention.cache import (
    append_to_cache,
    append_to_window,
    appended_segments,
    cache_shapes,
    decay_sums_before,
    empty_cache,
    full_cache,
    in_order,
    next_position,
    without_earlier_documents,
)
from keras_seq.layers.attention.multi_head_attention import MultiHeadAttentionBase
from keras_seq.layers.attention.relative_positions import BucketedPositions, ForgettingPositions, deserialize_positions
from keras_seq.layers.base.layer import freeze_inner_layers
from keras_seq.layers.base.state import check_state, nan_to_the_end, nan_where_attended, with_nan
from keras_seq.layers.dense import inner_dense
from keras_seq.ops import tensor_checks
from keras_seq.ops.attention import (
    causal_attention,
    compute_attention_mask,
    compute_positions,
    decay_bias,
    finite_slots,
    segment_numbers,
)
from keras_seq.ops.tensor_checks import where_valid


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
        sliding_window: Attend only to positions less than this far away, the own position included; None for all. A
            window of W reaches W - 1 positions back and, with `causal=False`, W - 1 positions ahead.
        positions: How positions change the scores: `RotaryPositions()`, `AlibiPositions()`, `ForgettingPositions()`,
            `BucketedPositions()` or None.
        use_qk_norm: Whether to RMS-normalize queries and keys per head, before the rotation, each with its own learned
            scale `[K]` (Henry et al., 2020; Dehghani et al., 2023).
        use_output_gate: Whether to multiply each feature of the attended values by a sigmoid of a linear map of the
            inputs, before the output projection.
        use_sinks: Whether each head has a learned score that takes a part of its weights and adds no value. The scores
            start at 0, as those of the softmax "off by one"; the weights of a query sum to less than 1.
        dropout: Fraction of the attention weights to drop in training.
        use_bias: Whether the four projections add a bias.
        output_bias: Whether the output projection adds a bias; as `use_bias` unless given.
        epsilon: Added to the mean square in the normalizations of `use_qk_norm`.
        kernel_initializer: Initializer of the query, key, value and gate matrices, `[D, H K]`.
        output_initializer: Initializer of the output matrix `[H K', D]`, which writes to the residual stream; with
            `"zeros"` a residual block starts as the identity.
        seed: Random seed of the dropout.
        qk_normalization: `"rms"`, or `"zero_centered_rms"`, whose scales are 1 plus its weights: that of `use_qk_norm`.
        scale: Factor of the products of queries and keys; that of the positions, or 1 / sqrt(K), unless given.
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
        bucket_bias: `[num_buckets, H]`, the biases of another layer, with `BucketedPositions(shared=True)`.
        return_state: Whether to return the state too; without a `state` argument it holds exactly these T positions.
        return_attention_scores: Whether to return the attention weights (before dropout) too.

    Returns:
        y `[B, T, D]`, or a tuple `(y, scores [B, H, T, S], state)` of y and the requested outputs, in this order.

    Raises:
        ValueError: If an argument is out of its range, a state is passed with `causal=False`, has other shapes than
            this layer's or another batch size, a mask has another shape or is a float mask, biases are missing or
            passed to a layer that shares none, or the capacity of the cache is exceeded. In compiled code, where the
            length is unknown, exceeding the capacity gives NaN.
    """

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
        use_output_gate: bool = False,
        use_sinks: bool = False,
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
        positions = None if positions is None else deserialize_positions(positions)
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
            qk_normalization=qk_normalization,
            scale=positions.scale if scale is None and positions is not None else scale,
            **kwargs,
        )
        self.causal = checks.boolean("causal", causal)
        self.sliding_window = (
            None if sliding_window is None else checks.positive_integer("sliding_window", sliding_window)
        )
        self.positions = positions
        self.use_output_gate = checks.boolean("use_output_gate", use_output_gate)
        self.use_sinks = checks.boolean("use_sinks", use_sinks)
        self._forgets = isinstance(self.positions, ForgettingPositions)
        self._has_buckets = isinstance(self.positions, BucketedPositions)
        self.autocast = False  # autocast would also cast the sums of log decays in a state, which are wider
        if self._forgets and not self.causal:
            raise ValueError(
                f"positions={self.positions} with causal=False; expected causal=True: what is forgotten is earlier."
            )

    def build(self, inputs_shape):
        """Create the weights for inputs `[B, T, D]`."""
        width = self._read_width(inputs_shape)
        self.build_projections(width, width)
        if self.positions is not None:
            self.positions.validate_key_dim(self._key_dim)
        self._slot_shapes = {
            "key": (self._num_kv_heads, self._key_dim),
            "value": (self._num_kv_heads, self._value_dim),
            **({"decay_sum": (self.num_heads,)} if self._forgets else {}),
        }
        self.sinks = None
        if self.use_sinks:  # float32 in mixed precision, as the softmax is
            self.sinks = self.add_weight(shape=(self.num_heads,), initializer="zeros", name="sinks")
        self.bucket_bias = None
        if self._has_buckets and not self.positions.shared:
            shape = (self.positions.num_buckets, self.num_heads)
            self.bucket_bias = self.add_weight(shape=shape, initializer="zeros", name="bucket_bias")
        if self.use_output_gate:
            features = self.num_heads * self._value_dim
            self.gate_dense = inner_dense(self, "gate", width, features, self.use_bias, self.kernel_initializer)
        if self._forgets:
            self.forget_dense = inner_dense(self, "forget", width, self.num_heads, True, self.kernel_initializer)
        freeze_inner_layers(self)

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
        return empty_cache(batch_size, capacity, self._slot_shapes, self.compute_dtype)

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
        bucket_bias=None,
    ):
        """Apply self-attention; the arguments are documented in the class."""
        bucket_bias = self._bucket_bias(bucket_bias)
        if state is not None and not self.causal:
            raise ValueError(
                "A state, the second argument, was passed with causal=False; expected causal=True, or CrossAttention, "
                "which attends to another sequence."
            )

        # the inputs: zeros at padding; what is not finite is kept apart where a mask may separate it from others
        x, mask = self._valid_inputs(inputs, inputs_mask if mask is None else mask)
        x, reset_mask = tensor_checks.masked("reset_mask", x, reset_mask)
        x = tensor_checks.where_boolean(x, attention_mask)
        is_first_call, is_finite = state is None, None
        if reset_mask is not None or attention_mask is not None:  # a weight of 0 times NaN is NaN
            is_finite = ops.all(ops.isfinite(x), axis=-1)
            x = where_valid(is_finite, x)

        # the state, and how many slots the queries attend to: those before and, of a window, the new ones too
        if not is_first_call:
            check_state(self.name, state, cache_shapes(state, x.shape[0], self._slot_shapes))
            x = tensor_checks.with_axes_of(x, state["position"], rank=1)
        size = x.shape[1] if is_first_call else state["position"].shape[1]
        if self.sliding_window is not None and not is_first_call and size is None:
            raise ValueError(f"{self.name}: the capacity of the cache is unknown; expected a known one with a window.")
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
        gate = self.gate_dense(x) if self.use_output_gate else None  # [B, T, H K']
        sinks = None if self.sinks is None else ops.convert_to_tensor(self.sinks)

        # append them to the cache: from here on keys and values are those of all S slots, [B, S, G, K]
        if is_finite is not None:  # a projection may overflow
            query_is_finite = ops.logical_and(is_finite, ops.all(ops.isfinite(q), axis=(2, 3)))
            q = where_valid(query_is_finite, q)
            k = where_valid(is_finite, k, float("nan"))  # for the state to remember
        slots, decay_sums = {"key": k, "value": v}, None
        if self._forgets:
            decay_sums = self.positions.decay_sums(self.forget_dense(x), mask, reset_mask)  # [B, T, H]
            slots["decay_sum"] = decay_sums
            state = None if is_first_call else {**state, "decay_sum": decay_sums_before(state)}
        slots["position"] = key_positions
        if holds_window:
            slots, key_segments, state = append_to_window(state, slots, mask is not None, key_segments)
        elif state is not None:
            key_segments = appended_segments(state, key_segments)
            slots = state = append_to_cache(state, slots)
        elif return_state:
            state = full_cache(slots)
        k, v, key_positions = slots["key"], slots["value"], slots["position"]
        if return_state and reset_mask is not None and not holds_window:
            state = without_earlier_documents(state, key_segments)
        if return_state and is_first_call and self.sliding_window is not None and mask is not None:
            state = in_order(state)
        if is_finite is not None:
            is_finite, k, v = finite_slots(k, v)

        # without masks or biases, causal attention has kernels of its own
        bias = None
        if self._has_buckets:
            bias = self.positions.bias_of_distance(bucket_bias, query_positions, key_positions, self.causal)
        elif self.positions is not None:
            bias = self.positions.bias(query_positions, key_positions, self.num_heads)
        extra_masks = [x for x in (mask, attention_mask, self.sliding_window, bias) if x is not None]
        is_plain_causal = self.causal and is_first_call and not (return_attention_scores or extra_masks)
        args = q, k, v, self.active_dropout(training), query_segments, sinks, decay_sums
        twin = causal_attention.twin(*args) if is_plain_causal else None
        if twin:
            y = self.project_output(twin(*args), gate)
            if is_finite is not None:
                is_nan = nan_to_the_end(is_finite, reset_mask)
                y, _ = with_nan(ops.logical_or(is_nan, ops.logical_not(query_is_finite)), y)
            return (y, state) if return_state else y

        # otherwise all masks become one, [T, S], [B, T, S] or [B, H, T, S]
        allowed = compute_attention_mask(query_positions, key_positions, self.causal, self.sliding_window)
        if reset_mask is not None:
            same = ops.equal(ops.expand_dims(query_segments, -1), ops.expand_dims(key_segments, -2))
            allowed = same if allowed is None else ops.logical_and(allowed, same)
        earlier = allowed
        if attention_mask is not None:
            if allowed is not None and len(attention_mask.shape) == 4 and len(allowed.shape) == 3:
                allowed = ops.expand_dims(allowed, 1)
            allowed = attention_mask if allowed is None else ops.logical_and(allowed, attention_mask)
        if self._forgets:
            bias = decay_bias(decay_sums, slots["decay_sum"])
        y, scores = self.attend(q, k, v, allowed, bias, training, return_attention_scores, sinks, gate)
        if is_finite is not None:
            reached = earlier if self._forgets else allowed  # by NaN: decays are those of all positions in between
            is_nan = nan_where_attended(ops.logical_not(is_finite), reached)
            y, _ = with_nan(ops.logical_or(is_nan, ops.logical_not(query_is_finite)), y)
        outputs = (y, *((scores,) if return_attention_scores else ()), *((state,) if return_state else ()))
        return outputs if len(outputs) > 1 else y

    def _bucket_bias(self, shared):
        """Return the biases by bucket, the layer's own or those that are shared with it, or None."""
        is_shared = self._has_buckets and self.positions.shared
        if is_shared == (shared is None):
            received = "None" if shared is None else f"{tuple(shared.shape)}"
            expected = "those of another layer" if is_shared else "None, or BucketedPositions(shared=True)"
            raise ValueError(
                f"{self.name}: bucket_bias={received} with positions={self.positions}; expected {expected}."
            )
        if is_shared and tuple(shared.shape) != (self.positions.num_buckets, self.num_heads):
            expected = [self.positions.num_buckets, self.num_heads]
            raise ValueError(f"bucket_bias has shape {tuple(shared.shape)}; expected {expected}.")
        bias = shared if is_shared else self.bucket_bias
        return None if bias is None else ops.convert_to_tensor(bias)
