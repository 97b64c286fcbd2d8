"""Build language models from configs, frozen dataclasses of their sizes.

    ids [B, T] -> embedding -> blocks -> head -> logits [B, T, V]

Embedding and head are made in one way for all; a config makes the blocks.
"""

import abc
import dataclasses
from typing import ClassVar

import keras

from keras_seq import checks, layers
from keras_seq.models.language_model import LanguageModel

SIZES = {
    *("embedding_dim", "units", "num_layers", "num_heads", "num_key_value_heads", "feed_forward_dim", "context_length")
}


@dataclasses.dataclass(frozen=True)
class LanguageModelConfig(abc.ABC):
    """Base class of the configs of language models: a subclass defines `blocks` and fields, such as `embedding_dim`.

    If there is a field `context_length`, the maximum number of positions, it has to be given to build the model;
    otherwise there is no limit. `model_name` is the name of the Keras model. Checked are `dropout`, `tie_embeddings`
    and the sizes that the models here have (SIZES).

    ```python
    @dataclasses.dataclass(frozen=True)
    class LinearAttentionConfig(LanguageModelConfig):
        embedding_dim: int = 128

        def blocks(self, dtype=None):
            return [PreNormResidual([GatedLinearAttention(num_heads=4, dtype=dtype)], dtype=dtype)]


    model = LinearAttentionConfig().build_model(vocabulary_size=65)
    ```
    """

    model_name: ClassVar[str | None] = None

    # without annotations, or fields of these names would be a config's first
    tie_embeddings = False  # whether the head is the transposed embedding matrix
    use_head_bias = False  # whether a head that is not tied adds a bias
    logit_soft_cap = None  # with a tied head, c of the logits c tanh(logits / c); None for the logits themselves

    def __post_init__(self):
        """Check the fields that most configs have; a size may be None if that is its default."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in SIZES and (value, field.default) != (None, None):
                checks.positive_integer(field.name, value)
        checks.fraction("dropout", getattr(self, "dropout", 0.0))
        checks.boolean("tie_embeddings", self.tie_embeddings)

    @abc.abstractmethod
    def blocks(self, dtype=None) -> list:
        """Return the layers between embedding and head.

        Args:
            dtype: A dtype policy or its name; None for Keras's default.
        """

    def build_model(self, vocabulary_size: int, dtype: str | keras.DTypePolicy | None = None) -> LanguageModel:
        """Build the Keras model from ids `[B, T]` to logits `[B, T, V]`.

        Args:
            vocabulary_size: V, at least 1.
            dtype: A dtype policy or its name, e.g. `"mixed_bfloat16"`; None for Keras's default.

        Returns:
            The model, with all weights built.

        Raises:
            ValueError: `vocabulary_size` is not a positive integer, `context_length` is None, or a size does not fit
                the others.
        """
        checks.positive_integer("vocabulary_size", vocabulary_size)
        context_length, blocks = self._context_length(), self.blocks(dtype)
        args, options = (vocabulary_size, self.embedding_dim), {"dtype": dtype, "name": "embedding"}
        if self.tie_embeddings:
            embedding = keras.layers.ReversibleEmbedding(*args, logit_soft_cap=self.logit_soft_cap, **options)
            head = None
        else:
            embedding = keras.layers.Embedding(*args, **options)
            head = layers.Dense(vocabulary_size, use_bias=self.use_head_bias, dtype=dtype, name="head")
        model = LanguageModel(embedding, blocks, head, context_length, dtype=dtype, name=self.model_name)
        model.build((None, None))
        return model

    def _context_length(self):
        """Return the maximum number of positions, or None for a model without a limit."""
        if not hasattr(self, "context_length"):
            return None
        if self.context_length is None:
            raise ValueError(
                f"{type(self).__name__}: context_length=None; expected a number of positions, e.g. context_length=64."
            )
        return self.context_length
