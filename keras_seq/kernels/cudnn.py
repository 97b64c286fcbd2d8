"""LSTM and GRU on a GPU in training: Keras's layer with the same weights, which runs cuDNN's recurrence.

In float32 only, because cuDNN keeps the cell state in the dtype of the matrices. In training only, because generation
and scoring are compiled by XLA, which cannot call cuDNN's recurrence on TensorFlow.
"""

import keras
from keras import tree


def supports(layer) -> bool:
    """Return whether cuDNN can run this layer on this machine."""
    # the class itself has to define keras_layer_class, because a subclass may compute something else
    has_keras_layer = "keras_layer_class" in vars(type(layer)) and layer.keras_layer_class is not None
    return has_keras_layer and layer.compute_dtype == "float32" and not layer.recurrent_dropout and on_gpu()


def on_gpu() -> bool:
    """Return whether Keras, on any backend, has a GPU to compute on."""
    return any(device.lower().startswith("gpu") for device in keras.distribution.list_devices())


def apply(layer):
    """Return a function `(x, state) -> (y, state)` that runs a built layer on cuDNN.

    It is a function, so that Keras does not track the inner layer.
    """
    keras_layer = layer.keras_layer_class(
        layer.units, return_sequences=True, return_state=True, dtype=layer.dtype_policy, seed=0
    )
    cell = keras_layer.cell
    cell.kernel, cell.recurrent_kernel, cell.bias = layer.kernel, layer.recurrent_kernel, layer.bias
    cell.built = keras_layer.built = True

    def run_on_cudnn(x, state):
        y, *new_state = keras_layer(x, initial_state=tree.flatten(state))
        layer.supports_jit = layer.supports_jit and keras_layer.supports_jit  # set by Keras's call
        return y, tree.pack_sequence_as(state, new_state)

    return run_on_cudnn
