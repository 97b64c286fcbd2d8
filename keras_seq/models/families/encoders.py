"""Models that read whole sequences: BERT, output heads for it and ModernBERT, and the bidirectional LSTM tagger.

An encoder is a model of `BertConfig` or `ModernBertConfig`, built or loaded. Each head shares the encoder's layers:
training one trains the other. Logits are at least float32. With a loss of Keras, padding is masked for
`token_classifier`; `masked_lm` needs sample weights that select the masked positions.
"""

import dataclasses
from typing import Literal

import keras
from keras import ops

from keras_seq import checks, layers
from keras_seq.models.config import check_fields, register
from keras_seq.models.counts import count_block_params
from keras_seq.models.families.transformer import ACTIVATIONS
from keras_seq.models.token_ids import InvalidIdsToNaN, TokenIdCheck, TokenIdModel
from keras_seq.ops.tensor_checks import at_least_float32


@keras.saving.register_keras_serializable(package="keras_seq")
class LogitsBias(keras.layers.Layer):
    """Add a bias `[V]` to logits, in float32 at least."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.autocast = False  # the logits keep their precision

    def build(self, logits_shape):
        """Create the bias for logits `[..., V]`."""
        self.bias = self.add_weight(shape=logits_shape[-1:], initializer="zeros", name="bias")

    def call(self, logits):
        """Add the bias."""
        dtype = at_least_float32(self.compute_dtype)
        return ops.cast(logits, dtype) + ops.cast(self.bias, dtype)

    def compute_output_spec(self, logits):
        """Return the shape and dtype of the output without computing it."""
        return keras.KerasTensor(logits.shape, dtype=at_least_float32(self.compute_dtype))

    def get_config(self):
        """Return the base layer's config; without this method Keras refuses a dtype policy object."""
        return super().get_config()


def masked_lm(encoder: keras.Model) -> keras.Model:
    """Build a masked language model on an encoder: dense, gelu, normalization, tied head, bias.

    Args:
        encoder: A model of `BertConfig`, or of `ModernBertConfig`, whose dense layer has no bias.

    Returns:
        A model from the encoder's inputs to logits `[B, T, V]` over the id at every position.

    Raises:
        ValueError: `encoder` is not such a model.
    """
    _check_encoder(encoder)
    embedding, x = encoder.get_layer("embedding"), encoder.output["sequence_output"]
    of_bert = {} if _is_modern(encoder) else {"activation": encoder.get_layer("block_0").activation, "use_bias": True}
    x = _transformed(encoder, x, **of_bert)
    # The embedding is called twice and not held by another layer, so that clones share the matrix too.
    logits = LogitsBias(dtype=_dtype_policy(encoder), name="logits")(embedding(x, reverse=True))
    return TokenIdModel(encoder.input, logits, name="masked_lm")


def text_classifier(encoder: keras.Model, num_classes: int, dropout: float = 0.1) -> keras.Model:
    """Build a classifier of whole sequences on an encoder's pooled output, which is that of the first position.

    ModernBERT has no pooler; the first position goes through dense, gelu and normalization, as in
    `ModernBertForSequenceClassification` of transformers.

    Args:
        encoder: A model of `BertConfig` or `ModernBertConfig`.
        num_classes: Number of classes, at least 1.
        dropout: Dropout rate of the pooled output, at least 0 and below 1.

    Returns:
        A model from the encoder's inputs to logits `[B, num_classes]`.

    Raises:
        ValueError: `encoder` is not such a model, or an argument is out of its range.
    """
    _check_encoder(encoder)
    checks.positive_integer("num_classes", num_classes)
    if _is_modern(encoder):
        x = _transformed(encoder, encoder.output["sequence_output"][:, 0])
    else:
        x = encoder.output["pooled_output"]
    return TokenIdModel(encoder.input, _logits(encoder, x, num_classes, dropout), name="text_classifier")


def token_classifier(encoder: keras.Model, num_tags: int, dropout: float = 0.1) -> keras.Model:
    """Build a classifier of every position on an encoder's sequence output.

    That of ModernBERT goes through dense, gelu and normalization, as in `ModernBertForTokenClassification`.

    Args:
        encoder: A model of `BertConfig` or `ModernBertConfig`.
        num_tags: Number of tags, at least 1.
        dropout: Dropout rate of the sequence output, at least 0 and below 1.

    Returns:
        A model from the encoder's inputs to logits `[B, T, num_tags]`.

    Raises:
        ValueError: `encoder` is not such a model, or an argument is out of its range.
    """
    _check_encoder(encoder)
    checks.positive_integer("num_tags", num_tags)
    x = encoder.output["sequence_output"]
    x = _transformed(encoder, x) if _is_modern(encoder) else x
    return TokenIdModel(encoder.input, _logits(encoder, x, num_tags, dropout), name="token_classifier")


def _check_encoder(encoder):
    output = getattr(encoder, "output", None)
    if not isinstance(output, dict) or "sequence_output" not in output:
        raise ValueError(
            f"encoder={encoder!r}; expected a model of BertConfig(...) or ModernBertConfig(...).build_model(...)."
        )


def _is_modern(encoder):
    """Return whether an encoder is ModernBERT, all of whose heads begin with `_transformed`; it has no pooler."""
    return "pooled_output" not in encoder.output


def _transformed(encoder, x, activation="gelu", use_bias=False):
    """Return the features that an output matrix is applied to: dense, activation, normalization."""
    dtype, of_embedding = _dtype_policy(encoder), encoder.get_layer("embedding_normalization")
    options = {"epsilon": of_embedding.epsilon, "center": of_embedding.center}
    options |= {"dtype": dtype, "name": "head_normalization"}
    x = layers.Dense(x.shape[-1], activation=activation, use_bias=use_bias, dtype=dtype, name="head")(x)
    return keras.layers.LayerNormalization(**options)(x)


def _logits(encoder, x, units, dropout):
    dtype = _dtype_policy(encoder)
    rate = checks.fraction("dropout", dropout)
    x = keras.layers.Dropout(rate, dtype=dtype, name="head_dropout")(x)
    name = "classifier" if _is_modern(encoder) else "head"
    return layers.Dense(units, dtype=at_least_float32(dtype.compute_dtype), name=name)(x)


def _dtype_policy(encoder):
    return encoder.get_layer("embedding_normalization").dtype_policy


# The encoder-only Transformer (BERT: Devlin et al., 2019, arXiv:1810.04805). The heads above add outputs to it.
#
#     x = dropout(norm(token + position + segment)),  then post-norm blocks
#     sequence_output [B, T, D] = output of the last block
#     pooled_output [B, D] = tanh(sequence_output[:, 0] W + b), over the [CLS] token
#
# Every position attends to every non-padding position. Id 0 is padding, which changes nothing at the other positions;
# it goes to the right where the pooled output counts, since [CLS] has to be first.


@register("bert")
@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Configure an encoder-only Transformer.

    ```python
    encoder = BertConfig().build_model(vocabulary_size=5000)
    outputs = encoder({"token_ids": token_ids, "segment_ids": segment_ids})  # [B, T] each
    outputs["sequence_output"], outputs["pooled_output"]  # [B, T, D], [B, D]
    ```

    Raises:
        ValueError: A field is out of its range.
    """

    embedding_dim: int = 128
    """D, the width of the model."""
    num_layers: int = 4
    """Number of Transformer blocks."""
    num_heads: int = 4
    """Attention heads in each block, a divisor of embedding_dim."""
    feed_forward_dim: int = 512
    """Width of the hidden layer of each block's feed-forward network."""
    context_length: int = 512
    """Maximum number of positions, padding not counted."""
    num_segments: int = 2
    """Maximum number of texts in one sequence."""
    dropout: float = 0.1
    """Dropout rate of the embeddings, the attention weights and the output of each sublayer."""
    activation: Literal["gelu_tanh", "gelu", "relu", "silu"] = "gelu"
    """Activation of the feed-forward networks; gelu_tanh is an approximation of gelu."""
    epsilon: float = 1e-12
    """Added to the variance by the normalizations."""

    def __post_init__(self):
        """Check the fields."""
        check_fields(self, BertConfig)

    def count_params(self, vocabulary_size: int) -> int:
        """Return the number of parameters, the pooler's included, without building the model."""
        dim = self.embedding_dim
        embeddings = (vocabulary_size + self.context_length + self.num_segments) * dim + 2 * dim
        pooler = dim * dim + dim
        return embeddings + self.num_layers * count_block_params(dim, self.feed_forward_dim) + pooler

    def build_model(self, vocabulary_size: int, dtype: str | keras.DTypePolicy | None = None) -> keras.Model:
        """Build the Keras model from token and segment ids to vectors.

        Arguments are those of `LanguageModelConfig.build_model`.

        Returns:
            A model from `{"token_ids", "segment_ids"}`, int32 `[B, T]` each, to `{"sequence_output" [B, T, D],
            "pooled_output" [B, D]}`.

        Raises:
            ValueError: `vocabulary_size` is not a positive integer, or embedding_dim not a multiple of num_heads.
        """
        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        segment_ids = keras.Input((None,), dtype="int32", name="segment_ids")
        normal = keras.initializers.RandomNormal(stddev=0.02)
        ids = TokenIdCheck(vocabulary_size, self.context_length, name="token_id_check")(token_ids)
        x = keras.layers.ReversibleEmbedding(
            vocabulary_size,
            self.embedding_dim,
            embeddings_initializer=normal.clone(),
            mask_zero=True,
            dtype=dtype,
            name="embedding",
        )(ids)
        x = InvalidIdsToNaN(vocabulary_size, dtype=dtype, name="invalid_ids_to_nan")(x, ids)
        x = layers.LearnedPositions(self.context_length, normal.clone(), dtype=dtype, name="positions")(x)
        x = layers.SegmentEmbedding(self.num_segments, normal.clone(), dtype=dtype, name="segment_embedding")(
            x, segment_ids
        )
        x = layers.LayerNormalization(epsilon=self.epsilon, dtype=dtype, name="embedding_normalization")(x)
        x = keras.layers.Dropout(self.dropout, dtype=dtype, name="embedding_dropout")(x)
        for n in range(self.num_layers):
            x = layers.TransformerBlock(
                num_heads=self.num_heads,
                feed_forward_dim=self.feed_forward_dim,
                norm_first=False,
                activation=ACTIVATIONS[self.activation],
                epsilon=self.epsilon,
                dropout=self.dropout,
                dtype=dtype,
                name=f"block_{n}",
            )(x)
        pooled = layers.Dense(self.embedding_dim, activation="tanh", dtype=dtype, name="pooler")(x[:, 0])
        return TokenIdModel(
            {"token_ids": token_ids, "segment_ids": segment_ids},
            {"sequence_output": x, "pooled_output": pooled},
            name="bert",
        )


# The bidirectional LSTM tagger: embedding, bidirectional LSTMs, projection to tags (Graves & Schmidhuber, 2005).


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
    crf: bool = False
    """Whether a CRF is on top of the logits: the output is its potentials, for CRFLoss and viterbi."""

    def __post_init__(self):
        """Check the fields."""
        check_fields(self, BiLSTMConfig)
        checks.one_of("merge_mode", self.merge_mode, ("concat", "sum"))

    def build_model(self, vocabulary_size: int, dtype: str | keras.DTypePolicy | None = None) -> keras.Model:
        """Build the Keras model from ids `[B, T]`, where 0 is padding, to logits `[B, T, num_tags]`.

        Train it with `SparseCategoricalCrossentropy(from_logits=True)`: Keras masks padding in the loss. With `crf` the
        output is potentials `[B, T, num_tags, num_tags]`, and the loss `keras_seq.evaluation.CRFLoss`. Logits are at
        least float32. Arguments are those of `LanguageModelConfig.build_model`.

        Raises:
            ValueError: `vocabulary_size` is not a positive integer.
        """
        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        ids = TokenIdCheck(vocabulary_size, name="token_id_check")(token_ids)
        x = keras.layers.Embedding(vocabulary_size, self.embedding_dim, mask_zero=True, dtype=dtype, name="embedding")(
            ids
        )
        x = InvalidIdsToNaN(vocabulary_size, dtype=dtype, name="invalid_ids_to_nan")(x, ids)
        for n in range(self.num_layers):
            layer = layers.LSTM(self.units, return_sequences=True, dtype=dtype, name=f"lstm_{n}")
            x = layers.Bidirectional(layer, merge_mode=self.merge_mode, dtype=dtype, name=f"bidirectional_{n}")(x)
            if self.dropout:
                x = keras.layers.Dropout(self.dropout, dtype=dtype, name=f"dropout_{n}")(x)
        logits = layers.Dense(self.num_tags, dtype=dtype, name="head")(x)
        logits_dtype = at_least_float32(logits.dtype)
        logits = keras.layers.Activation("linear", dtype=logits_dtype, name="logits")(logits)
        y = layers.CRF(dtype=dtype, name="crf")(logits) if self.crf else logits
        return TokenIdModel(token_ids, y, name="bilstm")
