"""Functional models of ids: a `keras.Input` of int32 would make whole numbers of floats without a word."""

import keras

from keras_seq.models.id_checks import as_ids


@keras.saving.register_keras_serializable(package="keras_seq")
class TokenIdModel(keras.Model):
    """A functional model whose inputs are all ids `[B, T]`.

    Raises:
        ValueError: in a call, inputs that are no integers `[B, T]`.
    """

    def __call__(self, inputs=None, *args, **kwargs):
        """The model over ids `[B, T]`, or a dict of such."""
        if isinstance(inputs, dict):
            inputs = {name: as_ids(name, ids) for name, ids in inputs.items()}
        else:
            inputs = as_ids("ids", inputs)
        return super().__call__(inputs, *args, **kwargs)
