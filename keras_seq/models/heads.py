"""What stands behind an `Encoder` (Devlin et al., 2019): a word for every position, a class for the whole, tags.

An encoder is what `Encoder(...).build(...)` gives, or what comes back of it from disk. Each model shares the layers of
the encoder that it is made of: to train one trains the other. Logits are float32 at least. Where the loss is Keras's,
the padding of `tagger` is left out of it; `masked_language_model` wants sample weights that say which positions count.
"""

import keras
from keras import ops

from keras_seq import checks, layers
from keras_seq.layers.precision import at_least_float32
from keras_seq.models.token_id_model import TokenIdModel

EPSILON = 1e-12  # of the normalisations outside the blocks, as published


@keras.saving.register_keras_serializable(package="keras_seq")
class LogitsBias(keras.layers.Layer):
    """logits + b, one number for each id, in float32 at least."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.autocast = False  # the logits keep what precision they have

    def build(self, logits_shape):
        """Makes b for logits `[..., V]`."""
        self.bias = self.add_weight(shape=logits_shape[-1:], initializer="zeros", name="bias")

    def call(self, logits):
        """Logits `[..., V]` -> the same, moved."""
        wide = at_least_float32(self.compute_dtype)
        return ops.cast(logits, wide) + ops.cast(self.bias, wide)

    def compute_output_spec(self, logits):
        """As they came, float32 at least."""
        return keras.KerasTensor(logits.shape, dtype=at_least_float32(self.compute_dtype))

    def get_config(self):
        """Nothing of its own. Keras cannot tell by itself where the dtype is an object."""
        return super().get_config()


def masked_lm(encoder) -> keras.Model:
    """From an encoder's inputs to logits `[B, T, V]` over the id at every position.

    Dense, gelu, normalisation, then the encoder's embedding matrix, transposed, and a bias.
    """
    _check(encoder)
    embedding, dtype = encoder.get_layer("embedding"), _dtype(encoder)
    x = encoder.output["sequence"]
    x = layers.Dense(x.shape[-1], activation="gelu", dtype=dtype, name="head")(x)
    x = keras.layers.LayerNormalization(epsilon=EPSILON, dtype=dtype, name="head_normalization")(x)
    # a second call of the same layer, not a layer that holds it: so clones share the matrix too
    logits = LogitsBias(dtype=dtype, name="logits")(embedding(x, reverse=True))
    return TokenIdModel(encoder.input, logits, name="masked_language_model")


def text_classifier(encoder, num_classes, dropout=0.1) -> keras.Model:
    """From an encoder's inputs to logits `[B, num_classes]`, by its pooled output."""
    _check(encoder)
    checks.positive_integer("num_classes", num_classes)
    return TokenIdModel(encoder.input, _logits(encoder, "pooled", num_classes, dropout), name="classifier")


def token_classifier(encoder, num_tags, dropout=0.1) -> keras.Model:
    """From an encoder's inputs to logits `[B, T, num_tags]` at every position."""
    _check(encoder)
    checks.positive_integer("num_tags", num_tags)
    return TokenIdModel(encoder.input, _logits(encoder, "sequence", num_tags, dropout), name="tagger")


def _check(encoder):
    output = getattr(encoder, "output", None)
    if not isinstance(output, dict) or not {"sequence", "pooled"} <= output.keys():
        raise ValueError(f"encoder={encoder!r}; expected what Encoder(...).build(...) gives.")


def _logits(encoder, output, units, dropout):
    dtype = _dtype(encoder)
    rate = checks.fraction("dropout", dropout)
    x = keras.layers.Dropout(rate, dtype=dtype, name="head_dropout")(encoder.output[output])
    return layers.Dense(units, dtype=at_least_float32(dtype.compute_dtype), name="head")(x)


def _dtype(encoder):
    return encoder.get_layer("pooler").dtype_policy
