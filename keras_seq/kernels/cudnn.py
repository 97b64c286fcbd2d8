"""LSTM and GRU on a GPU in training: Keras's own layer on the same weights, which gives all positions to cuDNN at once.

In float32 only, for cuDNN keeps the memory in the type of the matrices. In training only, for what writes and scores
text is compiled by XLA, which on TensorFlow cannot call cuDNN's recurrence.
"""

import keras
from keras import tree


def supports(layer):
    """Whether the layer can go this way, on this machine."""
    named = (
        "in_keras" in vars(type(layer)) and layer.keras_layer_class is not None
    )  # a subclass may compute something else
    return named and layer.compute_dtype == "float32" and not layer.recurrent_dropout and on_gpu()


def on_gpu():
    """Whether Keras computes on a GPU."""
    return any(device.lower().startswith("gpu") for device in keras.distribution.list_devices())


def apply(layer):
    """What a built layer does, `(x, state) -> (y, state)`: a function, for Keras is not to find a layer in it."""
    keras_layer = layer.keras_layer_class(
        layer.units, return_sequences=True, return_state=True, dtype=layer.dtype_policy, seed=0
    )
    cell = keras_layer.cell
    cell.kernel, cell.recurrent_kernel, cell.bias = layer.kernel, layer.recurrent_kernel, layer.bias
    cell.built = keras_layer.built = True

    def on_cudnn(x, state):
        y, *new = keras_layer(x, initial_state=tree.flatten(state))
        layer.supports_jit = layer.supports_jit and keras_layer.supports_jit  # as Keras's says after it was called
        return y, tree.pack_sequence_as(state, new)

    return on_cudnn
