"""Output heads for a BERT encoder (Devlin et al., 2019): masked language model, text classifier, token classifier.

An encoder is a model of `BertConfig`, built or loaded. Each head shares the encoder's layers: training one trains the
other. Logits are at least float32. With a loss of Keras, padding is masked for `token_classifier`; `masked_lm` needs
sample weights that select the masked positions.
"""

import keras
from keras import ops

from keras_seq import checks, layers
from keras_seq.models.token_id_model import TokenIdModel
from keras_seq.ops.tensor_checks import at_least_float32


@keras.saving.register_keras_serializable(package="keras_seq")
class LogitsBias(keras.layers.Layer):
    """Add a bias `[V]` to logits, in at least float32.

    Call arguments:
        logits: `[..., V]`.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.autocast = False  # the logits keep their precision

    def build(self, logits_shape):
        """Create the bias for logits `[..., V]`."""
        self.bias = self.add_weight(shape=logits_shape[-1:], initializer="zeros", name="bias")

    def call(self, logits):
        """Add the bias to the logits, in float32 at least."""
        dtype = at_least_float32(self.compute_dtype)
        return ops.cast(logits, dtype) + ops.cast(self.bias, dtype)

    def compute_output_spec(self, logits):
        """Return the shape and dtype of the output without computing it."""
        return keras.KerasTensor(logits.shape, dtype=at_least_float32(self.compute_dtype))

    def get_config(self):
        """Return the base layer's config; without this method Keras refuses a dtype policy object."""
        return super().get_config()


def masked_lm(encoder: keras.Model) -> keras.Model:
    """Build a masked language model on an encoder: dense, gelu, normalization, tied output projection, bias.

    Args:
        encoder: A model of `BertConfig`.

    Returns:
        A model from the encoder's inputs to logits `[B, T, V]` over the id at every position.

    Raises:
        ValueError: `encoder` is not such a model.
    """
    _check_encoder(encoder)
    embedding, dtype = encoder.get_layer("embedding"), _dtype_policy(encoder)
    x = encoder.output["sequence_output"]
    activation, epsilon = encoder.get_layer("block_0").activation, encoder.get_layer("embedding_normalization").epsilon
    x = layers.Dense(x.shape[-1], activation=activation, dtype=dtype, name="head")(x)
    x = keras.layers.LayerNormalization(epsilon=epsilon, dtype=dtype, name="head_normalization")(x)
    # The embedding is called twice and not held by another layer, so that clones share the matrix too.
    logits = LogitsBias(dtype=dtype, name="logits")(embedding(x, reverse=True))
    return TokenIdModel(encoder.input, logits, name="masked_lm")


def text_classifier(encoder: keras.Model, num_classes: int, dropout: float = 0.1) -> keras.Model:
    """Build a classifier of whole sequences on an encoder's pooled output, which is that of the first position.

    Args:
        encoder: A model of `BertConfig`.
        num_classes: Number of classes, at least 1.
        dropout: Dropout rate of the pooled output, at least 0 and below 1.

    Returns:
        A model from the encoder's inputs to logits `[B, num_classes]`.

    Raises:
        ValueError: `encoder` is not such a model, or an argument is out of its range.
    """
    _check_encoder(encoder)
    checks.positive_integer("num_classes", num_classes)
    return TokenIdModel(encoder.input, _logits(encoder, "pooled_output", num_classes, dropout), name="text_classifier")


def token_classifier(encoder: keras.Model, num_tags: int, dropout: float = 0.1) -> keras.Model:
    """Build a classifier of every position on an encoder's sequence output.

    Args:
        encoder: A model of `BertConfig`.
        num_tags: Number of tags, at least 1.
        dropout: Dropout rate of the sequence output, at least 0 and below 1.

    Returns:
        A model from the encoder's inputs to logits `[B, T, num_tags]`.

    Raises:
        ValueError: `encoder` is not such a model, or an argument is out of its range.
    """
    _check_encoder(encoder)
    checks.positive_integer("num_tags", num_tags)
    return TokenIdModel(encoder.input, _logits(encoder, "sequence_output", num_tags, dropout), name="token_classifier")


def _check_encoder(encoder):
    output = getattr(encoder, "output", None)
    if not isinstance(output, dict) or not {"sequence_output", "pooled_output"} <= output.keys():
        raise ValueError(f"encoder={encoder!r}; expected a model of BertConfig(...).build_model(...).")


def _logits(encoder, output_name, units, dropout):
    dtype = _dtype_policy(encoder)
    rate = checks.fraction("dropout", dropout)
    x = keras.layers.Dropout(rate, dtype=dtype, name="head_dropout")(encoder.output[output_name])
    return layers.Dense(units, dtype=at_least_float32(dtype.compute_dtype), name="head")(x)


def _dtype_policy(encoder):
    return encoder.get_layer("pooler").dtype_policy
