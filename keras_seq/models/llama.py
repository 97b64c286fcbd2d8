"""The decoder-only Transformer of the 2020s (Llama: Touvron et al., 2023, arXiv:2302.13971).

RMS normalization, rotary positions, gated feed-forward networks, fewer key and value heads than query heads
(grouped-query attention), no biases, output projection tied to the embedding. As in `TransformerConfig`, the output
projections of the blocks start at zero, so that each block starts as the identity.
"""

import dataclasses
from typing import Literal

from keras_seq import checks, layers
from keras_seq.models.language_model_config import LanguageModelConfig
from keras_seq.models.registry import register


@register("llama")
@dataclasses.dataclass(frozen=True)
class LlamaConfig(LanguageModelConfig):
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
    activation: Literal["swiglu", "geglu"] = "swiglu"
    """Activation of the gates of the feed-forward networks."""
    key_dim: int | None = None
    """K, the width of a head; by default embedding_dim / num_heads."""
    positions: layers.RotaryPositions = dataclasses.field(default_factory=layers.RotaryPositions)
    """Base and scaling of the rotations."""
    epsilon: float = 1e-6
    """Added to the mean square by the normalizations."""
    attention_bias: bool = False
    """Whether the projections to queries, keys and values add a bias."""
    attention_output_bias: bool = False
    """Whether the output projections of the attention layers add a bias."""
    feed_forward_bias: bool = False
    """Whether the matrices of the feed-forward networks add a bias."""
    use_qk_norm: bool = False
    """Whether to RMS-normalize queries and keys."""
    sliding_window: int | None = None
    """Attend only to positions less than this far away; None for all."""
    full_attention_layers: int = 0
    """Number of first blocks that attend to all positions in spite of sliding_window."""
    tie_embeddings: bool = True
    """Whether the output projection is the transposed embedding matrix."""

    def __post_init__(self):
        """Check the fields."""
        super().__post_init__()
        checks.one_of("activation", self.activation, ("swiglu", "geglu"))
        for name in ("key_dim", "sliding_window"):
            if getattr(self, name) is not None:
                checks.positive_integer(name, getattr(self, name))
        if not isinstance(self.positions, layers.RotaryPositions):
            raise ValueError(f"positions={self.positions!r}; expected RotaryPositions.")
        checks.positive_number("epsilon", self.epsilon)
        for name in ("attention_bias", "attention_output_bias", "feed_forward_bias", "use_qk_norm"):
            checks.boolean(name, getattr(self, name))
        checks.non_negative_integer("full_attention_layers", self.full_attention_layers)

    def count_params(self, vocabulary_size: int) -> int:
        """Return the number of parameters, without building the model."""
        dim, key_dim = self.embedding_dim, self.key_dim or self.embedding_dim // self.num_heads
        query_dim, key_value_dim = self.num_heads * key_dim, self.num_key_value_heads * key_dim
        attention = 2 * dim * query_dim + 2 * dim * key_value_dim + 2 * key_dim * self.use_qk_norm
        biases = self.attention_bias * (query_dim + 2 * key_value_dim) + self.attention_output_bias * dim
        feed_forward = 3 * dim * self.feed_forward_dim + self.feed_forward_bias * (2 * self.feed_forward_dim + dim)
        embeddings = vocabulary_size * dim * (1 if self.tie_embeddings else 2)
        return embeddings + self.num_layers * (attention + biases + feed_forward + 2 * dim) + dim

    def blocks(self, dtype=None) -> list:
        """Return the layers between embedding and head."""
        blocks = [
            layers.TransformerBlock(
                num_heads=self.num_heads,
                feed_forward_dim=self.feed_forward_dim,
                causal=True,
                normalization="rms",
                activation=self.activation,
                dropout=self.dropout,
                use_bias=False,
                attention_bias=self.attention_bias,
                attention_output_bias=self.attention_output_bias,
                feed_forward_bias=self.feed_forward_bias,
                key_dim=self.key_dim,
                epsilon=self.epsilon,
                positions=self.positions,
                use_qk_norm=self.use_qk_norm,
                num_key_value_heads=self.num_key_value_heads,
                sliding_window=None if n < self.full_attention_layers else self.sliding_window,
                residual_initializer="zeros",
                dtype=dtype,
                name=f"block_{n}",
            )
            for n in range(self.num_layers)
        ]
        return [*blocks, layers.RMSNormalization(epsilon=self.epsilon, dtype=dtype, name="normalization")]
