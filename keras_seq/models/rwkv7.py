"""The RWKV-7 language model (Peng et al., 2025, "RWKV-7 Goose", arXiv:2503.14456).

    x = norm(embedding);  for each block:  x + time_mix(norm(x)), then x + channel_mix(norm(x))

Layer normalization; matrices without bias; the output projections start at zero, as published.
"""

import dataclasses

from keras_seq import checks, layers
from keras_seq.models.linear_recurrent import MixerModelConfig
from keras_seq.models.registry import register


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
