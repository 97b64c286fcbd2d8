"""Recurrent language models: RNN, GRU and LSTM (Graves, 2013; char-rnn, 2015), minGRU and minLSTM, xLSTM."""

import dataclasses
from typing import ClassVar

import keras

from keras_seq import checks, layers
from keras_seq.models.config import LanguageModelConfig, register
from keras_seq.models.families.linear import MixerModelConfig


@dataclasses.dataclass(frozen=True)
class _RNNConfig(LanguageModelConfig):
    """Hold the fields of the three configs; a subclass sets the layer."""

    layer_class: ClassVar[type]
    use_head_bias = True

    embedding_dim: int = 64
    """Width of the embedding."""
    units: int = 408
    """Width of each recurrent layer's output."""
    num_layers: int = 1
    """Number of recurrent layers."""
    dropout: float = 0.0
    """Dropout rate of each recurrent layer's output."""
    recurrent_dropout: float = 0.0
    """Dropout rate of h between positions, with the same mask at every position."""
    tie_embeddings: bool = False
    """Whether the head is the transposed embedding matrix; outputs are projected to its width if they differ."""
    recurrent_initializer: str = "orthogonal"
    """Keras initializer of the recurrent matrix; the 2017-style char-RNN used glorot_normal."""

    def __post_init__(self):
        super().__post_init__()
        checks.fraction("recurrent_dropout", self.recurrent_dropout)
        try:
            keras.initializers.get(self.recurrent_initializer or "")
        except ValueError:
            raise ValueError(
                f"recurrent_initializer={self.recurrent_initializer!r}; expected the name of a Keras initializer, e.g. "
                "orthogonal."
            ) from None

    def blocks(self, dtype=None) -> list:
        """Return the layers between embedding and head."""
        blocks = []
        for n in range(self.num_layers):
            layer = self.layer_class(
                self.units,
                return_sequences=True,
                recurrent_initializer=self.recurrent_initializer,
                recurrent_dropout=self.recurrent_dropout,
                dtype=dtype,
                name=f"{self.model_name}_{n}",
            )
            blocks.append(layer)
            if self.dropout:
                blocks.append(keras.layers.Dropout(self.dropout, dtype=dtype, name=f"dropout_{n}"))
        if self.tie_embeddings and self.units != self.embedding_dim:
            blocks.append(layers.Dense(self.embedding_dim, use_bias=False, dtype=dtype, name="projection"))
        return blocks


@register("rnn")
@dataclasses.dataclass(frozen=True)
class RNNConfig(_RNNConfig):
    """Configure a language model of simple recurrent layers: 0.80 million parameters by default, with 65 characters.

    Raises:
        ValueError: A field is out of its range.
    """

    layer_class: ClassVar[type] = layers.SimpleRNN

    units: int = 832
    """Width of each recurrent layer's output."""


@register("gru")
@dataclasses.dataclass(frozen=True)
class GRUConfig(_RNNConfig):
    """Configure a GRU language model: 0.80 million parameters by default, with 65 characters.

    Raises:
        ValueError: A field is out of its range.
    """

    layer_class: ClassVar[type] = layers.GRU

    units: int = 476
    """Width of each recurrent layer's output."""


@register("lstm")
@dataclasses.dataclass(frozen=True)
class LSTMConfig(_RNNConfig):
    """Configure an LSTM language model: 0.80 million parameters by default, with 65 characters.

    Raises:
        ValueError: A field is out of its range.
    """

    layer_class: ClassVar[type] = layers.LSTM


# Language models of minGRU and minLSTM, whose state is computed at all positions in parallel (Feng et al., 2024).
#
#     block    x + output(minGRU(convolution(norm(x)))), then x + feed_forward(norm(x))
#
# RMS normalization; output projections without bias, starting at zero, so that each sublayer starts as the identity.
# As published (arXiv:2410.01201), a causal convolution of width 4 precedes and a feed-forward network follows each
# layer.


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
    """Whether the head is the transposed embedding matrix."""
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


@register("mingru", tiny={"units": 24, "feed_forward_dim": 32}, learning_rate=0.01)
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


# The xLSTM language model (Beck et al., 2024, arXiv:2405.04517).
#
#     m    x + mLSTM(norm(x))
#     s    x + sLSTM(norm(x)), then x + feed_forward(norm(x))
#
# A pattern of these letters is repeated over the blocks: "mmms" is xLSTM[3:1]. Layer normalization without offset,
# at the end that of root mean squares, a feed-forward layer gated by gelu after each sLSTM; output projections start at
# zero.


@register("xlstm", tiny={"pattern": "sm"}, learning_rate=0.01)
@dataclasses.dataclass(frozen=True)
class XLSTMConfig(MixerModelConfig):
    """Configure an xLSTM language model: 0.81 million parameters by default, with 65 characters.

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
