"""ModernBERT (Warner et al., 2024, arXiv:2412.13663): an encoder for long texts, by what was learned since BERT.

    x = dropout(norm(token)),  then pre-norm blocks  x + attention(norm(x)),  x + feed_forward(norm(x)),  then norm
    block n attends to all positions if n is a multiple of 3, otherwise to those less than sliding_window away
    sequence_output [B, T, D] = output of the last norm

Rotary positions, of one base in the blocks that attend to all positions and of another in the others; GeGLU; hardly a
bias. The first block has no norm before its attention: that of the embedding precedes it. The heads are those of
`encoders.py`.
"""

import dataclasses
import functools
import math
from typing import Literal

import keras

from keras_seq import layers
from keras_seq.models.config import check_fields, register
from keras_seq.models.families.transformer import ACTIVATIONS
from keras_seq.models.token_ids import InvalidIdsToNaN, TokenIdCheck, TokenIdModel


@register("modernbert")
@dataclasses.dataclass(frozen=True)
class ModernBertConfig:
    """Configure an encoder-only Transformer with global and local attention in turns.

    ```python
    encoder = ModernBertConfig().build_model(vocabulary_size=5000)
    encoder(token_ids)["sequence_output"]  # [B, T] -> [B, T, D]
    logits = masked_lm(encoder)(token_ids)  # [B, T, 5000]
    ```

    Raises:
        ValueError: A field is out of its range.
    """

    embedding_dim: int = 128
    """D, the width of the residual stream."""
    num_layers: int = 4
    """Number of blocks."""
    num_heads: int = 4
    """Attention heads in each block, a divisor of embedding_dim."""
    feed_forward_dim: int = 256
    """Width of the hidden layer of each block's gated feed-forward network, which has three matrices."""
    context_length: int = 512
    """Maximum number of positions, padding not counted."""
    sliding_window: int = 65
    """Blocks with local attention attend to positions less than this far away, before and after."""
    global_attention_interval: int = 3
    """Block n attends to all positions if n is a multiple of this, block 0 among them."""
    positions: layers.RotaryPositions = dataclasses.field(
        default_factory=functools.partial(layers.RotaryPositions, base=160_000.0)
    )
    """Base and scaling of the rotations in blocks that attend to all positions."""
    local_positions: layers.RotaryPositions = dataclasses.field(default_factory=layers.RotaryPositions)
    """Base and scaling of the rotations in the other blocks."""
    dropout: float = 0.0
    """Dropout rate of the embeddings, the attention weights, what attention adds and the feed-forward hidden layers."""
    activation: Literal["gelu_tanh", "gelu", "relu", "silu"] = "gelu"
    """Activation of the gates of the feed-forward networks; gelu_tanh is an approximation of gelu."""
    epsilon: float = 1e-5
    """Added to the variance by the normalizations."""
    attention_bias: bool = False
    """Whether the four projections of attention add a bias."""
    feed_forward_bias: bool = False
    """Whether the matrices of the feed-forward networks add a bias."""
    normalization_bias: bool = False
    """Whether the normalizations add an offset."""
    pad_token_id: int | None = 0
    """Id of padding, which changes nothing at other positions; None where every id is text."""

    def __post_init__(self):
        """Check the fields."""
        check_fields(self, ModernBertConfig)

    def count_params(self, vocabulary_size: int) -> int:
        """Return the number of parameters, without building the model."""
        dim, inner = self.embedding_dim, self.feed_forward_dim
        attention = 4 * (dim * dim + self.attention_bias * dim)
        feed_forward = 3 * dim * inner + self.feed_forward_bias * (2 * inner + dim)
        normalizations = (2 * self.num_layers + 1) * (1 + self.normalization_bias) * dim
        return vocabulary_size * dim + self.num_layers * (attention + feed_forward) + normalizations

    def build_model(self, vocabulary_size: int, dtype: str | keras.DTypePolicy | None = None) -> keras.Model:
        """Build the Keras model from token ids to vectors.

        Arguments are those of `LanguageModelConfig.build_model`.

        Returns:
            A model from ids, int32 `[B, T]`, to `{"sequence_output" [B, T, D]}`. Padding, `pad_token_id`, may stand
            anywhere; vectors there mean nothing.

        Raises:
            ValueError: `vocabulary_size` is not a positive integer, `pad_token_id` is not below it, or embedding_dim is
                not an even multiple of num_heads.
        """
        padding, options = {"pad_token_id": self.pad_token_id}, {"dtype": dtype}
        # the mask is that of InvalidIdsToNaN; an embedding without one warns where it is a head and gets it
        is_masked = self.pad_token_id is not None
        normal = keras.initializers.TruncatedNormal(stddev=0.02)
        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        ids = TokenIdCheck(vocabulary_size, self.context_length, **padding, name="token_id_check")(token_ids)
        x = keras.layers.ReversibleEmbedding(
            vocabulary_size,
            self.embedding_dim,
            embeddings_initializer=normal,
            mask_zero=is_masked,
            name="embedding",
            **options,
        )(ids)
        x = InvalidIdsToNaN(vocabulary_size, **padding, name="invalid_ids_to_nan", **options)(x, ids)
        x = self._normalization("embedding_normalization", dtype)(x)
        x = keras.layers.Dropout(self.dropout, name="embedding_dropout", **options)(x)
        for n in range(self.num_layers):
            x = self._attention(n, dtype)(x)
            x = self._feed_forward(n, dtype)(x)
        x = self._normalization("normalization", dtype)(x)
        return TokenIdModel(token_ids, {"sequence_output": x}, name="modernbert")

    def _normalization(self, name, dtype):
        return layers.LayerNormalization(epsilon=self.epsilon, center=self.normalization_bias, dtype=dtype, name=name)

    def _residual(self, layer, normalization, dtype, name, dropout=0.0):
        options = {"epsilon": self.epsilon, "center": self.normalization_bias, "dtype": dtype, "name": name}
        return layers.PreNormResidual([layer], normalization, dropout, **options)

    def _initializers(self):
        residual = 0.02 / math.sqrt(2 * self.num_layers)  # of matrices that write to the residual stream
        return {
            "kernel_initializer": keras.initializers.TruncatedNormal(stddev=0.02),
            "output_initializer": keras.initializers.TruncatedNormal(stddev=residual),
        }

    def _attention(self, n, dtype):
        """Return the attention of block n: global, or local, which sees a window."""
        is_global = n % self.global_attention_interval == 0
        attention = layers.MultiHeadSelfAttention(
            self.num_heads,
            sliding_window=None if is_global else self.sliding_window,
            positions=self.positions if is_global else self.local_positions,
            dropout=self.dropout,
            use_bias=self.attention_bias,
            dtype=dtype,
            name="self_attention",
            **self._initializers(),
        )
        return self._residual(attention, "layer" if n else None, dtype, f"block_{n}", self.dropout)

    def _feed_forward(self, n, dtype):
        feed_forward = layers.GatedFeedForward(
            self.feed_forward_dim,
            ACTIVATIONS[self.activation],
            dropout=self.dropout,
            use_bias=self.feed_forward_bias,
            dtype=dtype,
            name="feed_forward",
            **self._initializers(),
        )
        return self._residual(feed_forward, "layer", dtype, f"feed_forward_{n}")
