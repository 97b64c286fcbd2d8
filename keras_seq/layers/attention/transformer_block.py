"""The Transformer block (Vaswani et al., 2017): attention, then a feed-forward layer, each with a residual connection.

    norm_first:  x + f(norm(x))          (Xiong et al., 2020)            else:  norm(x + f(x))

f is self-attention, then optionally cross-attention, then the feed-forward layer. Encoder, decoder and encoder-decoder
blocks are this one layer with different arguments.
"""

from collections.abc import Mapping

import keras

from keras_seq import checks
from keras_seq.layers.attention.multi_head_attention import CrossAttention
from keras_seq.layers.attention.relative_positions import deserialize_positions
from keras_seq.layers.attention.self_attention import MultiHeadSelfAttention
from keras_seq.layers.base.layer import Layer, freeze_inner_layers, same_shape
from keras_seq.layers.base.state import shapes
from keras_seq.layers.dense import FeedForward, GatedFeedForward, gelu_tanh
from keras_seq.layers.normalization import NORMALIZATIONS, make_normalization

GATED_ACTIVATIONS = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": gelu_tanh}


@keras.saving.register_keras_serializable(package="keras_seq")
class TransformerBlock(Layer):
    """Self-attention, optional cross-attention and a feed-forward layer, with residual connections and normalization.

    ```python
    encoder = TransformerBlock(num_heads=4, feed_forward_dim=512)
    y = encoder(x)  # x [B, T, D] -> y [B, T, D]

    decoder = TransformerBlock(num_heads=4, feed_forward_dim=512, causal=True, positions=RotaryPositions())
    state = decoder.get_initial_state(batch_size, capacity=T)
    y, state = decoder(x[:, :1], state=state, return_state=True)  # equals decoder(x)[:, :1]

    both = TransformerBlock(num_heads=4, feed_forward_dim=512, causal=True, cross_attention=True)
    y = both(x, context=encoded, context_mask=encoded_mask)  # encoded [B, S, D']
    ```

    Args:
        num_heads: H.
        feed_forward_dim: Width of the hidden layer of the feed-forward sublayer.
        causal: Whether self-attention masks later positions.
        norm_first: Whether to normalize the input of each sublayer (pre-norm; the stack then needs a final
            normalization) or the sum after it (post-norm, the original).
        cross_attention: Whether to attend to `context` too.
        normalization: `"layer"` (Ba et al., 2016; with an offset if `use_bias`), `"rms"` (Zhang & Sennrich, 2019) or
            `"zero_centered_rms"`, whose scales are 1 plus its weights, as are then those of `use_qk_norm`.
        activation: Activation of the feed-forward sublayer: a name, a function, or `"swiglu"`, `"geglu"` or
            `"geglu_tanh"`, with the approximate gelu, for the gated form.
        dropout: Fraction of the attention weights and of each sublayer's output to drop in training.
        use_bias: Whether projections and layer normalizations add a bias.
        attention_bias, attention_output_bias, feed_forward_bias: Whether the projections to queries, keys and values,
            those of the attended values, and the matrices of the feed-forward sublayer add a bias; as `use_bias`
            unless given.
        key_dim: K, width of a head; D / H unless given.
        epsilon: Added to the variance (1e-5 unless given) or mean square (1e-6) by all normalizations.
        positions: `RotaryPositions()`, `AlibiPositions()`, `ForgettingPositions()`, `BucketedPositions()` or None, for
            self-attention; a scale that they have is that of cross-attention, too.
        use_qk_norm: Whether to RMS-normalize queries and keys per head, in both attentions.
        use_output_gate, use_sinks: Whether self-attention has an output gate, and sinks; see `MultiHeadSelfAttention`.
        num_key_value_heads: Number of key and value heads, a divisor of H; H unless given. In both attentions.
        sliding_window: Self-attention attends only to positions less than this far away; None for all.
        residual_initializer: Initializer of the matrices that write to the residual stream; with `"zeros"` and
            `norm_first` the block starts as the identity.
        **kwargs: Those of `keras.layers.Layer`.

    Call arguments:
        inputs: `[B, T, D]`.
        state: From `get_initial_state` or the previous call; requires `causal=True`.
        mask: `[B, T]`, true at non-padding positions; see `MultiHeadSelfAttention`. It is passed on.
        context: `[B, S, D']`, for cross-attention; None with a state.
        context_mask: `[B, S]`, true at non-padding positions of the context.
        reset_mask: `[B, T]`, true where another document begins, for self-attention.
        attention_mask: `[B, T, S]`, true where self-attention may attend, combined with mask and causality.
        bucket_bias: For self-attention, the biases of another block; see `BucketedPositions`.
        inputs_mask: What Keras passes for `mask` when the call has other tensors than the inputs.
        return_state: Whether to return the state too, `{"self_attention": ..., "cross_attention": ...}`.
        return_attention_scores: Whether to return the attention weights (before dropout) too, under the same keys:
            `[B, H, T, S]` each.

    Returns:
        y `[B, T, D]`, or a tuple `(y, scores, state)` of y and the requested outputs, in this order.

    Raises:
        ValueError: If an argument is out of its range; if there is a context without cross-attention, or the reverse;
            if state or mask do not match the inputs, as for `MultiHeadSelfAttention`.
    """

    loops_over_positions = False
    compute_output_shape = same_shape

    def __init__(
        self,
        num_heads: int,
        feed_forward_dim: int,
        causal: bool = False,
        norm_first: bool = True,
        cross_attention: bool = False,
        normalization: str = "layer",
        activation="gelu",
        dropout: float = 0.0,
        use_bias: bool = True,
        attention_bias: bool | None = None,
        attention_output_bias: bool | None = None,
        feed_forward_bias: bool | None = None,
        key_dim: int | None = None,
        epsilon: float | None = None,
        positions=None,
        use_qk_norm: bool = False,
        use_output_gate: bool = False,
        use_sinks: bool = False,
        num_key_value_heads: int | None = None,
        sliding_window: int | None = None,
        residual_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.autocast = False  # the layers cast their inputs; the state keeps its own dtypes
        self.causal = checks.boolean("causal", causal)
        self.norm_first = checks.boolean("norm_first", norm_first)
        self.cross_attention = checks.boolean("cross_attention", cross_attention)
        self.normalization = checks.one_of("normalization", normalization, NORMALIZATIONS)
        gated = isinstance(activation, str) and activation in GATED_ACTIVATIONS
        self.activation = activation if gated else keras.activations.get(activation)
        self.dropout = checks.fraction("dropout", dropout)
        self.use_bias = checks.boolean("use_bias", use_bias)
        self.attention_bias = _or_default("attention_bias", attention_bias, use_bias)
        self.attention_output_bias = _or_default("attention_output_bias", attention_output_bias, use_bias)
        self.feed_forward_bias = _or_default("feed_forward_bias", feed_forward_bias, use_bias)
        self.key_dim = key_dim
        self.epsilon = None if epsilon is None else checks.positive_number("epsilon", epsilon)
        self.positions = None if positions is None else deserialize_positions(positions)
        self.use_qk_norm = checks.boolean("use_qk_norm", use_qk_norm)
        self.use_output_gate = use_output_gate
        self.use_sinks = use_sinks
        self.num_key_value_heads = num_key_value_heads
        self.sliding_window = sliding_window
        self.residual_initializer = keras.initializers.get(residual_initializer)

        common = {"output_initializer": self.residual_initializer, "dtype": self.dtype_policy}
        heads = {
            "num_heads": num_heads,
            "key_dim": key_dim,
            "num_key_value_heads": num_key_value_heads,
            "use_qk_norm": use_qk_norm,
            "qk_normalization": "zero_centered_rms" if normalization == "zero_centered_rms" else "rms",
            "use_bias": self.attention_bias,
            "output_bias": self.attention_output_bias,
            "dropout": dropout,
            "scale": None if self.positions is None else self.positions.scale,
            **({} if epsilon is None else {"epsilon": epsilon}),
        }
        self.self_attention_layer = MultiHeadSelfAttention(
            causal=causal,
            sliding_window=sliding_window,
            positions=self.positions,
            use_output_gate=use_output_gate,
            use_sinks=use_sinks,
            name="self_attention",
            **heads,
            **common,
        )
        if cross_attention:
            self.cross_attention_layer = CrossAttention(name="cross_attention", **heads, **common)
        self.feed_forward_layer = (GatedFeedForward if gated else FeedForward)(
            feed_forward_dim,
            activation=GATED_ACTIVATIONS[activation] if gated else activation,
            use_bias=self.feed_forward_bias,
            name="feed_forward",
            **common,
        )
        # checked by the layers that they are for
        self.num_heads = self.self_attention_layer.num_heads
        self.feed_forward_dim = self.feed_forward_layer.feed_forward_dim
        self.normalizations = [self._normalization(sublayer) for sublayer in self.sublayers]
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    @property
    def sublayers(self) -> tuple[str, ...]:
        """Return the names of the two or three sublayers, in the order of the call."""
        return ("self_attention", *(("cross_attention",) if self.cross_attention else ()), "feed_forward")

    def _normalization(self, sublayer):
        options = {"center": self.use_bias} if self.normalization == "layer" else {}
        name = f"{sublayer}_normalization"
        return make_normalization(self.normalization, self.epsilon, name=name, dtype=self.dtype_policy, **options)

    def build(self, inputs_shape, context_shape=None):
        """Create the weights for inputs `[B, T, D]` and, with cross-attention, a context `[B, S, D']`."""
        self._read_width(inputs_shape)
        for layer in (self.self_attention_layer, self.feed_forward_layer, *self.normalizations):
            layer.build(inputs_shape)
        if self.cross_attention:
            self.cross_attention_layer.build(inputs_shape, context_shape)
        freeze_inner_layers(self)

    def get_initial_state(self, batch_size, capacity: int | None = None, context=None, context_mask=None):
        """Return an empty cache for self-attention and, with cross-attention, the keys and values of the context.

        Args:
            batch_size: B, an integer or an integer tensor.
            capacity: Number of positions that the cache can hold; required without a sliding window.
            context: `[B, S, D']`, required for cross-attention.
            context_mask: `[B, S]`, true at non-padding positions of the context; None for that of Keras, if it has one.

        Returns:
            The state, a dict with a key for each attention sublayer.

        Raises:
            ValueError: If a context is missing, or as `MultiHeadSelfAttention.get_initial_state` raises it.
        """
        state = {"self_attention": self.self_attention_layer.get_initial_state(batch_size, capacity)}
        if self.cross_attention:
            if context is None:
                raise ValueError("context=None; expected [B, S, D'] for the state of a block with cross-attention.")
            state["cross_attention"] = self.cross_attention_layer.project_context(context, context_mask)
        return state

    def call(
        self,
        inputs,
        state=None,
        mask=None,
        context=None,
        context_mask=None,
        attention_mask=None,
        inputs_mask=None,
        training: bool | None = None,
        return_state: bool = False,
        return_attention_scores: bool = False,
        reset_mask=None,
        bucket_bias=None,
    ):
        """Apply the block; the arguments are documented in the class."""
        x, mask = self._valid_inputs(inputs, inputs_mask if mask is None else mask)
        if context is not None and not self.cross_attention:
            raise ValueError("context was passed with cross_attention=False; expected cross_attention=True.")
        if state is not None:
            self._check_state(state)
        state_in, state_out, scores = state or {}, {}, {}
        common = {
            "training": training,
            "return_state": return_state,
            "return_attention_scores": return_attention_scores,
        }

        def attend(sublayer, layer, x, **kwargs):  # which gives y alone, or with what it is asked for
            y = layer(x, state=state_in.get(sublayer), **kwargs, **common)
            if return_state:
                *y, state_out[sublayer] = y
            if return_attention_scores:
                *y, scores[sublayer] = y
            return y[0] if isinstance(y, list) else y

        h = attend(
            "self_attention",
            self.self_attention_layer,
            self._pre_norm(x, 0),
            mask=mask,
            attention_mask=attention_mask,
            reset_mask=reset_mask,
            bucket_bias=bucket_bias,
        )
        x = self._residual(x, h, 0, training)
        if self.cross_attention:
            h = attend(
                "cross_attention",
                self.cross_attention_layer,
                self._pre_norm(x, 1),
                context=context,
                context_mask=context_mask,
            )
            x = self._residual(x, h, 1, training)
        h = self.feed_forward_layer(self._pre_norm(x, -1), training=training)
        x = self._residual(x, h, -1, training)
        outputs = (x, *((scores,) if return_attention_scores else ()), *((state_out,) if return_state else ()))
        return outputs if len(outputs) > 1 else x

    def _check_state(self, state):
        expected = set(self.sublayers) - {"feed_forward"}
        if not isinstance(state, Mapping) or state.keys() != expected:
            raise ValueError(
                f"{self.name}: state has the shapes {shapes(state)}; expected, as get_initial_state returns it, "
                f"a dict of {' and '.join(sorted(expected))}."
            )

    def _pre_norm(self, x, sublayer):
        return self.normalizations[sublayer](x) if self.norm_first else x

    def _residual(self, x, h, sublayer, training):
        x = x + (self.dropout_layer(h, training=training) if self.dropout else h)
        return x if self.norm_first else self.normalizations[sublayer](x)


def _or_default(name, value, default):
    return bool(default) if value is None else checks.boolean(name, value)
