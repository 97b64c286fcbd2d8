"""Freeze the layers inside of a frozen layer.

Keras does so when `layer.trainable` is set, but not where a layer is created, cloned or loaded with `trainable=False`.
"""


def freeze_inner_layers(layer) -> None:
    """Freeze the layers inside of a layer that is not trainable; to be called at the end of its `build`."""
    if not layer.trainable:
        layer.trainable = True  # on TensorFlow, an attribute that is set to what it is is not set
        layer.trainable = False
