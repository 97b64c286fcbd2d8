"""The encoder-only Transformer (BERT: Devlin et al., 2019, arXiv:1810.04805). `heads.py` adds outputs to it.

    x = dropout(norm(token + position + segment)),  then post-norm blocks
    sequence_output [B, T, D] = output of the last block
    pooled_output [B, D] = tanh(sequence_output[:, 0] W + b), over the [CLS] token

Every position attends to every non-padding position. Id 0 is padding, which changes nothing at the other positions; it
goes to the right where the pooled output counts, since [CLS] has to be first.
"""

import dataclasses
from typing import Literal

import keras

from keras_seq import checks, layers
from keras_seq.models.gpt2 import ACTIVATIONS
from keras_seq.models.id_checks import InvalidIdsToNaN, TokenIdCheck
from keras_seq.models.parameter_counts import count_block_params
from keras_seq.models.registry import register
from keras_seq.models.token_id_model import TokenIdModel


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
        for name in ("embedding_dim", "num_layers", "num_heads", "feed_forward_dim", "context_length", "num_segments"):
            checks.positive_integer(name, getattr(self, name))
        checks.fraction("dropout", self.dropout)
        checks.one_of("activation", self.activation, ACTIVATIONS)
        checks.positive_number("epsilon", self.epsilon)

    def count_params(self, vocabulary_size: int) -> int:
        """Return the number of parameters, the pooler's included, without building the model."""
        dim = self.embedding_dim
        embeddings = (vocabulary_size + self.context_length + self.num_segments) * dim + 2 * dim
        pooler = dim * dim + dim
        return embeddings + self.num_layers * count_block_params(dim, self.feed_forward_dim) + pooler

    def build_model(self, vocabulary_size: int, dtype: str | keras.DTypePolicy | None = None) -> keras.Model:
        """Build the Keras model from token and segment ids to vectors.

        Args:
            vocabulary_size: V, at least 1.
            dtype: A dtype policy or its name, e.g. `"mixed_bfloat16"`; None for Keras's default.

        Returns:
            A model from `{"token_ids", "segment_ids"}`, int32 `[B, T]` each, to `{"sequence_output" [B, T, D],
            "pooled_output" [B, D]}`.

        Raises:
            ValueError: `vocabulary_size` is not a positive integer, or embedding_dim not a multiple of num_heads.
        """
        checks.positive_integer("vocabulary_size", vocabulary_size)
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
