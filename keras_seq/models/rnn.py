"""Recurrent language models: embedding, recurrent layers, output projection (Graves, 2013; char-rnn, 2015)."""

import dataclasses
from typing import ClassVar

import keras

from keras_seq import checks, layers
from keras_seq.models.language_model_config import LanguageModelConfig
from keras_seq.models.registry import register


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
    """Whether the output projection is the transposed embedding; outputs are projected to its width if they differ."""
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
