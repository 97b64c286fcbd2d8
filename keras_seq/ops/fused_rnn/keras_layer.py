"""LSTM and GRU on a GPU in training: Keras's layer with the same weights, which runs cuDNN's recurrence.

In float32 only, because cuDNN keeps the cell state in the dtype of the matrices. In training only, because generation
and scoring are compiled by XLA, which cannot call cuDNN's recurrence on TensorFlow. (On JAX, Keras's LSTM calls
`jax.experimental.rnn`; its GRU is a loop.)
"""

import functools

import keras
from keras import tree

from keras_seq.ops.fused_rnn import fused_rnn

LAYERS = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU}


def trains_in_float32(kind, x, state, kernel, recurrent_kernel, bias, training=None) -> bool:
    """Return whether this is a call of training in float32."""
    return bool(training) and keras.backend.standardize_dtype(x.dtype) == "float32"


@fused_rnn.on("tensorflow", supports=trains_in_float32, device="gpu")
@fused_rnn.on("jax", supports=trains_in_float32, device="gpu")
def keras_layer(kind, x, state, kernel, recurrent_kernel, bias, training=None):
    """Run a Keras layer on the weights, which it does not own."""
    layer = _layer(kind, tree.flatten(state)[0].shape[-1])
    for name, weight in (("kernel", kernel), ("recurrent_kernel", recurrent_kernel), ("bias", bias)):
        object.__setattr__(layer.cell, name, weight)  # Keras would track it
    y, *new_state = layer(x, initial_state=tree.flatten(state))
    return y, tree.pack_sequence_as(state, new_state)


@functools.cache
def _layer(kind, units):
    """Make a layer once: it has a variable, a seed, of which a `tf.function` takes no second one."""
    layer = LAYERS[kind](units, return_sequences=True, return_state=True, dtype="float32", seed=0)
    layer.cell.built = layer.built = True
    return layer
