"""The Transformer block (Vaswani et al., 2017): attention, then a feed-forward layer, each added to what came in.

    norm_first:  x + f(norm(x))          (Xiong et al., 2020)            else:  norm(x + f(x))

f is self-attention, then cross-attention where asked for, then the feed-forward layer. Encoder, decoder and
encoder-decoder blocks are this one layer with different arguments.
"""

from collections.abc import Mapping

import keras

from keras_seq import checks
from keras_seq.layers.cross_attention import CrossAttention
from keras_seq.layers.feed_forward import FeedForward, GatedFeedForward
from keras_seq.layers.normalization import NORMALIZATIONS
from keras_seq.layers.relative_positions import deserialize_positions
from keras_seq.layers.self_attention import MultiHeadSelfAttention
from keras_seq.layers.state_checks import shapes

GATES = {"swiglu": "silu", "geglu": "gelu"}


@keras.saving.register_keras_serializable(package="keras_seq")
class TransformerBlock(keras.layers.Layer):
    """Self-attention, optional cross-attention and a feed-forward layer, with residuals and normalisation.

    ```python
    encoder = TransformerBlock(num_heads=4, feed_forward_dim=512)
    y = encoder(x)  # x [B, T, D] -> y [B, T, D]

    decoder = TransformerBlock(num_heads=4, feed_forward_dim=512, causal=True, positions=RotaryPositions())
    state = decoder.initial_state(batch_size, capacity=T)
    y, state = decoder(x[:, :1], state=state, return_state=True)  # equals decoder(x)[:, :1]

    both = TransformerBlock(num_heads=4, feed_forward_dim=512, causal=True, cross_attention=True)
    y = both(x, context=encoded, context_mask=real)  # encoded [B, S, D']
    ```

    Args:
        num_heads: H; D / H is the width of a head.
        feed_forward_dim: width of the hidden layer of the feed-forward part.
        causal: self-attention attends to no later position.
        norm_first: normalise what enters a part (pre-norm; the stack then wants one more normalisation at its end), or
            what leaves the sum (post-norm, the original).
        cross_attention: also attend to `context`.
        normalization: `"layer"` (Ba et al., 2016; with an offset if `use_bias`) or `"rms"` (Zhang & Sennrich, 2019).
        activation: of the feed-forward part: a name, a function, or `"swiglu"` or `"geglu"` for the gated form.
        dropout: fraction of the attention weights, and of what each part adds, dropped in training.
        use_bias: whether projections and layer normalisation add a bias.
        positions: `RotaryPositions()`, `AlibiPositions()` or None, for self-attention.
        query_key_normalization: RMS normalisation of queries and keys by head, in both attentions.
        num_key_value_heads: heads of keys and values, a divisor of H; H unless given. In both attentions.
        window: self-attention attends only to positions less than this far away.
        residual_initializer: of the matrices that write into the residual stream; with `"zeros"` and `norm_first` the
            block starts as the identity.

    Call arguments:
        x: `[B, T, D]`.
        state: from `initial_state` or the call before; needs `causal=True`.
        mask: `[B, T]`, true where x is real; see `MultiHeadSelfAttention`. It passes on to the output.
        context: `[B, S, D']`, for cross-attention; not needed with a state.
        context_mask: `[B, S]`, true where the context is real.
        attention_mask: `[B, T, S]`; narrows who attends to whom in self-attention.
        x_mask: what Keras passes for `mask` when x is not the only tensor of the call.
        return_state: also return the state, `{"self_attention": ..., "cross_attention": ...}`.
        return_attention_scores: also return the weights before dropout, by the same names: `[B, H, T, S]` each.

    Returns:
        y `[B, T, D]`, or a tuple `(y, scores, state)` with what was asked for, in this order.

    Raises:
        ValueError: for an argument out of its range; a context without cross-attention, or the reverse; a state or mask
            that does not belong to x, as `MultiHeadSelfAttention` has it.
    """

    def __init__(
        self,
        num_heads,
        feed_forward_dim,
        causal=False,
        norm_first=True,
        cross_attention=False,
        normalization="layer",
        activation="gelu",
        dropout=0.0,
        use_bias=True,
        positions=None,
        use_qk_norm=False,
        num_key_value_heads=None,
        sliding_window=None,
        residual_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = checks.positive_integer("num_heads", num_heads)
        self.feed_forward_dim = checks.positive_integer("feed_forward_dim", feed_forward_dim)
        self.causal = bool(causal)
        self.norm_first = bool(norm_first)
        self.cross_attention = bool(cross_attention)
        self.normalization = checks.one_of("normalization", normalization, NORMALIZATIONS)
        gated = isinstance(activation, str) and activation in GATES
        self.activation = activation if gated else keras.activations.get(activation)
        self.dropout = checks.fraction("dropout", dropout)
        self.use_bias = bool(use_bias)
        self.positions = deserialize_positions(positions)
        self.use_qk_norm = bool(use_qk_norm)
        self.num_key_value_heads = num_key_value_heads
        self.sliding_window = sliding_window
        self.residual_initializer = keras.initializers.get(residual_initializer)
        self.supports_masking = True

        common = {"use_bias": use_bias, "output_initializer": self.residual_initializer, "dtype": self.dtype_policy}
        heads = {
            "num_heads": num_heads,
            "num_key_value_heads": num_key_value_heads,
            "use_qk_norm": use_qk_norm,
            "dropout": dropout,
        }
        self.self_attention_layer = MultiHeadSelfAttention(
            causal=causal,
            sliding_window=sliding_window,
            positions=self.positions,
            name="self_attention",
            **heads,
            **common,
        )
        if cross_attention:
            self.cross_attention_layer = CrossAttention(name="cross_attention", **heads, **common)
        self.feed_forward_layer = (GatedFeedForward if gated else FeedForward)(
            feed_forward_dim, activation=GATES[activation] if gated else activation, name="feed_forward", **common
        )
        self.normalizations = [self._normalization(part) for part in self.sublayers]
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    @property
    def sublayers(self):
        """The names of the two or three parts, in the order of the call."""
        return ("self_attention", *(("cross_attention",) if self.cross_attention else ()), "feed_forward")

    def _normalization(self, part):
        options = {"center": self.use_bias} if self.normalization == "layer" else {}
        return NORMALIZATIONS[self.normalization](name=f"{part}_normalization", dtype=self.dtype_policy, **options)

    def build(self, x_shape, context_shape=None):
        """Makes the weights for `x [B, T, D]` and, with cross-attention, `context [B, S, D']`."""
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: checks.sequence_shape("x", x_shape)})
        for layer in (self.self_attention_layer, self.feed_forward_layer, *self.normalizations):
            layer.build(x_shape)
        if self.cross_attention:
            self.cross_attention_layer.build(x_shape, context_shape)

    def get_initial_state(self, batch_size, capacity=None, context=None, context_mask=None):
        """Room for `capacity` positions, and the keys and values of the context where there is cross-attention."""
        state = {"self_attention": self.self_attention_layer.get_initial_state(batch_size, capacity)}
        if self.cross_attention:
            if context is None:
                raise ValueError("context=None; expected [B, S, D'] for the state of a block with cross-attention.")
            state["cross_attention"] = self.cross_attention_layer.project_context(context, context_mask)
        return state

    def call(
        self,
        x,
        state=None,
        mask=None,
        context=None,
        context_mask=None,
        attention_mask=None,
        x_mask=None,
        training=None,
        return_state=False,
        return_attention_scores=False,
    ):
        """See the class."""
        checks.real("x", x)
        if context is not None and not self.cross_attention:
            raise ValueError("context was given with cross_attention=False; expected cross_attention=True.")
        mask = x_mask if mask is None else mask
        if state is not None:
            self._check_parts(state)
        before, after, scores = state or {}, {}, {}

        h, *told, after["self_attention"] = self.self_attention_layer(
            self._pre_norm(x, 0),
            state=before.get("self_attention"),
            mask=mask,
            attention_mask=attention_mask,
            training=training,
            return_state=True,
            return_attention_scores=return_attention_scores,
        )
        if return_attention_scores:
            (scores["self_attention"],) = told
        x = self._residual(x, h, 0, training)
        if self.cross_attention:
            h, scores["cross_attention"], after["cross_attention"] = self.cross_attention_layer(
                self._pre_norm(x, 1),
                context=context,
                state=before.get("cross_attention"),
                context_mask=context_mask,
                training=training,
                return_state=True,
                return_attention_scores=True,
            )
            x = self._residual(x, h, 1, training)
        h = self.feed_forward_layer(self._pre_norm(x, -1), training=training)
        x = self._residual(x, h, -1, training)
        outputs = (x, *((scores,) if return_attention_scores else ()), *((after,) if return_state else ()))
        return outputs if len(outputs) > 1 else x

    def _check_parts(self, state):
        expected = set(self.sublayers) - {"feed_forward"}
        if not isinstance(state, Mapping) or state.keys() != expected:
            raise ValueError(
                f"{self.name}: state has the shapes {shapes(state)}; expected what initial_state gives, "
                f"a dict of {' and '.join(sorted(expected))}."
            )

    def _pre_norm(self, x, part):
        return self.normalizations[part](x) if self.norm_first else x

    def _residual(self, x, h, part, training):
        x = x + self.dropout_layer(h, training=training)
        return x if self.norm_first else self.normalizations[part](x)

    def compute_output_shape(self, x_shape, context_shape=None):
        """`[B, T, D]`, as x came."""
        return tuple(x_shape)

    def compute_output_spec(self, *args, **kwargs):
        """The shapes and dtypes of `call` itself, whatever it is asked to return."""
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self):
        """The arguments."""
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "feed_forward_dim": self.feed_forward_dim,
            "causal": self.causal,
            "norm_first": self.norm_first,
            "cross_attention": self.cross_attention,
            "normalization": self.normalization,
            "activation": self.activation if self.activation in GATES else keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "positions": keras.saving.serialize_keras_object(self.positions),
            "use_qk_norm": self.use_qk_norm,
            "num_key_value_heads": self.num_key_value_heads,
            "sliding_window": self.sliding_window,
            "residual_initializer": keras.initializers.serialize(self.residual_initializer),
        }
