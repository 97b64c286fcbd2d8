"""The decoder-only Transformer as published (Radford et al., 2018 and 2019; Brown et al., 2020).

Learned positions, layer normalisation before each part and once at the end, gelu by its tanh formula, biases
everywhere, and the embedding matrix, transposed, as the output matrix. `Modern` says what has changed since.
"""

import dataclasses
import math

import keras

from keras_seq import checks, layers
from keras_seq.models.assembly import build_language_model
from keras_seq.models.language_model import LanguageModel
from keras_seq.models.parameter_counts import count_block_params


@keras.saving.register_keras_serializable(package="keras_seq")
def gelu_tanh(x):
    """gelu by the tanh formula, as GPT-2 has it; at most 5e-4 off the exact one."""
    return keras.activations.gelu(x, approximate=True)


@dataclasses.dataclass(frozen=True)
class GPT2Config:
    """A decoder-only Transformer as published. 0.81 million parameters at the defaults and 65 characters."""

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
    dropout: float = 0.0
    """Fraction of embeddings, attention weights, and what each part adds to the stream, dropped in training."""

    def __post_init__(self):
        for name in ("embedding_dim", "num_layers", "num_heads", "feed_forward_dim"):
            checks.positive_integer(name, getattr(self, name))
        if self.context_length is not None:
            checks.positive_integer("context_length", self.context_length)
        checks.fraction("dropout", self.dropout)

    def count_params(self, vocabulary_size: int) -> int:
        """The number of parameters, by a formula: nothing is allocated."""
        self._needs_context()
        width = self.embedding_dim
        blocks = self.num_layers * count_block_params(width, self.feed_forward_dim)
        return (vocabulary_size + self.context_length) * width + blocks + 2 * width

    def build_model(self, vocabulary_size: int, dtype=None) -> LanguageModel:
        """The Keras model over `vocabulary_size` ids, in the precision `dtype` (a dtype policy or its name)."""
        self._needs_context()
        normal = keras.initializers.RandomNormal(stddev=0.02)
        blocks = [layers.LearnedPositions(self.context_length, normal, dtype=dtype, name="positions")]
        if self.dropout:
            blocks.append(keras.layers.Dropout(self.dropout, dtype=dtype, name="embedding_dropout"))
        # 0.02, and less for what is added up over the layers: Radford et al., 2019, section 2.3
        residual = keras.initializers.RandomNormal(stddev=0.02 / math.sqrt(2 * self.num_layers))
        for n in range(self.num_layers):
            block = layers.TransformerBlock(
                num_heads=self.num_heads,
                feed_forward_dim=self.feed_forward_dim,
                causal=True,
                activation=gelu_tanh,
                dropout=self.dropout,
                residual_initializer=residual.clone(),
                dtype=dtype,
                name=f"block_{n}",
            )
            blocks.append(block)
        blocks.append(layers.LayerNormalization(dtype=dtype, name="normalization"))
        return build_language_model(
            "gpt2",
            vocabulary_size,
            self.embedding_dim,
            blocks,
            tie_embeddings=True,
            context_length=self.context_length,
            dtype=dtype,
        )

    def _needs_context(self):
        if self.context_length is None:
            raise ValueError("GPT: context=None; expected the most positions it attends to, e.g. context=64.")
