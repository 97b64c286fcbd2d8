"""Functional models of token ids. They refuse floats, which a `keras.Input` of int32 would truncate silently."""

import keras

from keras_seq.models.id_checks import as_ids
from keras_seq.models.quantization import Quantizable
from keras_seq.models.token_targets import TokenTargets


@keras.saving.register_keras_serializable(package="keras_seq")
class TokenIdModel(Quantizable, TokenTargets, keras.Model):
    """Check that the inputs of a functional model are integers `[B, T]`.

    Raises:
        ValueError: In a call, an input is not integers `[B, T]`.
    """

    def __call__(self, inputs=None, *args, **kwargs):
        """Apply the model to ids `[B, T]`, or to a dict of them."""
        if isinstance(inputs, dict):
            inputs = {name: as_ids(name, ids) for name, ids in inputs.items()}
        else:
            inputs = as_ids("ids", inputs)
        return super().__call__(inputs, *args, **kwargs)

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Create the model and its layers from a config."""
        config = dict(config)
        quantization = config.pop("quantization", None)
        model = super().from_config(config, custom_objects=custom_objects)
        model.quantization = quantization
        model.build_quantized()
        return model
