"""From blocks to a language model: the embedding before them, the output matrix behind them."""

import keras

from keras_seq import checks, layers
from keras_seq.models.language_model import LanguageModel


def build_language_model(
    name, vocabulary_size, embedding_dim, blocks, tie_embeddings, context_length=None, use_bias=True, dtype=None
) -> LanguageModel:
    """A `LanguageModel` with all its weights made.

    Args:
        name: of the Keras model.
        vocabulary_size: V.
        embedding_dim: width of an id's vector.
        blocks: what stands between embedding and output matrix.
        tie_embeddings: whether the embedding matrix, transposed, is the output matrix too.
        context: as `LanguageModel` has it.
        use_bias: whether an output matrix of its own adds a bias.
        dtype: a dtype policy or its name.

    Raises:
        ValueError: V is no whole number of at least 1.
    """
    checks.positive_integer("vocabulary_size", vocabulary_size)
    embedding = keras.layers.ReversibleEmbedding if tie_embeddings else keras.layers.Embedding
    head = None
    if not tie_embeddings:
        head = layers.Dense(vocabulary_size, use_bias=use_bias, dtype=dtype, name="head")
    model = LanguageModel(
        embedding(vocabulary_size, embedding_dim, dtype=dtype, name="embedding"),
        blocks,
        head,
        context_length=context_length,
        dtype=dtype,
        name=name,
    )
    model.build((None, None))
    return model
