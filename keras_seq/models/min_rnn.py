"""Character models with a recurrent state that are computed for all positions at once: minGRU, minLSTM, Mamba.

    minGRU, minLSTM      x + output(minGRU(convolution(norm(x)))), then x + feed_forward(norm(x)), a few times
                         (Feng et al., 2024, who put a convolution of 4 before and a feed-forward layer behind)
    Mamba                x + selective state space(norm(x)), a few times (Gu & Dao, 2023)

As in our Transformer: RMS normalisation, and output matrices without bias that start at zero, so that each part starts
as the identity.
"""

import dataclasses
from typing import ClassVar

from keras_seq import checks, layers
from keras_seq.models.assembly import build_language_model
from keras_seq.models.language_model import LanguageModel


@dataclasses.dataclass(frozen=True)
class _MinRNNConfig:
    """What the two have in common: the layer is another."""

    layer: ClassVar[type]
    name: ClassVar[str]

    embedding_dim: int = 128
    """D, the width of the residual stream."""
    units: int = 256
    """Width of each minimal layer's state."""
    num_layers: int = 4
    """Pairs of a minimal and a feed-forward layer."""
    feed_forward_dim: int = 256
    """Width of the hidden layer of each feed-forward part."""
    kernel_size: int = 4
    """Positions that the causal convolution before each minimal layer sees."""
    tie_embeddings: bool = False
    """Whether the embedding matrix, transposed, is the output matrix too."""
    dropout: float = 0.0
    """Fraction of what each part adds to the stream that is dropped in training."""

    def __post_init__(self):
        for name in ("embedding_dim", "units", "num_layers", "feed_forward_dim"):
            checks.positive_integer(name, getattr(self, name))
        checks.fraction("dropout", self.dropout)
        checks.boolean("tie_embeddings", self.tie_embeddings)
        layers.CausalDepthwiseConv1D(self.kernel_size)  # knows which sizes it takes

    def build_model(self, vocabulary_size: int, dtype=None) -> LanguageModel:
        """The Keras model over `vocabulary_size` ids, in the precision `dtype` (a dtype policy or its name)."""
        blocks = []
        for n in range(self.num_layers):
            mixer = [
                layers.CausalDepthwiseConv1D(self.kernel_size, dtype=dtype, name="convolution"),
                self.layer(self.units, return_sequences=True, dtype=dtype, name=self.name),
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
        blocks.append(layers.RMSNormalization(dtype=dtype, name="normalization"))
        return build_language_model(
            self.name,
            vocabulary_size,
            self.embedding_dim,
            blocks,
            tie_embeddings=self.tie_embeddings,
            use_bias=False,
            dtype=dtype,
        )


@dataclasses.dataclass(frozen=True)
class MinGRUConfig(_MinRNNConfig):
    """A minGRU language model. 0.80 million parameters at the defaults and 65 characters."""

    layer: ClassVar[type] = layers.MinGRU
    name: ClassVar[str] = "mingru"

    feed_forward_dim: int = 384
    """Width of the hidden layer of each feed-forward part."""


@dataclasses.dataclass(frozen=True)
class MinLSTMConfig(_MinRNNConfig):
    """A minLSTM language model. 0.80 million parameters at the defaults and 65 characters."""

    layer: ClassVar[type] = layers.MinLSTM
    name: ClassVar[str] = "minlstm"


@dataclasses.dataclass(frozen=True)
class MambaConfig:
    """A Mamba language model. 0.80 million parameters at the defaults and 65 characters."""

    embedding_dim: int = 136
    """D, the width of the residual stream."""
    num_layers: int = 6
    """State-space layers on top of each other."""
    state_dim: int = 16
    """N, the numbers that each feature remembers."""
    expand: int = 2
    """Features inside a state-space layer for each outside."""
    kernel_size: int = 4
    """Positions that the causal convolution of each layer sees."""
    tie_embeddings: bool = False
    """Whether the embedding matrix, transposed, is the output matrix too."""
    dropout: float = 0.0
    """Fraction of what each layer adds to the stream that is dropped in training."""

    def __post_init__(self):
        checks.positive_integer("embedding_dim", self.embedding_dim)
        checks.positive_integer("num_layers", self.num_layers)
        checks.fraction("dropout", self.dropout)
        checks.boolean("tie_embeddings", self.tie_embeddings)
        self._layer(dtype=None)  # knows which sizes it takes

    def _layer(self, dtype):
        return layers.SelectiveStateSpace(
            state_dim=self.state_dim,
            expand=self.expand,
            kernel_size=self.kernel_size,
            output_initializer="zeros",
            dtype=dtype,
            name="mamba",
        )

    def build_model(self, vocabulary_size: int, dtype=None) -> LanguageModel:
        """The Keras model over `vocabulary_size` ids, in the precision `dtype` (a dtype policy or its name)."""
        blocks = [
            layers.PreNormResidual([self._layer(dtype)], dropout=self.dropout, dtype=dtype, name=f"block_{n}")
            for n in range(self.num_layers)
        ]
        blocks.append(layers.RMSNormalization(dtype=dtype, name="normalization"))
        return build_language_model(
            "mamba",
            vocabulary_size,
            self.embedding_dim,
            blocks,
            tie_embeddings=self.tie_embeddings,
            use_bias=False,
            dtype=dtype,
        )
