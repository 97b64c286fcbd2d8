"""Read the mask that Keras keeps for the output of a layer, such as `[B, T]` for logits `[B, T, V]`.

Keras stores it beside the tensor, and differently where a tensor takes no attributes, as in what JAX compiles. It hands
it to every layer that takes a mask: so a layer reads it.
"""

import functools

import keras


def keras_mask(x):
    """Return the Keras mask of a tensor, or None."""
    return _reader()(x)


@functools.cache
def _reader():
    return _MaskReader(name="keras_mask", autocast=False)  # a cast copy would have no mask


@keras.saving.register_keras_serializable(package="keras_seq")
class _MaskReader(keras.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs, mask=None):
        return mask

    def compute_mask(self, inputs, previous_mask):
        return None  # the mask itself has none
