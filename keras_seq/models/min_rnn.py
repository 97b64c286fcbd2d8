"""Language models of minGRU and minLSTM, whose state is computed at all positions in parallel (Feng et al., 2024).

    block    x + output(minGRU(convolution(norm(x)))), then x + feed_forward(norm(x))

RMS normalization; output projections without bias, starting at zero, so that each sublayer starts as the identity. As
published (arXiv:2410.01201), a causal convolution of width 4 precedes and a feed-forward network follows each layer.
"""

import dataclasses
from typing import ClassVar

from keras_seq import layers
from keras_seq.models.language_model_config import LanguageModelConfig
from keras_seq.models.registry import register


@dataclasses.dataclass(frozen=True)
class _MinRNNConfig(LanguageModelConfig):
    """Hold the fields of both configs; a subclass sets the layer."""

    layer_class: ClassVar[type]

    embedding_dim: int = 128
    """D, the width of the residual stream."""
    units: int = 256
    """Width of each minGRU or minLSTM layer's state."""
    num_layers: int = 4
    """Number of pairs of a recurrent layer and a feed-forward network."""
    feed_forward_dim: int = 256
    """Width of the hidden layer of each feed-forward network."""
    kernel_size: int = 4
    """Width of the causal convolution before each recurrent layer, in positions."""
    tie_embeddings: bool = False
    """Whether the output projection is the transposed embedding matrix."""
    dropout: float = 0.0
    """Dropout rate of the output of each sublayer."""

    def __post_init__(self):
        super().__post_init__()
        layers.CausalDepthwiseConv1D(self.kernel_size)  # raises for an invalid size

    def blocks(self, dtype=None) -> list:
        """Return the layers between embedding and head."""
        blocks = []
        for n in range(self.num_layers):
            mixer = [
                layers.CausalDepthwiseConv1D(self.kernel_size, dtype=dtype, name="convolution"),
                self.layer_class(self.units, return_sequences=True, dtype=dtype, name=self.model_name),
                layers.Dense(
                    self.embedding_dim, use_bias=False, kernel_initializer="zeros", dtype=dtype, name="output"
                ),
            ]
            feed_forward = layers.FeedForward(
                self.feed_forward_dim, use_bias=False, output_initializer="zeros", dtype=dtype, name="feed_forward"
            )
            blocks.append(layers.PreNormResidual(mixer, dropout=self.dropout, dtype=dtype, name=f"block_{n}"))
            blocks.append(
                layers.PreNormResidual([feed_forward], dropout=self.dropout, dtype=dtype, name=f"feed_forward_{n}")
            )
        return [*blocks, layers.RMSNormalization(dtype=dtype, name="normalization")]


@register("mingru", tiny={"units": 24, "feed_forward_dim": 32})
@dataclasses.dataclass(frozen=True)
class MinGRUConfig(_MinRNNConfig):
    """Configure a minGRU language model: 0.80 million parameters by default, with 65 characters.

    Raises:
        ValueError: A field is out of its range.
    """

    layer_class: ClassVar[type] = layers.MinGRU

    feed_forward_dim: int = 384
    """Width of the hidden layer of each feed-forward network."""


@register("minlstm", tiny={"units": 24, "feed_forward_dim": 32})
@dataclasses.dataclass(frozen=True)
class MinLSTMConfig(_MinRNNConfig):
    """Configure a minLSTM language model: 0.80 million parameters by default, with 65 characters.

    Raises:
        ValueError: A field is out of its range.
    """

    layer_class: ClassVar[type] = layers.MinLSTM
