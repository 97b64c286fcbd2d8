"""Taggers from ids `[B, T]` (0 is padding) to logits `[B, T, 4]`, of about equal size at their defaults.

    lstm      y_t from x_1 ... x_t                      the left context
    bilstm    y_t from x_1 ... x_t and x_T ... x_t      both sides, by two recurrences
    encoder   y_t from x_1 ... x_T                      both sides, by self-attention; so does bert

Padding is masked, so a window at the end of a text is scored like a shorter text.
"""

import dataclasses

import keras
from keras import ops

from keras_seq import checks, layers, models
from keras_seq.data.synthetic.spacing_task import NUM_TAGS
from keras_seq.layers.precision import at_least_float32


@dataclasses.dataclass(frozen=True)
class LSTMConfig:
    """Config of the causal LSTM tagger."""

    embedding_dim: int = 64
    """Width of the character embeddings."""
    units: int = 304
    """Width of the LSTM's output."""
    dropout: float = 0.1
    """Fraction of the LSTM's output that is dropped in training."""

    def __post_init__(self):
        for name in ("embedding_dim", "units"):
            checks.positive_integer(name, getattr(self, name))
        checks.fraction("dropout", self.dropout)

    def build_model(self, vocabulary_size: int, dtype=None) -> keras.Model:
        """Build the Keras model.

        Args:
            vocabulary_size: V, with padding.
            dtype: Dtype or dtype policy of the layers.
        """
        ids = keras.Input((None,), dtype="int32", name="ids")
        x = keras.layers.Embedding(vocabulary_size, self.embedding_dim, mask_zero=True, dtype=dtype)(ids)
        x = layers.LSTM(self.units, return_sequences=True, dtype=dtype, name="lstm")(x)
        x = keras.layers.Dropout(self.dropout, dtype=dtype, name="dropout")(x)
        return keras.Model(ids, tag_logits(x, dtype), name="lstm")


@dataclasses.dataclass(frozen=True)
class BiLSTMConfig(models.BiLSTMConfig):
    """Config of the bidirectional LSTM tagger, `keras_seq.models.BiLSTMConfig` with 4 tags."""

    num_tags: int = NUM_TAGS
    """Number of tags: one for every combination of space and capital."""
    units: int = 204
    """Width of each direction's output."""
    dropout: float = 0.1
    """Fraction of each layer's output that is dropped in training."""

    def __post_init__(self):
        super().__post_init__()
        if self.num_tags != NUM_TAGS:
            raise ValueError(
                f"num_tags={self.num_tags}; expected num_tags={NUM_TAGS}: every combination of space and capital."
            )


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """Config of a bidirectional Transformer: pre-norm blocks with rotary positions, initialized as the identity."""

    embedding_dim: int = 96
    """D, the width of the residual stream."""
    num_layers: int = 4
    """Number of blocks."""
    num_heads: int = 4
    """Attention heads in each block."""
    feed_forward_dim: int = 384
    """Width of the hidden layer of each block's feed-forward network."""
    dropout: float = 0.1
    """Fraction of the attention weights and of each sublayer's output that is dropped in training."""

    def __post_init__(self):
        for name in ("embedding_dim", "num_layers", "num_heads", "feed_forward_dim"):
            checks.positive_integer(name, getattr(self, name))
        checks.fraction("dropout", self.dropout)

    def build_model(self, vocabulary_size: int, dtype=None) -> keras.Model:
        """Build the Keras model.

        Args:
            vocabulary_size: V, with padding.
            dtype: Dtype or dtype policy of the layers.
        """
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
        return keras.Model(ids, tag_logits(x, dtype), name="encoder")


@dataclasses.dataclass(frozen=True)
class BertConfig(models.BertConfig):
    """Config of BERT (Devlin et al., 2019), post-norm with learned positions, with a token classifier.

    It needs more training than a few minutes: in 0.8 million characters of pydoc its loss fell from 0.54 to 0.46 nats.
    """

    embedding_dim: int = 96
    """D, the width of the model."""
    feed_forward_dim: int = 368
    """Width of the hidden layer of each block's feed-forward network."""
    context_length: int = 128
    """Maximum number of positions."""
    num_segments: int = 1
    """Number of segment ids."""

    def build_model(self, vocabulary_size: int, dtype=None) -> keras.Model:
        """Build the Keras model, with all positions in segment 0.

        Args:
            vocabulary_size: V, with padding.
            dtype: Dtype or dtype policy of the layers.
        """
        classifier = models.token_classifier(super().build_model(vocabulary_size, dtype), NUM_TAGS, self.dropout)
        ids = keras.Input((None,), dtype="int32", name="ids")
        return keras.Model(ids, classifier({"token_ids": ids, "segment_ids": ops.zeros_like(ids)}), name="bert")


def tag_logits(x, dtype):
    """Project features `[B, T, D]` to logits `[B, T, 4]`, in float32 at least.

    Args:
        x: Features `[B, T, D]`.
        dtype: Dtype or dtype policy of the projection.
    """
    logits = keras.layers.Dense(NUM_TAGS, dtype=dtype, name="head")(x)
    return keras.layers.Activation("linear", dtype=at_least_float32(logits.dtype), name="logits")(logits)
