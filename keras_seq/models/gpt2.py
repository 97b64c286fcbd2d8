"""The decoder-only Transformer as published (GPT-2: Radford et al., 2018 and 2019; GPT-3: Brown et al., 2020).

Learned positions, pre-norm layer normalization and one more at the end, tanh-approximated gelu, biases in all dense
layers, output projection tied to the embedding. `LlamaConfig` has the changes made since.
"""

import dataclasses
import math
from typing import Literal

import keras

from keras_seq import checks, layers
from keras_seq.layers.feed_forward import gelu_tanh
from keras_seq.models.language_model_config import LanguageModelConfig
from keras_seq.models.parameter_counts import count_block_params
from keras_seq.models.registry import register

ACTIVATIONS = {"gelu_tanh": gelu_tanh, "gelu": "gelu", "relu": "relu", "silu": "silu"}


@register("gpt2")
@dataclasses.dataclass(frozen=True)
class GPT2Config(LanguageModelConfig):
    """Configure a decoder-only Transformer as published: 0.81 million parameters by default, with 65 characters.

    ```python
    model = GPT2Config(context_length=64).build_model(vocabulary_size=65)
    logits = model(ids)  # [B, T] -> [B, T, 65]
    ```

    Raises:
        ValueError: A field is out of its range; in `build_model` and `count_params`, `context_length` is None.
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
    dropout: float = 0.0
    """Dropout rate of the embeddings, the attention weights and the output of each sublayer."""
    use_bias: bool = True
    """Whether dense layers and layer normalizations add a bias; nanoGPT's do not."""
    activation: Literal["gelu_tanh", "gelu", "relu", "silu"] = "gelu_tanh"
    """Activation of the feed-forward networks; gelu_tanh is an approximation of gelu."""
    epsilon: float = 1e-5
    """Added to the variance by the normalizations."""
    tie_embeddings: bool = True
    """Whether the output projection is the transposed embedding matrix."""

    def __post_init__(self):
        """Check the fields."""
        super().__post_init__()
        checks.boolean("use_bias", self.use_bias)
        checks.one_of("activation", self.activation, ACTIVATIONS)
        checks.positive_number("epsilon", self.epsilon)

    def count_params(self, vocabulary_size: int) -> int:
        """Return the number of parameters, without building the model."""
        dim, context_length = self.embedding_dim, self._context_length()
        blocks = self.num_layers * count_block_params(dim, self.feed_forward_dim, use_bias=self.use_bias)
        heads = 1 if self.tie_embeddings else 2
        return (heads * vocabulary_size + context_length) * dim + blocks + (1 + self.use_bias) * dim

    def blocks(self, dtype=None) -> list:
        """Return the layers between embedding and head."""
        normal = keras.initializers.RandomNormal(stddev=0.02)
        blocks = [layers.LearnedPositions(self.context_length, normal, dtype=dtype, name="positions")]
        if self.dropout:
            blocks.append(keras.layers.Dropout(self.dropout, dtype=dtype, name="embedding_dropout"))
        # 0.02, scaled down for the sublayers that add to the residual stream: Radford et al., 2019, section 2.3
        residual = keras.initializers.RandomNormal(stddev=0.02 / math.sqrt(2 * self.num_layers))
        for n in range(self.num_layers):
            block = layers.TransformerBlock(
                num_heads=self.num_heads,
                feed_forward_dim=self.feed_forward_dim,
                causal=True,
                activation=ACTIVATIONS[self.activation],
                dropout=self.dropout,
                use_bias=self.use_bias,
                epsilon=self.epsilon,
                residual_initializer=residual.clone(),
                dtype=dtype,
                name=f"block_{n}",
            )
            blocks.append(block)
        options = {"center": self.use_bias, "dtype": dtype, "name": "normalization"}
        return [*blocks, layers.LayerNormalization(epsilon=self.epsilon, **options)]
