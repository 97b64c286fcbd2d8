"""The xLSTM language model (Beck et al., 2024, arXiv:2405.04517).

    m    x + mLSTM(norm(x))
    s    x + sLSTM(norm(x)), then x + feed_forward(norm(x))

A pattern of these letters is repeated over the blocks: "mmms" is xLSTM[3:1]. Layer normalization without offset, and a
feed-forward layer gated by gelu after each sLSTM, as published; the output projections start at zero.
"""

import dataclasses
from typing import ClassVar

from keras_seq import checks, layers
from keras_seq.models.linear_recurrent import MixerModelConfig
from keras_seq.models.registry import register


@register("xlstm", tiny={"pattern": "sm"})
@dataclasses.dataclass(frozen=True)
class XLSTMConfig(MixerModelConfig):
    """Configure an xLSTM language model: 0.80 million parameters by default, with 65 characters.

    Raises:
        ValueError: A field is out of its range.
    """

    feed_forward_activation: ClassVar[str] = "gelu"

    embedding_dim: int = 144
    """D, the width of the residual stream."""
    num_layers: int = 6
    """Number of blocks."""
    pattern: str = "mms"
    """Kinds of blocks, repeated over the layers: m is an mLSTM, s an sLSTM."""
    feed_forward_dim: int = 186
    """Width of the hidden layer of the feed-forward network after each sLSTM."""
    kernel_size: int = 4
    """Width of each layer's causal convolution, in positions."""

    def __post_init__(self):
        """Check the fields."""
        checks.pattern("pattern", self.pattern, "ms")
        super().__post_init__()

    def mixer(self, n: int, dtype=None):
        """Return the mLSTM or sLSTM of block n."""
        options = {"kernel_size": self.kernel_size, "dtype": dtype}
        if self.has_feed_forward(n):
            return layers.SLSTM(self.num_heads, name="slstm", **options)
        return layers.MLSTM(self.num_heads, output_initializer="zeros", name="mlstm", **options)

    def has_feed_forward(self, n: int) -> bool:
        """Return whether block n is an sLSTM, which a feed-forward layer follows."""
        return self.pattern[n % len(self.pattern)] == "s"

    def _residual(self, layer, name, dtype):
        return layers.PreNormResidual([layer], normalization="layer", dropout=self.dropout, dtype=dtype, name=name)
