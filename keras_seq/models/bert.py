"""The encoder-only Transformer (BERT: Devlin et al., 2019). `heads.py` makes models of it.

    x = dropout(norm(token + position + segment)),  then blocks with the normalisation behind each part
    sequence [B, T, D] = the last block's output;   pooled [B, D] = tanh(sequence[:, 0] W + b), over the [CLS]

Every position sees every real one; id 0 is padding, and what stands there changes nothing elsewhere.
"""

import dataclasses

import keras

from keras_seq import checks, layers
from keras_seq.models.heads import EPSILON
from keras_seq.models.id_checks import KnownIds, TokenIdCheck
from keras_seq.models.parameter_counts import count_block_params
from keras_seq.models.token_id_model import TokenIdModel


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """An encoder-only Transformer.

    ```python
    encoder = Encoder().build(vocabulary_size=5000)
    outputs = encoder({"ids": ids, "segments": segments})  # [B, T] each; "sequence" [B, T, D], "pooled" [B, D]
    ```
    """

    embedding_dim: int = 128
    """D, the width of the model."""
    num_layers: int = 4
    """Blocks on top of each other."""
    num_heads: int = 4
    """Attention heads in each block."""
    feed_forward_dim: int = 512
    """Width of the hidden layer of each block's feed-forward part."""
    context_length: int = 512
    """The most positions it can read."""
    num_segments: int = 2
    """How many texts can stand in one sequence."""
    dropout: float = 0.1
    """Fraction of the embeddings, of the attention weights, and of what each part adds, dropped in training."""

    def __post_init__(self):
        for name in ("embedding_dim", "num_layers", "num_heads", "feed_forward_dim", "context_length", "num_segments"):
            checks.positive_integer(name, getattr(self, name))
        checks.fraction("dropout", self.dropout)

    def count_params(self, vocabulary_size: int) -> int:
        """The number of parameters with the pooled output, by a formula: nothing is allocated."""
        width = self.embedding_dim
        embeddings = (vocabulary_size + self.context_length + self.num_segments) * width + 2 * width
        pooler = width * width + width
        return embeddings + self.num_layers * count_block_params(width, self.feed_forward_dim) + pooler

    def build_model(self, vocabulary_size: int, dtype=None) -> keras.Model:
        """The Keras model from `{"ids", "segments"}` to `{"sequence", "pooled"}`, in the precision `dtype`."""
        checks.positive_integer("vocabulary_size", vocabulary_size)
        ids = keras.Input((None,), dtype="int32", name="ids")
        segments = keras.Input((None,), dtype="int32", name="segments")
        normal = keras.initializers.RandomNormal(stddev=0.02)
        known = TokenIdCheck(vocabulary_size, self.context_length, name="checked_ids")(ids)
        x = keras.layers.ReversibleEmbedding(
            vocabulary_size,
            self.embedding_dim,
            embeddings_initializer=normal.clone(),
            mask_zero=True,
            dtype=dtype,
            name="embedding",
        )(known)
        x = KnownIds(vocabulary_size, dtype=dtype, name="known_ids")(x, known)
        x = layers.LearnedPositions(self.context_length, normal.clone(), dtype=dtype, name="positions")(x)
        x = layers.SegmentEmbedding(self.num_segments, normal.clone(), dtype=dtype, name="segment_embedding")(
            x, segments
        )
        x = layers.LayerNormalization(epsilon=EPSILON, dtype=dtype, name="embedding_normalization")(x)
        x = keras.layers.Dropout(self.dropout, dtype=dtype, name="embedding_dropout")(x)
        for n in range(self.num_layers):
            x = layers.TransformerBlock(
                num_heads=self.num_heads,
                feed_forward_dim=self.feed_forward_dim,
                norm_first=False,
                dropout=self.dropout,
                dtype=dtype,
                name=f"block_{n}",
            )(x)
        pooled = layers.Dense(self.embedding_dim, activation="tanh", dtype=dtype, name="pooler")(x[:, 0])
        return TokenIdModel({"ids": ids, "segments": segments}, {"sequence": x, "pooled": pooled}, name="encoder")
