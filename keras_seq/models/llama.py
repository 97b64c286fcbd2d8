"""The decoder-only Transformer as it is built since (Llama: Touvron et al., 2023).

RMS normalisation, rotary positions, a gated feed-forward part, fewer heads of keys and values than of queries
(grouped-query attention), no biases, and one matrix for embedding and output. As in `Transformer`, the output matrices
of the blocks start at zero, so that each block starts as the identity.
"""

import dataclasses

from keras_seq import checks, layers
from keras_seq.models.assembly import build_language_model
from keras_seq.models.language_model import LanguageModel


@dataclasses.dataclass(frozen=True)
class LlamaConfig:
    """A decoder-only Transformer as of the 2020s. 0.81 million parameters at the defaults and 65 characters."""

    embedding_dim: int = 128
    """D, the width of the residual stream."""
    num_layers: int = 4
    """Blocks on top of each other."""
    num_heads: int = 4
    """Heads of queries in each block."""
    num_key_value_heads: int = 2
    """Heads of keys and values in each block, a divisor of num_heads."""
    feed_forward_dim: int = 392
    """Width of the hidden layer of each block's gated feed-forward part, which has three matrices."""
    context_length: int | None = None
    """The most positions it attends to; by default those of a training window."""
    dropout: float = 0.0
    """Fraction of the attention weights, and of what each part adds to the stream, dropped in training."""

    def __post_init__(self):
        for name in ("embedding_dim", "num_layers", "num_heads", "num_key_value_heads", "feed_forward_dim"):
            checks.positive_integer(name, getattr(self, name))
        if self.context_length is not None:
            checks.positive_integer("context_length", self.context_length)
        checks.fraction("dropout", self.dropout)

    def count_params(self, vocabulary_size: int) -> int:
        """The number of parameters, by a formula: nothing is allocated."""
        width = self.embedding_dim
        shared = width // self.num_heads * self.num_key_value_heads  # of keys, and of values
        attention = 2 * width * width + 2 * width * shared
        block = attention + 3 * width * self.feed_forward_dim + 2 * width
        return vocabulary_size * width + self.num_layers * block + width

    def build_model(self, vocabulary_size: int, dtype=None) -> LanguageModel:
        """The Keras model over `vocabulary_size` ids, in the precision `dtype` (a dtype policy or its name)."""
        if self.context_length is None:
            raise ValueError("Modern: context=None; expected the most positions it attends to, e.g. context=64.")
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
