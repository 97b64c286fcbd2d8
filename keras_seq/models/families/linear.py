"""Language models of linear recurrences: Hawk, GLA, delta rules and Mamba-2, then Mamba, then RWKV-7.

    block    x + mixer(norm(x)), then x + feed_forward(norm(x))           Mamba-2: x + mixer(norm(x)) only

    hawk             Griffin's recurrent block, an RG-LRU           De et al., 2024, arXiv:2402.19427
    gla              gated linear attention                         Yang et al., 2024, arXiv:2312.06635
    gated_deltanet   a matrix that is corrected by the delta rule   Yang et al., 2025, arXiv:2412.06464
    deltaproduct     with several delta rules at a position         Siems et al., 2025, arXiv:2502.10297
    kda              with a decay for each row of the matrix        Kimi Linear, 2025, arXiv:2510.26692
    mamba2           a matrix with one decay for each head          Dao & Gu, 2024, arXiv:2405.21060

RMS normalization and gated feed-forward layers without bias, as published; the output projections start at zero, so
that each sublayer starts as the identity.
"""

import abc
import dataclasses
from typing import ClassVar

from keras_seq import checks, layers
from keras_seq.models.config import LanguageModelConfig, check_fields, register


@dataclasses.dataclass(frozen=True)
class ResidualModelConfig(LanguageModelConfig):
    """Make the layers of models of blocks with a mixer and, mostly, a feed-forward layer."""

    feed_forward_activation: ClassVar[str] = "silu"
    epsilon = 1e-6  # added to the mean square; without annotation, or a field of this name would be a config's first

    def __post_init__(self):
        """Check the fields."""
        super().__post_init__()
        self.mixer(0)  # raises for an invalid size

    @abc.abstractmethod
    def mixer(self, n: int, dtype=None):
        """Return the mixer of block n."""

    def blocks(self, dtype=None) -> list:
        """Return the layers between embedding and head."""
        blocks = [layer for n in range(self.num_layers) for layer in self.block(n, dtype)]
        return [*blocks, layers.RMSNormalization(epsilon=self.epsilon, dtype=dtype, name="normalization")]

    def block(self, n: int, dtype=None) -> list:
        """Return the layers of block n."""
        block = [self._residual(self.mixer(n, dtype), f"block_{n}", dtype)]
        if self.has_feed_forward(n):
            block.append(self._residual(self.feed_forward(dtype), f"feed_forward_{n}", dtype))
        return block

    def has_feed_forward(self, n: int) -> bool:
        """Return whether block n has a feed-forward layer after its mixer."""
        return hasattr(self, "feed_forward_dim")

    def feed_forward(self, dtype=None):
        """Return the feed-forward layer of a block."""
        return layers.GatedFeedForward(
            self.feed_forward_dim,
            activation=self.feed_forward_activation,
            use_bias=False,
            output_initializer="zeros",
            dtype=dtype,
            name="feed_forward",
        )

    def _residual(self, layer, name, dtype):
        return layers.PreNormResidual([layer], dropout=self.dropout, epsilon=self.epsilon, dtype=dtype, name=name)


@dataclasses.dataclass(frozen=True)
class MixerModelConfig(ResidualModelConfig):
    """Hold the fields that most of these models share."""

    embedding_dim: int = 128
    """D, the width of the residual stream."""
    num_layers: int = 4
    """Number of blocks."""
    num_heads: int = 4
    """H, the heads of each block's recurrence."""
    tie_embeddings: bool = False
    """Whether the head is the transposed embedding matrix."""
    dropout: float = 0.0
    """Dropout rate of the output of each sublayer."""


@register("hawk", learning_rate=0.01)
@dataclasses.dataclass(frozen=True)
class HawkConfig(MixerModelConfig):
    """Configure a Hawk language model, Griffin without attention: 0.80 million parameters, with 65 characters.

    Raises:
        ValueError: A field is out of its range.
    """

    feed_forward_activation: ClassVar[str] = "gelu"

    feed_forward_dim: int = 356
    """Width of the hidden layer of each feed-forward network."""
    kernel_size: int = 4
    """Width of each layer's causal convolution, in positions."""

    def mixer(self, n: int, dtype=None):
        """Return Griffin's recurrent block."""
        return layers.GriffinRecurrentBlock(
            self.num_heads, kernel_size=self.kernel_size, output_initializer="zeros", dtype=dtype, name="hawk"
        )


@register("gla")
@dataclasses.dataclass(frozen=True)
class GatedLinearAttentionConfig(MixerModelConfig):
    """Configure a language model of gated linear attention: 0.80 million parameters by default, with 65 characters.

    Raises:
        ValueError: A field is out of its range.
    """

    feed_forward_dim: int = 330
    """Width of the hidden layer of each feed-forward network."""
    gate_rank: int = 16
    """Width between the two matrices of the decays."""

    def mixer(self, n: int, dtype=None):
        """Return gated linear attention."""
        return layers.GatedLinearAttention(
            self.num_heads, gate_rank=self.gate_rank, output_initializer="zeros", dtype=dtype, name="gla"
        )


@register("gated_deltanet")
@dataclasses.dataclass(frozen=True)
class GatedDeltaNetConfig(MixerModelConfig):
    """Configure a Gated DeltaNet language model: 0.80 million parameters by default, with 65 characters.

    Raises:
        ValueError: A field is out of its range.
    """

    num_heads: int = 2
    """H, the heads of each block's recurrence."""
    feed_forward_dim: int = 248
    """Width of the hidden layer of each feed-forward network."""
    kernel_size: int = 4
    """Width of each layer's causal convolution, in positions."""

    def mixer(self, n: int, dtype=None):
        """Return Gated DeltaNet's mixer."""
        return layers.GatedDeltaNet(
            self.num_heads, kernel_size=self.kernel_size, output_initializer="zeros", dtype=dtype, name="gated_deltanet"
        )


@register("deltaproduct")
@dataclasses.dataclass(frozen=True)
class GatedDeltaProductConfig(GatedDeltaNetConfig):
    """Configure a Gated DeltaProduct language model: 0.80 million parameters by default, with 65 characters.

    Raises:
        ValueError: A field is out of its range.
    """

    feed_forward_dim: int = 148
    """Width of the hidden layer of each feed-forward network."""
    num_householder: int = 2
    """Delta rules at a position, each with a key, a value and a beta of its own."""

    def mixer(self, n: int, dtype=None):
        """Return Gated DeltaProduct's mixer."""
        return layers.GatedDeltaNet(
            self.num_heads,
            kernel_size=self.kernel_size,
            num_householder=self.num_householder,
            allow_neg_eigval=True,
            output_initializer="zeros",
            dtype=dtype,
            name="deltaproduct",
        )


@register("kda", learning_rate=0.01)
@dataclasses.dataclass(frozen=True)
class KimiDeltaAttentionConfig(GatedDeltaNetConfig):
    """Configure a language model of Kimi Delta Attention: 0.80 million parameters by default, with 65 characters.

    Kimi Linear has attention in every fourth block; the `hybrid` model's pattern "kkka" is of this kind.

    Raises:
        ValueError: A field is out of its range.
    """

    def mixer(self, n: int, dtype=None):
        """Return Kimi Delta Attention."""
        return layers.KimiDeltaAttention(
            self.num_heads, kernel_size=self.kernel_size, output_initializer="zeros", dtype=dtype, name="kda"
        )


@register("mamba2", learning_rate=0.01)
@dataclasses.dataclass(frozen=True)
class Mamba2Config(MixerModelConfig):
    """Configure a Mamba-2 language model: 0.80 million parameters by default, with 65 characters.

    Raises:
        ValueError: A field is out of its range.
    """

    embedding_dim: int = 136
    """D, the width of the residual stream."""
    num_layers: int = 6
    """Number of blocks."""
    head_dim: int | None = None
    """P, the width of a head; by default 2 embedding_dim / num_heads, rounded up."""
    state_dim: int = 64
    """N, the rows of each head's state."""
    num_groups: int = 1
    """Groups of heads that share what is written to and read from the state, a divisor of num_heads."""
    kernel_size: int = 4
    """Width of each layer's causal convolution, in positions."""
    use_bias: bool = False
    """Whether the input and output matrices of the layers add a bias."""
    epsilon: float = 1e-5
    """Added to the mean square by the normalizations."""

    def mixer(self, n: int, dtype=None):
        """Return Mamba-2's mixer."""
        default = -(-2 * self.embedding_dim // self.num_heads)
        return layers.Mamba2(
            self.num_heads,
            head_dim=default if self.head_dim is None else self.head_dim,
            state_dim=self.state_dim,
            num_groups=self.num_groups,
            kernel_size=self.kernel_size,
            epsilon=self.epsilon,
            use_bias=self.use_bias,
            output_initializer="zeros",
            dtype=dtype,
            name="mamba2",
        )


# The Mamba language model: selective state-space layers (Gu & Dao, 2023, arXiv:2312.00752).
#
#     block    x + selective_state_space(norm(x))
#
# RMS normalization; output projections without bias, starting at zero, so that each block starts as the identity.


@register("mamba", learning_rate=0.01)
@dataclasses.dataclass(frozen=True)
class MambaConfig(ResidualModelConfig):
    """Configure a Mamba language model: 0.80 million parameters by default, with 65 characters.

    Raises:
        ValueError: A field is out of its range.
    """

    embedding_dim: int = 136
    """D, the width of the residual stream."""
    num_layers: int = 6
    """Number of state-space layers."""
    state_dim: int = 16
    """N, the size of each inner feature's state."""
    expand: int = 2
    """Ratio of the inner width of a state-space layer to D."""
    kernel_size: int = 4
    """Width of each layer's causal convolution, in positions."""
    dt_rank: int | None = None
    """Width between the two matrices of the time step; by default embedding_dim / 16, rounded up."""
    use_bias: bool = False
    """Whether the input and output matrices of the layers add a bias."""
    epsilon: float = 1e-6
    """Added to the mean square by the normalizations."""
    tie_embeddings: bool = False
    """Whether the head is the transposed embedding matrix."""
    dropout: float = 0.0
    """Dropout rate of each layer's output."""

    def __post_init__(self):
        """Check the fields."""
        check_fields(self, MambaConfig)
        super().__post_init__()

    def mixer(self, n: int, dtype=None):
        """Return Mamba's mixer."""
        return layers.SelectiveStateSpace(
            state_dim=self.state_dim,
            expand=self.expand,
            kernel_size=self.kernel_size,
            dt_rank=self.dt_rank,
            use_bias=self.use_bias,
            output_initializer="zeros",
            dtype=dtype,
            name="mamba",
        )


# The RWKV-7 language model (Peng et al., 2025, "RWKV-7 Goose", arXiv:2503.14456).
#
#     x = norm(embedding);  for each block:  x + time_mix(norm(x)), then x + channel_mix(norm(x))
#
# Layer normalization, at the end that of root mean squares; matrices without bias; output projections start at zero.


@register("rwkv7")
@dataclasses.dataclass(frozen=True)
class RWKV7Config(MixerModelConfig):
    """Configure an RWKV-7 language model: 0.80 million parameters by default, with 65 characters.

    Raises:
        ValueError: A field is out of its range.
    """

    feed_forward_dim: int = 424
    """Width of the hidden layer of channel mixing."""
    rank: int = 16
    """Width between the two matrices of decays, learning rates, gates (twice as wide) and value residuals."""

    def __post_init__(self):
        """Check the fields."""
        checks.positive_integer("rank", self.rank)
        super().__post_init__()

    def mixer(self, n: int, dtype=None):
        """Return the time mixing of a block."""
        return layers.RWKV7TimeMix(self.num_heads, rank=self.rank, value_residual=n > 0, dtype=dtype)

    def blocks(self, dtype=None) -> list:
        """Return the layers between embedding and head: one stack of blocks."""
        blocks = layers.RWKV7Blocks(
            self.num_layers,
            self.num_heads,
            self.feed_forward_dim,
            rank=self.rank,
            dropout=self.dropout,
            residual_initializer="zeros",
            dtype=dtype,
            name="blocks",
        )
        return [blocks, layers.RMSNormalization(epsilon=self.epsilon, dtype=dtype, name="normalization")]
