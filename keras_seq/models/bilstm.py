"""The bidirectional tagger: embedding, LSTMs that read both ways, a matrix to tags (Graves & Schmidhuber, 2005)."""

import dataclasses

import keras

from keras_seq import checks, layers
from keras_seq.layers.precision import at_least_float32
from keras_seq.models.id_checks import KnownIds, TokenIdCheck
from keras_seq.models.token_id_model import TokenIdModel


@dataclasses.dataclass(frozen=True)
class BiLSTMConfig:
    """A tag for every id of a sequence, from all that stands before and after it.

    ```python
    model = BiLSTM(num_tags=9).build(vocabulary_size=5000)
    logits = model(ids)  # ids [B, T], 0 is padding -> [B, T, 9]
    ```
    """

    num_tags: int = 2
    """Different tags."""
    embedding_dim: int = 64
    """Width of an id's vector."""
    units: int = 284
    """Width of each direction's output."""
    num_layers: int = 1
    """Bidirectional layers on top of each other."""
    dropout: float = 0.0
    """Fraction of each layer's output that is dropped in training."""
    merge_mode: str = "concat"
    """concat: both directions side by side; sum: added."""

    def __post_init__(self):
        for name in ("num_tags", "embedding_dim", "units", "num_layers"):
            checks.positive_integer(name, getattr(self, name))
        checks.fraction("dropout", self.dropout)
        checks.one_of("merge_mode", self.merge_mode, ("concat", "sum"))

    def build_model(self, vocabulary_size: int, dtype=None) -> keras.Model:
        """The Keras model from ids `[B, T]`, of which 0 is padding, to logits `[B, T, num_tags]`.

        Train it with `SparseCategoricalCrossentropy(from_logits=True)`: Keras leaves the padding out of the loss.
        """
        checks.positive_integer("vocabulary_size", vocabulary_size)
        ids = keras.Input((None,), dtype="int32", name="ids")
        known = TokenIdCheck(vocabulary_size, name="checked_ids")(ids)
        x = keras.layers.Embedding(vocabulary_size, self.embedding_dim, mask_zero=True, dtype=dtype)(known)
        x = KnownIds(vocabulary_size, dtype=dtype, name="known_ids")(x, known)
        for n in range(self.num_layers):
            layer = layers.LSTM(self.units, return_sequences=True, dtype=dtype, name=f"lstm_{n}")
            x = layers.Bidirectional(layer, merge_mode=self.merge_mode, dtype=dtype, name=f"bidirectional_{n}")(x)
            if self.dropout:
                x = keras.layers.Dropout(self.dropout, dtype=dtype, name=f"dropout_{n}")(x)
        logits = layers.Dense(self.num_tags, dtype=dtype, name="head")(x)
        wide = at_least_float32(logits.dtype)
        logits = keras.layers.Activation("linear", dtype=wide, name="logits")(logits)
        return TokenIdModel(ids, logits, name="bilstm")
