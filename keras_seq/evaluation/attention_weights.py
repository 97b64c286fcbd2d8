"""Read the attention weights of every attention layer of a model, ours or Keras's."""

import keras
import numpy as np
from keras import ops

from keras_seq import kernels
from keras_seq.evaluation.layer_hooks import ensure_built, record_calls
from keras_seq.layers import CrossAttention, MultiHeadSelfAttention
from keras_seq.layers.introspection import named_layers

KERAS_LAYERS = (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention)


def attention_layers(model: keras.Model) -> dict[keras.Layer, str]:
    """Return the attention layers of a model that give their weights, and their names in it."""
    classes = (MultiHeadSelfAttention, CrossAttention, *KERAS_LAYERS)
    return {layer: name for name, layer in named_layers(model) if isinstance(layer, classes) and not _flash(layer)}


def _flash(layer):
    return isinstance(layer, KERAS_LAYERS) and bool(layer.get_config().get("flash_attention"))


def attention_weights(model: keras.Model, x) -> dict[str, np.ndarray]:
    """Return the weights `[B, H, T, S]` of every attention layer, float32, by its name in the model.

    Further calls of a layer are named `NAME/call_2`, `NAME/call_3`, ...; a layer that is not called has no entry.

    Args:
        model: Any Keras model with attention layers of keras_seq or keras.layers.
        x: A batch of its inputs.
    """
    names = attention_layers(model)
    if not names:
        return {}
    ensure_built(model, x)
    own_layers = [layer for layer in names if not isinstance(layer, KERAS_LAYERS)]
    keras_layers = [layer for layer in names if isinstance(layer, KERAS_LAYERS)]
    with (
        record_calls(own_layers, "attend") as own_calls,
        record_calls(keras_layers, "call", scores=True) as keras_calls,
        kernels.disabled(),  # the optimized kernels do not return attention weights
    ):
        model(x, training=False)
    weights = {}
    for layer, name in names.items():
        calls = [scores for called, _, _, (_, scores) in own_calls + keras_calls if called is layer]
        for n, scores in enumerate(calls, start=1):
            key = name if n == 1 else f"{name}/call_{n}"
            weights[key] = ops.convert_to_numpy(ops.cast(scores, "float32"))
    return weights
