"""Record the calls of layers or edit their outputs, as forward hooks do, without changing the layers.

So the attention weights of a model are read, of the attention layers of keras_seq and of Keras.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable

import keras
import numpy as np
from keras import ops

import keras_seq.ops
from keras_seq.layers import CrossAttention, MultiHeadSelfAttention
from keras_seq.layers.introspection import named_layers

KERAS_LAYERS = (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention)


@contextlib.contextmanager
def record_calls(layers: Iterable[keras.layers.Layer], method: str, scores: bool = False):
    """Yield a list that gets `(layer, args, kwargs, output)` of every call of a method of some layers.

    With `scores`, Keras's attention layers are asked for their attention weights, too.
    """
    calls = []

    def recording(layer, original):
        def call(*args, **kwargs):
            call_kwargs = kwargs | {"return_attention_scores": True} if scores else kwargs
            output = original(*args, **call_kwargs)
            calls.append((layer, args, kwargs, output))
            return output if call_kwargs == kwargs or kwargs.get("return_attention_scores") else output[0]

        return call

    with _replaced(layers, method, recording):
        yield calls


@contextlib.contextmanager
def edit_outputs(layers: Iterable[keras.layers.Layer], edit: Callable):
    """Replace the output of each layer's first call by `edit(layer, output)`; yield the set of the layers called."""
    called = set()

    def editing(layer, original):
        def call(*args, **kwargs):
            output = original(*args, **kwargs)
            if layer in called:
                return output
            called.add(layer)
            return edit(layer, output)

        return call

    with _replaced(layers, "call", editing):
        yield called


@contextlib.contextmanager
def _replaced(layers, method, replacement):
    """Replace a method of each layer by `replacement(layer, original)` inside a `with` block."""
    layers = list(layers)
    for layer in layers:
        original = getattr(layer, method)
        # not by setattr, so that Keras does not track it
        layer.__dict__[method] = functools.wraps(original)(replacement(layer, original))
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__[method]


def ensure_built(model: keras.Model, x) -> None:
    """Call a model that is not built yet: a first call also traces its layers, and symbolic calls would be recorded."""
    if not model.built:
        model(x, training=False)


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
        keras_seq.ops.reference(),  # the optimized kernels do not return attention weights
    ):
        model(x, training=False)
    weights = {}
    for layer, name in names.items():
        calls = [scores for called, _, _, (_, scores) in own_calls + keras_calls if called is layer]
        for n, scores in enumerate(calls, start=1):
            key = name if n == 1 else f"{name}/call_{n}"
            weights[key] = ops.convert_to_numpy(ops.cast(scores, "float32"))
    return weights
