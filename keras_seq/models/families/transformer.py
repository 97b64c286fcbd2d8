"""Decoder-only Transformers: that of this package, Llama's and GPT-2's.

Differences of the first from GPT-2: RMS normalization, rotary positions, normalized queries and keys, no biases, output
projections of the blocks that start at zero, so that each block starts as the identity, a short causal convolution
before each, and a gate on what is attended to.
"""

import dataclasses
import math
from typing import ClassVar, Literal

import keras

from keras_seq import layers
from keras_seq.layers.dense import gelu_tanh
from keras_seq.models.config import LanguageModelConfig, check_fields, register
from keras_seq.models.counts import count_block_params


@register("transformer", tiny={"num_layers": 2})
@dataclasses.dataclass(frozen=True)
class TransformerConfig(LanguageModelConfig):
    """Configure a decoder-only Transformer: 0.81 million parameters by default, with 65 characters.

    ```python
    model = TransformerConfig(context_length=64).build_model(vocabulary_size=65)
    logits = model(ids)  # [B, T] -> [B, T, 65]
    ```

    Raises:
        ValueError: A field is out of its range; in `build_model`, `context_length` is None.
    """

    embedding_dim: int = 128
    """D, the width of the residual stream."""
    num_layers: int = 4
    """Number of Transformer blocks."""
    num_heads: int = 4
    """Attention heads in each block, a divisor of embedding_dim."""
    feed_forward_dim: int = 448
    """Width of the hidden layer of each block's feed-forward network."""
    context_length: int | None = None
    """Maximum number of positions, needed to build the model; experiments default to the training window's length."""
    tie_embeddings: bool = False
    """Whether the head is the transposed embedding matrix."""
    dropout: float = 0.0
    """Dropout rate of the attention weights and the output of each sublayer."""
    kernel_size: int | None = 4
    """Width of the causal convolution before each block, in positions; None for none."""
    use_output_gate: bool = True
    """Whether a gate multiplies what is attended to, before the output projection."""
    use_sinks: bool = False
    """Whether each head has a learned score that takes a part of its weights."""
    use_forget_gate: bool = False
    """Whether forget gates take the place of rotary positions."""

    older_defaults: ClassVar[dict] = {"kernel_size": None, "use_output_gate": False}

    def __post_init__(self):
        """Check the fields."""
        super().__post_init__()
        check_fields(self, TransformerConfig)

    def blocks(self, dtype=None) -> list:
        """Return the layers between embedding and head."""
        blocks = [
            layer for n in range(self.num_layers) for layer in (*self.convolutions(n, dtype), self.block(n, dtype))
        ]
        return [*blocks, layers.RMSNormalization(dtype=dtype, name="normalization")]

    def convolutions(self, n: int, dtype=None) -> list:
        """Return the layers before block n: a residual convolution that starts as the identity, or none."""
        if self.kernel_size is None:
            return []
        convolution = layers.CausalDepthwiseConv1D(
            self.kernel_size, kernel_initializer="zeros", dtype=dtype, name="convolution"
        )
        options = {"dropout": self.dropout, "dtype": dtype, "name": f"convolution_{n}"}
        return [layers.PreNormResidual([convolution], **options)]

    def block(self, n: int, dtype=None):
        """Return block n."""
        return layers.TransformerBlock(
            num_heads=self.num_heads,
            feed_forward_dim=self.feed_forward_dim,
            causal=True,
            normalization="rms",
            dropout=self.dropout,
            use_bias=False,
            positions=layers.ForgettingPositions() if self.use_forget_gate else layers.RotaryPositions(),
            use_qk_norm=True,
            use_output_gate=self.use_output_gate,
            use_sinks=self.use_sinks,
            residual_initializer="zeros",
            dtype=dtype,
            name=f"block_{n}",
        )


# The decoder-only Transformer of the 2020s (Llama: Touvron et al., 2023, arXiv:2302.13971).
#
# RMS normalization, rotary positions, gated feed-forward networks, fewer key and value heads than query heads
# (grouped-query attention), no biases, a tied head. As in `TransformerConfig`, the output
# projections of the blocks start at zero, so that each block starts as the identity.


@register("llama", learning_rate=0.01)
@dataclasses.dataclass(frozen=True)
class LlamaConfig(LanguageModelConfig):
    """Configure a Llama-style Transformer: 0.81 million parameters by default, with 65 characters.

    ```python
    model = LlamaConfig(context_length=64).build_model(vocabulary_size=65)
    logits = model(ids)  # [B, T] -> [B, T, 65]
    ```

    Raises:
        ValueError: A field is out of its range; in `build_model`, `context_length` is None.
    """

    embedding_dim: int = 128
    """D, the width of the residual stream."""
    num_layers: int = 4
    """Number of Transformer blocks."""
    num_heads: int = 4
    """Query heads in each block, a divisor of embedding_dim."""
    num_key_value_heads: int = 2
    """Key and value heads in each block, a divisor of num_heads."""
    feed_forward_dim: int = 392
    """Width of the hidden layer of each block's gated feed-forward network, which has three matrices."""
    context_length: int | None = None
    """Maximum number of positions, needed to build the model; experiments default to the training window's length."""
    dropout: float = 0.0
    """Dropout rate of the attention weights and the output of each sublayer."""
    activation: Literal["swiglu", "geglu"] = "swiglu"
    """Activation of the gates of the feed-forward networks."""
    key_dim: int | None = None
    """K, the width of a head; by default embedding_dim / num_heads."""
    positions: layers.RotaryPositions = dataclasses.field(default_factory=layers.RotaryPositions)
    """Base and scaling of the rotations."""
    epsilon: float = 1e-6
    """Added to the mean square by the normalizations."""
    attention_bias: bool = False
    """Whether the projections to queries, keys and values add a bias."""
    attention_output_bias: bool = False
    """Whether the output projections of the attention layers add a bias."""
    feed_forward_bias: bool = False
    """Whether the matrices of the feed-forward networks add a bias."""
    use_qk_norm: bool = False
    """Whether to RMS-normalize queries and keys."""
    use_output_gate: bool = False
    """Whether a gate multiplies what is attended to, before the output projection."""
    use_sinks: bool = False
    """Whether each head has a learned score that takes a part of its weights."""
    sliding_window: int | None = None
    """Attend only to positions less than this far away; None for all."""
    full_attention_layers: int = 0
    """Number of first blocks that attend to all positions in spite of sliding_window."""
    tie_embeddings: bool = True
    """Whether the head is the transposed embedding matrix."""

    def __post_init__(self):
        """Check the fields."""
        super().__post_init__()
        check_fields(self, LlamaConfig)

    def count_params(self, vocabulary_size: int) -> int:
        """Return the number of parameters, without building the model."""
        dim, key_dim = self.embedding_dim, self.key_dim or self.embedding_dim // self.num_heads
        query_dim, key_value_dim = self.num_heads * key_dim, self.num_key_value_heads * key_dim
        attention = 2 * dim * query_dim + 2 * dim * key_value_dim + 2 * key_dim * self.use_qk_norm
        attention += self.use_output_gate * query_dim * dim + self.use_sinks * self.num_heads
        gate_bias = self.use_output_gate * query_dim
        biases = self.attention_bias * (query_dim + 2 * key_value_dim + gate_bias) + self.attention_output_bias * dim
        feed_forward = 3 * dim * self.feed_forward_dim + self.feed_forward_bias * (2 * self.feed_forward_dim + dim)
        embeddings = vocabulary_size * dim * (1 if self.tie_embeddings else 2)
        return embeddings + self.num_layers * (attention + biases + feed_forward + 2 * dim) + dim

    def blocks(self, dtype=None) -> list:
        """Return the layers between embedding and head."""
        blocks = [
            layers.TransformerBlock(
                num_heads=self.num_heads,
                feed_forward_dim=self.feed_forward_dim,
                causal=True,
                normalization="rms",
                activation=self.activation,
                dropout=self.dropout,
                use_bias=False,
                attention_bias=self.attention_bias,
                attention_output_bias=self.attention_output_bias,
                feed_forward_bias=self.feed_forward_bias,
                key_dim=self.key_dim,
                epsilon=self.epsilon,
                positions=self.positions,
                use_qk_norm=self.use_qk_norm,
                use_output_gate=self.use_output_gate,
                use_sinks=self.use_sinks,
                num_key_value_heads=self.num_key_value_heads,
                sliding_window=None if n < self.full_attention_layers else self.sliding_window,
                residual_initializer="zeros",
                dtype=dtype,
                name=f"block_{n}",
            )
            for n in range(self.num_layers)
        ]
        return [*blocks, layers.RMSNormalization(epsilon=self.epsilon, dtype=dtype, name="normalization")]


# The decoder-only Transformer as published (GPT-2: Radford et al., 2018 and 2019; GPT-3: Brown et al., 2020).
#
# Learned positions, pre-norm layer normalization and one more at the end, tanh-approximated gelu, biases in all dense
# layers, a tied head. `LlamaConfig` has the changes made since.


ACTIVATIONS = {"gelu_tanh": gelu_tanh, "gelu": "gelu", "relu": "relu", "silu": "silu"}


@register("gpt2", learning_rate=0.01)
@dataclasses.dataclass(frozen=True)
class GPT2Config(LanguageModelConfig):
    """Configure a decoder-only Transformer as published: 0.81 million parameters by default, with 65 characters.

    ```python
    model = GPT2Config(context_length=64).build_model(vocabulary_size=65)
    logits = model(ids)  # [B, T] -> [B, T, 65]
    ```

    Raises:
        ValueError: A field is out of its range; in `build_model` and `count_params`, `context_length` is None.
    """

    embedding_dim: int = 128
    """D, the width of the residual stream."""
    num_layers: int = 4
    """Number of Transformer blocks."""
    num_heads: int = 4
    """Attention heads in each block, a divisor of embedding_dim."""
    feed_forward_dim: int = 512
    """Width of the hidden layer of each block's feed-forward network."""
    context_length: int | None = None
    """Maximum number of positions, needed to build the model; experiments default to the training window's length."""
    dropout: float = 0.0
    """Dropout rate of the embeddings, the attention weights and the output of each sublayer."""
    use_bias: bool = True
    """Whether dense layers and layer normalizations add a bias; nanoGPT's do not."""
    activation: Literal["gelu_tanh", "gelu", "relu", "silu"] = "gelu_tanh"
    """Activation of the feed-forward networks; gelu_tanh is an approximation of gelu."""
    epsilon: float = 1e-5
    """Added to the variance by the normalizations."""
    tie_embeddings: bool = True
    """Whether the head is the transposed embedding matrix."""

    def __post_init__(self):
        """Check the fields."""
        super().__post_init__()
        check_fields(self, GPT2Config)

    def count_params(self, vocabulary_size: int) -> int:
        """Return the number of parameters, without building the model."""
        dim, context_length = self.embedding_dim, self._context_length()
        blocks = self.num_layers * count_block_params(dim, self.feed_forward_dim, use_bias=self.use_bias)
        heads = 1 if self.tie_embeddings else 2
        return (heads * vocabulary_size + context_length) * dim + blocks + (1 + self.use_bias) * dim

    def blocks(self, dtype=None) -> list:
        """Return the layers between embedding and head."""
        normal = keras.initializers.RandomNormal(stddev=0.02)
        blocks = [layers.LearnedPositions(self.context_length, normal, dtype=dtype, name="positions")]
        if self.dropout:
            blocks.append(keras.layers.Dropout(self.dropout, dtype=dtype, name="embedding_dropout"))
        # 0.02, scaled down for the sublayers that add to the residual stream: Radford et al., 2019, section 2.3
        residual = keras.initializers.RandomNormal(stddev=0.02 / math.sqrt(2 * self.num_layers))
        for n in range(self.num_layers):
            block = layers.TransformerBlock(
                num_heads=self.num_heads,
                feed_forward_dim=self.feed_forward_dim,
                causal=True,
                activation=ACTIVATIONS[self.activation],
                dropout=self.dropout,
                use_bias=self.use_bias,
                epsilon=self.epsilon,
                residual_initializer=residual.clone(),
                dtype=dtype,
                name=f"block_{n}",
            )
            blocks.append(block)
        options = {"center": self.use_bias, "dtype": dtype, "name": "normalization"}
        return [*blocks, layers.LayerNormalization(epsilon=self.epsilon, **options)]
