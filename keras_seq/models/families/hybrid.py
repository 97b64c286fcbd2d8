"""Language models of recurrence and attention: RecurrentGemma and Qwen3.5 as published, and hybrids by a pattern.

Griffin as published in RecurrentGemma (De et al., 2024, arXiv:2402.19427; Botev et al., 2024, arXiv:2404.07839).

    x = sqrt(D) E[ids]
    block    x + mixer(norm(x)), then x + feed_forward(norm(x))          mixer: an RG-LRU block or local attention
    logits = c tanh(norm(x) E^T / c)

The first half of each query and key is rotated by its position. `HybridConfig` is its small relative for comparisons.
"""

import dataclasses
from typing import ClassVar

import keras
import ml_dtypes

from keras_seq import checks, layers
from keras_seq.layers.dense import gelu_tanh
from keras_seq.models.config import LanguageModelConfig, check_fields, register
from keras_seq.models.families.linear import MixerModelConfig

NORMALIZATION = "zero_centered_rms"


@dataclasses.dataclass(frozen=True)
class _PublishedHybridConfig(LanguageModelConfig):
    """Hold what both published models share: a subclass makes attention, the other mixer and a feed-forward layer."""

    @property
    def kinds(self) -> str:
        """The kind of each layer."""
        return (self.pattern * self.num_layers)[: self.num_layers]

    def _mixer_blocks(self, n, dtype):
        return [
            layers.PreNormResidual([layer], NORMALIZATION, self.dropout, self.epsilon, dtype=dtype, name=f"{name}_{n}")
            for layer, name in ((self._mixer(dtype), "block"), (self._feed_forward(dtype), "feed_forward"))
        ]

    def _attention_block(self, n, dtype):
        return layers.TransformerBlock(
            num_heads=self.num_heads,
            feed_forward_dim=self.feed_forward_dim,
            causal=True,
            normalization=NORMALIZATION,
            dropout=self.dropout,
            attention_bias=self.attention_bias,
            epsilon=self.epsilon,
            positions=self.positions,
            num_key_value_heads=self.num_key_value_heads,
            residual_initializer="zeros",
            dtype=dtype,
            name=f"block_{n}",
            **self._attention_options(),
        )

    def blocks(self, dtype=None) -> list:
        """Return the layers between embedding and head."""
        blocks = []
        for n, kind in enumerate(self.kinds):
            blocks += [self._attention_block(n, dtype)] if kind == "a" else self._mixer_blocks(n, dtype)
        return [*blocks, layers.ZeroCenteredRMSNormalization(epsilon=self.epsilon, dtype=dtype, name="normalization")]


@dataclasses.dataclass(frozen=True)
class RecurrentGemmaConfig(_PublishedHybridConfig):
    """Configure a RecurrentGemma; attention remembers a window, so that there is no limit of positions.

    ```python
    model = RecurrentGemmaConfig().build_model(vocabulary_size=65)
    logits = model(ids)  # [B, T] -> [B, T, 65]
    ```

    Raises:
        ValueError: A field is out of its range.
    """

    model_name: ClassVar[str] = "recurrent_gemma"
    tie_embeddings = True

    embedding_dim: int = 128
    """D, the width of the residual stream."""
    num_layers: int = 3
    """Number of blocks."""
    pattern: str = "rra"
    """Kinds of blocks, repeated over the layers: r is an RG-LRU, a is attention."""
    num_heads: int = 4
    """Query heads of attention, and blocks of the matrices of the RG-LRU's gates."""
    num_key_value_heads: int = 1
    """Key and value heads of attention, a divisor of num_heads."""
    feed_forward_dim: int = 384
    """Width of the hidden layer of each block's gated feed-forward network."""
    lru_width: int | None = None
    """Units of each RG-LRU, a multiple of num_heads; by default embedding_dim."""
    kernel_size: int = 4
    """Width of the causal convolution before each RG-LRU, in positions."""
    sliding_window: int = 2048
    """Attention blocks attend to positions less than this far away."""
    positions: layers.RotaryPositions = dataclasses.field(
        default_factory=lambda: layers.RotaryPositions(partial_rotary_factor=0.5)
    )
    """Rotations of queries and keys."""
    attention_bias: bool = False
    """Whether the projections to queries, keys and values add a bias."""
    logit_soft_cap: float = 30.0
    """c, the bound of the logits."""
    epsilon: float = 1e-6
    """Added to the mean square by the normalizations."""
    dropout: float = 0.0
    """Dropout rate of the attention weights and the output of each sublayer."""

    def __post_init__(self):
        """Check the fields."""
        super().__post_init__()
        check_fields(self, RecurrentGemmaConfig)
        checks.pattern("pattern", self.pattern, "ra")
        width = self.lru_width or self.embedding_dim
        if width % self.num_heads:
            raise ValueError(f"lru_width={width}; expected a multiple of num_heads={self.num_heads}.")
        self._mixer(dtype=None)  # raises for an invalid size

    def _mixer(self, dtype):
        return layers.GriffinRecurrentBlock(
            self.num_heads,
            head_dim=(self.lru_width or self.embedding_dim) // self.num_heads,
            kernel_size=self.kernel_size,
            output_initializer="zeros",
            dtype=dtype,
            name="hawk",
        )

    def _feed_forward(self, dtype):
        return layers.GatedFeedForward(
            self.feed_forward_dim, activation=gelu_tanh, output_initializer="zeros", dtype=dtype, name="feed_forward"
        )

    def _attention_options(self):
        key_dim = self.embedding_dim // self.num_heads
        return {"activation": "geglu_tanh", "key_dim": key_dim, "sliding_window": self.sliding_window}

    def blocks(self, dtype=None) -> list:
        """Return the layers between embedding and head."""
        scale = float(ml_dtypes.bfloat16(self.embedding_dim**0.5))  # rounded, as it was in training
        return [keras.layers.Rescaling(scale, dtype=dtype, name="embedding_scale"), *super().blocks(dtype)]


# Qwen3.5 as published, and Qwen3-Next without its experts (Qwen Team, 2025 and 2026): every fourth block is attention.
#
#     block    x + mixer(norm(x)), then x + feed_forward(norm(x))          mixer: Gated DeltaNet or gated attention
#
# A quarter of each query and key is rotated by its position, after a normalization; a gate for each feature of a head
# multiplies what is attended to. Scales are 1 plus weights, but for that of Gated DeltaNet's output.


@register("qwen3_5", tiny={"num_layers": 2, "pattern": "da", "key_dim": 8, "linear_key_dim": 4, "linear_value_dim": 4})
@dataclasses.dataclass(frozen=True)
class Qwen35Config(_PublishedHybridConfig):
    """Configure a Qwen3.5 for text, with dense feed-forward networks: 0.80 million parameters, with 65 characters.

    ```python
    model = Qwen35Config(context_length=64).build_model(vocabulary_size=65)
    logits = model(ids)  # [B, T] -> [B, T, 65]
    ```

    Raises:
        ValueError: A field is out of its range; in `build_model`, `context_length` is None.
    """

    embedding_dim: int = 128
    """D, the width of the residual stream."""
    num_layers: int = 4
    """Number of blocks."""
    pattern: str = "ddda"
    """Kinds of blocks, repeated over the layers: d is Gated DeltaNet, a is attention."""
    num_heads: int = 4
    """Query heads of attention."""
    num_key_value_heads: int = 2
    """Key and value heads of attention, a divisor of num_heads."""
    key_dim: int = 32
    """Width of a head of attention."""
    linear_num_key_heads: int = 2
    """Query and key heads of Gated DeltaNet, a divisor of linear_num_value_heads."""
    linear_num_value_heads: int = 4
    """Value heads of Gated DeltaNet."""
    linear_key_dim: int = 32
    """Width of a query or key head of Gated DeltaNet."""
    linear_value_dim: int = 32
    """Width of a value head of Gated DeltaNet."""
    kernel_size: int = 4
    """Width of the causal convolution of Gated DeltaNet, in positions."""
    feed_forward_dim: int = 334
    """Width of the hidden layer of each block's gated feed-forward network."""
    context_length: int | None = None
    """Maximum number of positions, needed to build the model; experiments default to the training window's length."""
    positions: layers.RotaryPositions = dataclasses.field(
        default_factory=lambda: layers.RotaryPositions(partial_rotary_factor=0.25)
    )
    """Rotations of queries and keys of attention."""
    attention_bias: bool = False
    """Whether the projections of attention add a bias."""
    epsilon: float = 1e-6
    """Added to the mean square by the normalizations."""
    tie_embeddings: bool = False
    """Whether the head is the transposed embedding matrix."""
    dropout: float = 0.0
    """Dropout rate of the attention weights and the output of each sublayer."""

    def __post_init__(self):
        """Check the fields."""
        super().__post_init__()
        check_fields(self, Qwen35Config)
        checks.pattern("pattern", self.pattern, "da")
        if self.linear_num_value_heads % self.linear_num_key_heads:
            expected = f"a divisor of linear_num_value_heads={self.linear_num_value_heads}"
            raise ValueError(f"linear_num_key_heads={self.linear_num_key_heads}; expected {expected}.")
        self.positions.validate_key_dim(self.key_dim)
        layers.MultiHeadSelfAttention(self.num_heads, self.key_dim, num_key_value_heads=self.num_key_value_heads)
        self._mixer(dtype=None)  # both raise for an invalid size

    def count_params(self, vocabulary_size: int) -> int:
        """Return the number of parameters, without building the model."""
        dim, key_dim, heads = self.embedding_dim, self.key_dim, self.num_heads
        queries, keys = heads * key_dim, self.num_key_value_heads * key_dim
        attention = dim * (3 * queries + 2 * keys) + 2 * key_dim
        attention += self.attention_bias * (2 * queries + 2 * keys + dim)
        linear_heads = self.linear_num_value_heads
        keys, values = self.linear_num_key_heads * self.linear_key_dim, linear_heads * self.linear_value_dim
        delta_net = dim * (2 * keys + 3 * values + 2 * linear_heads) + self.kernel_size * (2 * keys + values)
        delta_net += 2 * linear_heads + self.linear_value_dim
        mixers = sum(attention if kind == "a" else delta_net for kind in self.kinds)
        embeddings = vocabulary_size * dim * (1 if self.tie_embeddings else 2)
        return embeddings + mixers + self.num_layers * (3 * dim * self.feed_forward_dim + 2 * dim) + dim

    def _mixer(self, dtype):
        return layers.GatedDeltaNet(
            self.linear_num_value_heads,
            key_dim=self.linear_key_dim,
            value_dim=self.linear_value_dim,
            kernel_size=self.kernel_size,
            epsilon=self.epsilon,
            num_key_heads=self.linear_num_key_heads,
            use_conv_bias=False,
            output_initializer="zeros",
            dtype=dtype,
            name="gated_deltanet",
        )

    def _feed_forward(self, dtype):
        return layers.GatedFeedForward(
            self.feed_forward_dim, use_bias=False, output_initializer="zeros", dtype=dtype, name="feed_forward"
        )

    def _attention_options(self):
        biases = {"use_bias": False, "attention_output_bias": self.attention_bias}
        return {"activation": "swiglu", "key_dim": self.key_dim, "use_qk_norm": True, "use_output_gate": True, **biases}


# Language models of recurrent and attention blocks in turns, by a pattern: "rra" is Griffin's (arXiv:2402.19427).
#
#     block    x + mixer(norm(x)), then x + feed_forward(norm(x))
#
#     a    self-attention with rotary positions, over the last sliding_window positions
#     r    Griffin's recurrent block      d    Gated DeltaNet      g    gated linear attention      m    Mamba-2
#     k    Kimi Delta Attention: "kkka" is Kimi Linear's pattern
#
# The recurrence carries what is long past, and attention looks up what is near. RMS normalization; matrices that
# write to the residual stream start at zero.


@register("hybrid", tiny={"num_layers": 2, "pattern": "ra"}, learning_rate=0.01)
@dataclasses.dataclass(frozen=True)
class HybridConfig(MixerModelConfig):
    """Configure a language model of recurrent and attention blocks: 0.80 million parameters, with 65 characters.

    Raises:
        ValueError: A field is out of its range; in `build_model`, `context_length` is None.
    """

    feed_forward_activation: ClassVar[str] = "gelu"

    num_layers: int = 3
    """Number of blocks."""
    pattern: str = "rra"
    """Kinds of blocks, repeated over the layers: a is attention, r an RG-LRU, d Gated DeltaNet, g gated linear
    attention, k Kimi Delta Attention, m Mamba-2."""
    feed_forward_dim: int = 520
    """Width of the hidden layer of each feed-forward network."""
    sliding_window: int | None = None
    """Attention blocks attend to positions less than this far away; None for all."""
    context_length: int | None = None
    """Maximum number of positions, needed to build the model; experiments default to the training window's length."""

    def __post_init__(self):
        """Check the fields."""
        checks.pattern("pattern", self.pattern, "ardgkm")
        check_fields(self, HybridConfig)
        super().__post_init__()

    def mixer(self, n: int, dtype=None):
        """Return the mixer of block n, without that of attention, which is a part of its block."""
        options = {"num_heads": self.num_heads, "output_initializer": "zeros", "dtype": dtype}
        match self.pattern[n % len(self.pattern)]:
            case "r":
                return layers.GriffinRecurrentBlock(name="hawk", **options)
            case "d":
                return layers.GatedDeltaNet(name="gated_deltanet", **options)
            case "g":
                return layers.GatedLinearAttention(name="gla", **options)
            case "k":
                return layers.KimiDeltaAttention(name="kda", **options)
            case "m":
                head_dim = -(-2 * self.embedding_dim // self.num_heads)
                return layers.Mamba2(head_dim=head_dim, state_dim=64, name="mamba2", **options)

    def block(self, n: int, dtype=None) -> list:
        """Return the layers of block n: of attention, or a mixer and a feed-forward layer."""
        if self.pattern[n % len(self.pattern)] != "a":
            return super().block(n, dtype)
        attention = layers.TransformerBlock(
            num_heads=self.num_heads,
            feed_forward_dim=self.feed_forward_dim,
            causal=True,
            normalization="rms",
            activation="geglu",
            dropout=self.dropout,
            use_bias=False,
            positions=layers.RotaryPositions(),
            use_qk_norm=True,
            sliding_window=self.sliding_window,
            residual_initializer="zeros",
            dtype=dtype,
            name=f"block_{n}",
        )
        return [attention]
