"""The recurrent character model: embedding, LSTM layers, output matrix (Graves, 2013; Karpathy's char-rnn, 2015)."""

import dataclasses

import keras

from keras_seq import layers
from keras_seq.layers import arguments
from keras_seq.models.language_model import LanguageModel


@dataclasses.dataclass(frozen=True)
class LSTM:
    """An LSTM language model. 0.80 million parameters at the defaults and 65 characters."""

    embedding_dim: int = 64
    """Width of a character's vector."""
    units: int = 408
    """Width of each LSTM layer's output and memory."""
    num_layers: int = 1
    """LSTM layers on top of each other."""
    dropout: float = 0.0
    """Fraction of each LSTM layer's output that is dropped in training."""
    tie_embeddings: bool = False
    """Whether the embedding matrix, transposed, is the output matrix too; a projection joins the widths if need be."""
    recurrent_initializer: str = "orthogonal"
    """Start of the recurrent matrix; the 2017-style char-RNN used glorot_normal."""

    def __post_init__(self):
        for name in ("embedding_dim", "units", "num_layers"):
            arguments.positive_integer(name, getattr(self, name))
        arguments.fraction("dropout", self.dropout)
        try:
            keras.initializers.get(self.recurrent_initializer)
        except ValueError:
            given = f"recurrent_initializer={self.recurrent_initializer!r}"
            raise ValueError(f"{given}; expected the name of a Keras initializer, e.g. orthogonal.") from None

    def build(self, vocabulary_size: int, dtype=None) -> LanguageModel:
        """The Keras model over `vocabulary_size` ids, in the precision `dtype` (a dtype policy or its name)."""
        blocks = []
        for n in range(self.num_layers):
            blocks.append(
                layers.LSTM(self.units, recurrent_initializer=self.recurrent_initializer, dtype=dtype, name=f"lstm_{n}")
            )
            if self.dropout:
                blocks.append(keras.layers.Dropout(self.dropout, dtype=dtype, name=f"dropout_{n}"))
        if self.tie_embeddings and self.units != self.embedding_dim:
            blocks.append(keras.layers.Dense(self.embedding_dim, use_bias=False, dtype=dtype, name="projection"))
        embedding = keras.layers.ReversibleEmbedding if self.tie_embeddings else keras.layers.Embedding
        model = LanguageModel(
            embedding(vocabulary_size, self.embedding_dim, dtype=dtype, name="embedding"),
            blocks,
            None if self.tie_embeddings else keras.layers.Dense(vocabulary_size, dtype=dtype, name="head"),
            dtype=dtype,
            name="lstm",
        )
        model.build((None, None))
        return model
