"""The attentional character model: embedding, causal Transformer blocks, normalisation, output matrix (GPT's shape).

What differs from GPT-2: RMS normalisation, rotary positions, normalised queries and keys, no biases, and output
matrices of the blocks that start at zero, so that each block starts as the identity.
"""

import dataclasses

from keras_seq import checks, layers
from keras_seq.models.assembly import build_language_model
from keras_seq.models.language_model import LanguageModel


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """A decoder-only Transformer language model. 0.80 million parameters at the defaults and 65 characters."""

    embedding_dim: int = 128
    """D, the width of the residual stream."""
    num_layers: int = 4
    """Blocks on top of each other."""
    num_heads: int = 4
    """Attention heads in each block."""
    feed_forward_dim: int = 512
    """Width of the hidden layer of each block's feed-forward part."""
    context_length: int | None = None
    """The most positions it attends to; by default those of a training window."""
    tie_embeddings: bool = False
    """Whether the embedding matrix, transposed, is the output matrix too."""
    dropout: float = 0.0
    """Fraction of the attention weights, and of what each part adds to the stream, dropped in training."""

    def __post_init__(self):
        for name in ("embedding_dim", "num_layers", "num_heads", "feed_forward_dim"):
            checks.positive_integer(name, getattr(self, name))
        if self.context_length is not None:
            checks.positive_integer("context_length", self.context_length)
        checks.fraction("dropout", self.dropout)
        checks.boolean("tie_embeddings", self.tie_embeddings)

    def build_model(self, vocabulary_size: int, dtype=None) -> LanguageModel:
        """The Keras model over `vocabulary_size` ids, in the precision `dtype` (a dtype policy or its name)."""
        if self.context_length is None:
            raise ValueError("Transformer: context=None; expected the most positions it attends to, e.g. context=64.")
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
