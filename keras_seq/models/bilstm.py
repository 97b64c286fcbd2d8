"""The bidirectional LSTM tagger: embedding, bidirectional LSTMs, projection to tags (Graves & Schmidhuber, 2005)."""

import dataclasses

import keras

from keras_seq import checks, layers
from keras_seq.models.id_checks import InvalidIdsToNaN, TokenIdCheck
from keras_seq.models.registry import register
from keras_seq.models.token_id_model import TokenIdModel
from keras_seq.ops.tensor_checks import at_least_float32


@register("bilstm")
@dataclasses.dataclass(frozen=True)
class BiLSTMConfig:
    """Configure a tagger that predicts one tag for each id from all ids before and after it.

    ```python
    model = BiLSTMConfig(num_tags=9).build_model(vocabulary_size=5000)
    logits = model(ids)  # ids [B, T], 0 is padding -> [B, T, 9]
    ```

    Raises:
        ValueError: A field is out of its range.
    """

    num_tags: int = 2
    """Number of different tags."""
    embedding_dim: int = 64
    """Width of the embedding."""
    units: int = 284
    """Width of each direction's output."""
    num_layers: int = 1
    """Number of bidirectional layers."""
    dropout: float = 0.0
    """Dropout rate of each layer's output."""
    merge_mode: str = "concat"
    """How the directions are combined: concat or sum."""

    def __post_init__(self):
        """Check the fields."""
        for name in ("num_tags", "embedding_dim", "units", "num_layers"):
            checks.positive_integer(name, getattr(self, name))
        checks.fraction("dropout", self.dropout)
        checks.one_of("merge_mode", self.merge_mode, ("concat", "sum"))

    def build_model(self, vocabulary_size: int, dtype: str | keras.DTypePolicy | None = None) -> keras.Model:
        """Build the Keras model from ids `[B, T]`, where 0 is padding, to logits `[B, T, num_tags]`.

        Train it with `SparseCategoricalCrossentropy(from_logits=True)`: Keras masks padding in the loss.

        Args:
            vocabulary_size: V, at least 1.
            dtype: A dtype policy or its name, e.g. `"mixed_bfloat16"`; None for Keras's default.

        Returns:
            The model; its logits are at least float32.

        Raises:
            ValueError: `vocabulary_size` is not a positive integer.
        """
        checks.positive_integer("vocabulary_size", vocabulary_size)
        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        ids = TokenIdCheck(vocabulary_size, name="token_id_check")(token_ids)
        x = keras.layers.Embedding(vocabulary_size, self.embedding_dim, mask_zero=True, dtype=dtype)(ids)
        x = InvalidIdsToNaN(vocabulary_size, dtype=dtype, name="invalid_ids_to_nan")(x, ids)
        for n in range(self.num_layers):
            layer = layers.LSTM(self.units, return_sequences=True, dtype=dtype, name=f"lstm_{n}")
            x = layers.Bidirectional(layer, merge_mode=self.merge_mode, dtype=dtype, name=f"bidirectional_{n}")(x)
            if self.dropout:
                x = keras.layers.Dropout(self.dropout, dtype=dtype, name=f"dropout_{n}")(x)
        logits = layers.Dense(self.num_tags, dtype=dtype, name="head")(x)
        logits_dtype = at_least_float32(logits.dtype)
        logits = keras.layers.Activation("linear", dtype=logits_dtype, name="logits")(logits)
        return TokenIdModel(token_ids, logits, name="bilstm")
