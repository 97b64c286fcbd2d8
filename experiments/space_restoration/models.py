"""Taggers from ids `[B, T]` (0 is padding) to logits `[B, T, 4]`, of about equal size at their defaults.

    lstm      y_t from x_1 ... x_t                      the left context
    bilstm    y_t from x_1 ... x_t and x_T ... x_t      both sides, by two recurrences: `keras_seq.models.BiLSTMConfig`
    encoder   y_t from x_1 ... x_T                      both sides, by self-attention; so does bert

Padding is masked, so a window at the end of a text is scored like a shorter text.
"""

import dataclasses

import keras
from keras import ops

from keras_seq import checks, layers, models
from keras_seq.data.synthetic.spacing_task import NUM_TAGS
from keras_seq.ops.tensor_checks import at_least_float32


@dataclasses.dataclass(frozen=True)
class TaggerConfig:
    """Config of a tagger: embeddings `[B, T, D]`, `features` of them, a projection to tags."""

    embedding_dim: int = 64
    """D, the width of the character embeddings."""
    dropout: float = 0.1
    """Fraction of each layer's output, and of attention weights, that is dropped in training."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            check = checks.fraction if field.name == "dropout" else checks.positive_integer
            check(field.name, getattr(self, field.name))

    def build_model(self, vocabulary_size: int, dtype=None) -> keras.Model:
        """Build the Keras model of V ids, padding included; its logits are float32 at least."""
        ids = keras.Input((None,), dtype="int32", name="ids")
        x = keras.layers.Embedding(vocabulary_size, self.embedding_dim, mask_zero=True, dtype=dtype)(ids)
        x = self.features(x, dtype)
        logits = keras.layers.Dense(NUM_TAGS, dtype=dtype, name="head")(x)
        logits = keras.layers.Activation("linear", dtype=at_least_float32(logits.dtype), name="logits")(logits)
        return keras.Model(ids, logits)


@dataclasses.dataclass(frozen=True)
class LSTMConfig(TaggerConfig):
    """Config of the causal LSTM tagger."""

    units: int = 304
    """Width of the LSTM's output."""

    def features(self, x, dtype):
        """Apply the LSTM to `[B, T, D]`."""
        x = layers.LSTM(self.units, return_sequences=True, dtype=dtype, name="lstm")(x)
        return keras.layers.Dropout(self.dropout, dtype=dtype, name="dropout")(x)


@dataclasses.dataclass(frozen=True)
class EncoderConfig(TaggerConfig):
    """Config of a bidirectional Transformer: pre-norm blocks with rotary positions, initialized as the identity."""

    embedding_dim: int = 96
    """D, the width of the residual stream."""
    num_layers: int = 4
    """Number of blocks."""
    num_heads: int = 4
    """Attention heads in each block."""
    feed_forward_dim: int = 384
    """Width of the hidden layer of each block's feed-forward network."""

    def features(self, x, dtype):
        """Apply the blocks to `[B, T, D]`."""
        options = {"use_bias": False, "use_qk_norm": True, "residual_initializer": "zeros", "dropout": self.dropout}
        for n in range(self.num_layers):
            options |= {"positions": layers.RotaryPositions(), "dtype": dtype, "name": f"block_{n}"}
            x = layers.TransformerBlock(self.num_heads, self.feed_forward_dim, **options)(x)
        return keras.layers.LayerNormalization(center=False, dtype=dtype, name="normalization")(x)


def build_tagger(config, vocabulary_size: int, dtype=None) -> keras.Model:
    """Build the tagger of a config for V ids, padding included; for BERT all positions are in segment 0."""
    model = config.build_model(vocabulary_size, dtype)
    if not isinstance(config, models.BertConfig):
        return model
    ids = keras.Input((None,), dtype="int32", name="ids")
    inputs = {"token_ids": ids, "segment_ids": ops.zeros_like(ids)}
    return keras.Model(ids, models.token_classifier(model, NUM_TAGS, config.dropout)(inputs))
