"""Functional models of token ids. They refuse floats, which a `keras.Input` of int32 would truncate silently."""

import keras

from keras_seq.models.id_checks import as_ids


@keras.saving.register_keras_serializable(package="keras_seq")
class TokenIdModel(keras.Model):
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
