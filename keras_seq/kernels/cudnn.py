"""LSTM and GRU on a GPU in training: Keras's layer with the same weights, which runs cuDNN's recurrence.

In float32 only, because cuDNN keeps the cell state in the dtype of the matrices. In training only, because generation
and scoring are compiled by XLA, which cannot call cuDNN's recurrence on TensorFlow. (On JAX, Keras's LSTM calls
`jax.experimental.rnn`; its GRU is a loop.)
"""

from keras import tree

from keras_seq.kernels.devices import on_gpu


def supports(layer, mask=None, recurrent_dropout_mask=None, training: bool | None = True) -> bool:
    """Return whether cuDNN can run a call of this layer on this machine.

    Args:
        layer: A layer with `keras_layer_class`.
        mask: `[B, T]` boolean, or None.
        recurrent_dropout_mask: `[B, units]`, or None.
        training: Whether the call is one of training.
    """
    if not training or mask is not None or recurrent_dropout_mask is not None:
        return False
    # the class itself has to define keras_layer_class, because a subclass may compute something else
    has_keras_layer = "keras_layer_class" in vars(type(layer)) and layer.keras_layer_class is not None
    return has_keras_layer and layer.compute_dtype == "float32" and on_gpu()


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
