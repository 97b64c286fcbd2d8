"""The decoder-only Transformer language model of this package: embedding, causal blocks, normalization, projection.

Differences from GPT-2: RMS normalization, rotary positions, normalized queries and keys, no biases, and output
projections of the blocks that start at zero, so that each block starts as the identity.
"""

import dataclasses

from keras_seq import layers
from keras_seq.models.language_model_config import LanguageModelConfig
from keras_seq.models.registry import register


@register("transformer", tiny={"num_layers": 2})
@dataclasses.dataclass(frozen=True)
class TransformerConfig(LanguageModelConfig):
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

    def blocks(self, dtype=None) -> list:
        """Return the layers between embedding and head."""
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
        return [*blocks, layers.RMSNormalization(dtype=dtype, name="normalization")]
