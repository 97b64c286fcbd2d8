"""Language models of recurrent and attention blocks in turns, by a pattern: "rra" is Griffin's (arXiv:2402.19427).

    block    x + mixer(norm(x)), then x + feed_forward(norm(x))

    a    self-attention with rotary positions, over the last sliding_window positions
    r    Griffin's recurrent block      d    Gated DeltaNet      g    gated linear attention      m    Mamba-2

The recurrence carries what is long past, and attention looks up what is near. RMS normalization; matrices that write to
the residual stream start at zero.
"""

import dataclasses
from typing import ClassVar

from keras_seq import checks, layers
from keras_seq.models.linear_recurrent import MixerModelConfig
from keras_seq.models.registry import register

KINDS = "ardgm"


@register("hybrid", tiny={"num_layers": 2, "pattern": "ra"})
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
    attention, m Mamba-2."""
    feed_forward_dim: int = 520
    """Width of the hidden layer of each feed-forward network."""
    sliding_window: int | None = None
    """Attention blocks attend to positions less than this far away; None for all."""
    context_length: int | None = None
    """Maximum number of positions, needed to build the model; experiments default to the training window's length."""

    def __post_init__(self):
        """Check the fields."""
        checks.pattern("pattern", self.pattern, KINDS)
        if self.sliding_window is not None:
            checks.positive_integer("sliding_window", self.sliding_window)
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
