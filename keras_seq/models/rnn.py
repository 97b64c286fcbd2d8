"""The recurrent models: embedding, recurrent layers, output matrix (Graves, 2013; Karpathy's char-rnn, 2015)."""

import dataclasses
from typing import ClassVar

import keras

from keras_seq import checks, layers
from keras_seq.models.assembly import build_language_model
from keras_seq.models.language_model import LanguageModel


@dataclasses.dataclass(frozen=True)
class _RNNConfig:
    """What the three have in common: the layer is another."""

    layer: ClassVar[type]
    name: ClassVar[str]

    embedding_dim: int = 64
    """Width of a character's vector."""
    units: int = 408
    """Width of each recurrent layer's output."""
    num_layers: int = 1
    """Recurrent layers on top of each other."""
    dropout: float = 0.0
    """Fraction of each recurrent layer's output that is dropped in training."""
    recurrent_dropout: float = 0.0
    """Fraction of h that is dropped on its way to the next position in training, the same at every position."""
    tie_embeddings: bool = False
    """Whether the embedding matrix, transposed, is the output matrix too; a projection joins the widths if need be."""
    recurrent_initializer: str = "orthogonal"
    """Start of the recurrent matrix; the 2017-style char-RNN used glorot_normal."""

    def __post_init__(self):
        for name in ("embedding_dim", "units", "num_layers"):
            checks.positive_integer(name, getattr(self, name))
        for name in ("dropout", "recurrent_dropout"):
            checks.fraction(name, getattr(self, name))
        checks.boolean("tie_embeddings", self.tie_embeddings)
        try:
            keras.initializers.get(self.recurrent_initializer or "")
        except ValueError:
            given = f"recurrent_initializer={self.recurrent_initializer!r}"
            raise ValueError(f"{given}; expected the name of a Keras initializer, e.g. orthogonal.") from None

    def build_model(self, vocabulary_size: int, dtype=None) -> LanguageModel:
        """The Keras model over `vocabulary_size` ids, in the precision `dtype` (a dtype policy or its name)."""
        blocks = []
        for n in range(self.num_layers):
            layer = self.layer(
                self.units,
                return_sequences=True,
                recurrent_initializer=self.recurrent_initializer,
                recurrent_dropout=self.recurrent_dropout,
                dtype=dtype,
                name=f"{self.name}_{n}",
            )
            blocks.append(layer)
            if self.dropout:
                blocks.append(keras.layers.Dropout(self.dropout, dtype=dtype, name=f"dropout_{n}"))
        if self.tie_embeddings and self.units != self.embedding_dim:
            blocks.append(layers.Dense(self.embedding_dim, use_bias=False, dtype=dtype, name="projection"))
        return build_language_model(
            self.name, vocabulary_size, self.embedding_dim, blocks, tie_embeddings=self.tie_embeddings, dtype=dtype
        )


@dataclasses.dataclass(frozen=True)
class RNNConfig(_RNNConfig):
    """A language model of simple recurrent layers. 0.80 million parameters at the defaults and 65 characters."""

    layer: ClassVar[type] = layers.SimpleRNN
    name: ClassVar[str] = "rnn"

    units: int = 832
    """Width of each recurrent layer's output."""


@dataclasses.dataclass(frozen=True)
class GRUConfig(_RNNConfig):
    """A language model of gated recurrent units. 0.80 million parameters at the defaults and 65 characters."""

    layer: ClassVar[type] = layers.GRU
    name: ClassVar[str] = "gru"

    units: int = 476
    """Width of each recurrent layer's output."""


@dataclasses.dataclass(frozen=True)
class LSTMConfig(_RNNConfig):
    """An LSTM language model. 0.80 million parameters at the defaults and 65 characters."""

    layer: ClassVar[type] = layers.LSTM
    name: ClassVar[str] = "lstm"
