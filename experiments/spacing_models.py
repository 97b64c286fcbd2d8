"""Taggers from ids `[B, T]` (0 is padding) to logits `[B, T, 4]`, of about one size at their defaults.

    lstm      y_t from x_1 ... x_t                      what stands before
    bilstm    y_t from x_1 ... x_t and x_T ... x_t      both sides, one after the other
    encoder   y_t from x_1 ... x_T                      both sides, all at once; so does bert

Padding is masked, so that a window at the end of a text is a shorter text.
"""

import dataclasses

import keras
from keras import ops

from keras_seq import checks, layers, models
from keras_seq.data.synthetic.spacing_task import NUM_TAGS
from keras_seq.layers.precision import at_least_float32


@dataclasses.dataclass(frozen=True)
class LSTM:
    """Reads forwards only."""

    embedding_dim: int = 64
    """Width of a character's vector."""
    units: int = 304
    """Width of the layer's output."""
    dropout: float = 0.1
    """Fraction of that output that is dropped in training."""

    def __post_init__(self):
        for name in ("embedding_dim", "units"):
            checks.positive_integer(name, getattr(self, name))
        checks.fraction("dropout", self.dropout)

    def build_model(self, vocabulary_size: int, dtype=None) -> keras.Model:
        """The Keras model."""
        ids = keras.Input((None,), dtype="int32", name="ids")
        x = keras.layers.Embedding(vocabulary_size, self.embedding_dim, mask_zero=True, dtype=dtype)(ids)
        x = layers.LSTM(self.units, return_sequences=True, dtype=dtype, name="lstm")(x)
        x = keras.layers.Dropout(self.dropout, dtype=dtype, name="dropout")(x)
        return keras.Model(ids, tags(x, dtype), name="lstm")


@dataclasses.dataclass(frozen=True)
class BiLSTM(models.BiLSTMConfig):
    """Reads both ways: `keras_seq.models.BiLSTM`."""

    num_tags: int = NUM_TAGS
    """One for every combination of space and capital."""
    units: int = 204
    """Width of each direction's output."""
    dropout: float = 0.1
    """Fraction of each layer's output that is dropped in training."""

    def __post_init__(self):
        super().__post_init__()
        if self.num_tags != NUM_TAGS:
            raise ValueError(f"num_tags={self.num_tags}; expected the {NUM_TAGS} of spaces and capitals.")


@dataclasses.dataclass(frozen=True)
class Encoder:
    """Sees every position from every position: pre-norm blocks with rotary positions that begin as the identity."""

    embedding_dim: int = 96
    """D, the width of the residual stream."""
    num_layers: int = 4
    """Blocks on top of each other."""
    num_heads: int = 4
    """Attention heads in each block."""
    feed_forward_dim: int = 384
    """Width of the hidden layer of each block's feed-forward part."""
    dropout: float = 0.1
    """Fraction of the attention weights, and of what each part adds to the stream, dropped in training."""

    def __post_init__(self):
        for name in ("embedding_dim", "num_layers", "num_heads", "feed_forward_dim"):
            checks.positive_integer(name, getattr(self, name))
        checks.fraction("dropout", self.dropout)

    def build_model(self, vocabulary_size: int, dtype=None) -> keras.Model:
        """The Keras model."""
        ids = keras.Input((None,), dtype="int32", name="ids")
        x = keras.layers.Embedding(vocabulary_size, self.embedding_dim, mask_zero=True, dtype=dtype)(ids)
        for n in range(self.num_layers):
            x = layers.TransformerBlock(
                num_heads=self.num_heads,
                feed_forward_dim=self.feed_forward_dim,
                dropout=self.dropout,
                use_bias=False,
                positions=layers.RotaryPositions(),
                use_qk_norm=True,
                residual_initializer="zeros",
                dtype=dtype,
                name=f"block_{n}",
            )(x)
        x = keras.layers.LayerNormalization(center=False, dtype=dtype, name="normalization")(x)
        return keras.Model(ids, tags(x, dtype), name="encoder")


@dataclasses.dataclass(frozen=True)
class Bert(models.BertConfig):
    """As published in 2019, post-norm with learned positions: `keras_seq.models.Encoder` and its `tagger`.

    It wants more training than a few minutes: in 0.8 million characters of pydoc it came from 0.54 to 0.46 nats.
    """

    embedding_dim: int = 96
    """D, the width of the model."""
    feed_forward_dim: int = 368
    """Width of the hidden layer of each block's feed-forward part."""
    context: int = 128
    """The most positions it can read."""
    num_segments: int = 1
    """How many texts can stand in one sequence."""

    def build_model(self, vocabulary_size: int, dtype=None) -> keras.Model:
        """The Keras model, all in one segment."""
        both = models.token_classifier(super().build_model(vocabulary_size, dtype), NUM_TAGS, self.dropout)
        ids = keras.Input((None,), dtype="int32", name="ids")
        return keras.Model(ids, both({"ids": ids, "segments": ops.zeros_like(ids)}), name="bert")


def tags(x, dtype):
    """`[B, T, D]` -> logits `[B, T, 4]`, float32 at least."""
    logits = keras.layers.Dense(NUM_TAGS, dtype=dtype, name="head")(x)
    return keras.layers.Activation("linear", dtype=at_least_float32(logits.dtype), name="logits")(logits)
