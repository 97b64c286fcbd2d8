"""The decoder-only Transformer of the 2020s (Llama: Touvron et al., 2023, arXiv:2302.13971).

RMS normalization, rotary positions, gated feed-forward networks, fewer key and value heads than query heads
(grouped-query attention), no biases, output projection tied to the embedding. As in `TransformerConfig`, the output
projections of the blocks start at zero, so that each block starts as the identity.
"""

import dataclasses

import keras

from keras_seq import checks, layers
from keras_seq.models.language_model import LanguageModel, build_language_model


@dataclasses.dataclass(frozen=True)
class LlamaConfig:
    """Configure a Llama-style Transformer: 0.81 million parameters by default, with 65 characters.

    ```python
    model = LlamaConfig(context_length=64).build_model(vocabulary_size=65)
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
    """Query heads in each block, a divisor of embedding_dim."""
    num_key_value_heads: int = 2
    """Key and value heads in each block, a divisor of num_heads."""
    feed_forward_dim: int = 392
    """Width of the hidden layer of each block's gated feed-forward network, which has three matrices."""
    context_length: int | None = None
    """Maximum number of positions, needed to build the model; experiments default to the training window's length."""
    dropout: float = 0.0
    """Dropout rate of the attention weights and the output of each sublayer."""

    def __post_init__(self):
        """Check the fields."""
        for name in ("embedding_dim", "num_layers", "num_heads", "num_key_value_heads", "feed_forward_dim"):
            checks.positive_integer(name, getattr(self, name))
        if self.context_length is not None:
            checks.positive_integer("context_length", self.context_length)
        checks.fraction("dropout", self.dropout)

    def count_params(self, vocabulary_size: int) -> int:
        """Return the number of parameters, without building the model."""
        dim = self.embedding_dim
        key_value_dim = dim // self.num_heads * self.num_key_value_heads
        attention = 2 * dim * dim + 2 * dim * key_value_dim
        block = attention + 3 * dim * self.feed_forward_dim + 2 * dim
        return vocabulary_size * dim + self.num_layers * block + dim

    def build_model(self, vocabulary_size: int, dtype: str | keras.DTypePolicy | None = None) -> LanguageModel:
        """Build the Keras model from ids `[B, T]` to logits `[B, T, V]`.

        Args:
            vocabulary_size: V, at least 1.
            dtype: A dtype policy or its name, e.g. `"mixed_bfloat16"`; None for Keras's default.

        Returns:
            The model, with all weights built.

        Raises:
            ValueError: `context_length` is None, `vocabulary_size` is not a positive integer, or the numbers of heads
                do not divide as they must.
        """
        if self.context_length is None:
            raise ValueError(
                "LlamaConfig: context_length=None; expected a number of positions, e.g. context_length=64."
            )
        blocks = [
            layers.TransformerBlock(
                num_heads=self.num_heads,
                feed_forward_dim=self.feed_forward_dim,
                causal=True,
                normalization="rms",
                activation="swiglu",
                dropout=self.dropout,
                use_bias=False,
                positions=layers.RotaryPositions(),
                num_key_value_heads=self.num_key_value_heads,
                residual_initializer="zeros",
                dtype=dtype,
                name=f"block_{n}",
            )
            for n in range(self.num_layers)
        ]
        return build_language_model(
            "llama",
            vocabulary_size,
            self.embedding_dim,
            [*blocks, layers.RMSNormalization(dtype=dtype, name="normalization")],
            tie_embeddings=True,
            context_length=self.context_length,
            dtype=dtype,
        )
