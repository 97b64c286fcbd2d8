"""The decoder-only Transformer language model of this package: embedding, causal blocks, normalization, projection.

Differences from GPT-2: RMS normalization, rotary positions, normalized queries and keys, no biases, and output
projections of the blocks that start at zero, so that each block starts as the identity.
"""

import dataclasses

import keras

from keras_seq import checks, layers
from keras_seq.models.language_model import LanguageModel, build_language_model


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """Configure a decoder-only Transformer: 0.80 million parameters by default, with 65 characters.

    ```python
    model = TransformerConfig(context_length=64).build_model(vocabulary_size=65)
    logits = model(ids)  # [B, T] -> [B, T, 65]
    ```

    Raises:
        ValueError: A field is out of its range; in `build_model`, `context_length` is None.
    """

    embedding_dim: int = 128
    """D, the width of the residual stream."""
    num_layers: int = 4
    """Number of Transformer blocks."""
    num_heads: int = 4
    """Attention heads in each block, a divisor of embedding_dim."""
    feed_forward_dim: int = 512
    """Width of the hidden layer of each block's feed-forward network."""
    context_length: int | None = None
    """Maximum number of positions, needed to build the model; experiments default to the training window's length."""
    tie_embeddings: bool = False
    """Whether the output projection is the transposed embedding matrix."""
    dropout: float = 0.0
    """Dropout rate of the attention weights and the output of each sublayer."""

    def __post_init__(self):
        """Check the fields."""
        for name in ("embedding_dim", "num_layers", "num_heads", "feed_forward_dim"):
            checks.positive_integer(name, getattr(self, name))
        if self.context_length is not None:
            checks.positive_integer("context_length", self.context_length)
        checks.fraction("dropout", self.dropout)
        checks.boolean("tie_embeddings", self.tie_embeddings)

    def build_model(self, vocabulary_size: int, dtype: str | keras.DTypePolicy | None = None) -> LanguageModel:
        """Build the Keras model from ids `[B, T]` to logits `[B, T, V]`.

        Args:
            vocabulary_size: V, at least 1.
            dtype: A dtype policy or its name, e.g. `"mixed_bfloat16"`; None for Keras's default.

        Returns:
            The model, with all weights built.

        Raises:
            ValueError: `context_length` is None, `vocabulary_size` is not a positive integer, or `embedding_dim` is
                not a multiple of `num_heads`.
        """
        if self.context_length is None:
            raise ValueError(
                "TransformerConfig: context_length=None; expected a number of positions, e.g. context_length=64."
            )
        blocks = [
            layers.TransformerBlock(
                num_heads=self.num_heads,
                feed_forward_dim=self.feed_forward_dim,
                causal=True,
                normalization="rms",
                dropout=self.dropout,
                use_bias=False,
                positions=layers.RotaryPositions(),
                use_qk_norm=True,
                residual_initializer="zeros",
                dtype=dtype,
                name=f"block_{n}",
            )
            for n in range(self.num_layers)
        ]
        return build_language_model(
            "transformer",
            vocabulary_size,
            self.embedding_dim,
            [*blocks, layers.RMSNormalization(dtype=dtype, name="normalization")],
            tie_embeddings=self.tie_embeddings,
            context_length=self.context_length,
            use_bias=False,
            dtype=dtype,
        )
