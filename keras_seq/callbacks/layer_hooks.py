"""The layers inside a model by name, and what a method of theirs is given and gives while the model is called."""

import contextlib
import functools

import keras

from keras_seq.layers import Stateful, TransformerBlock


def named_layers(layer, name=""):
    """Yields a layer and all inside it, each once, under names such as block_0/mingru.

    `Carry` adds no name, nor does the model in it: its layers are called as they are without. The self-attention of a
    `TransformerBlock` bears the block's own name.
    """
    seen = set()
    for path, found in _inside(layer, name):
        if id(found) not in seen:
            seen.add(id(found))
            yield path, found


def _inside(layer, name):
    yield name, layer
    if isinstance(layer, TransformerBlock):
        yield name, layer.self_attention_layer
        if layer.cross_attention:
            yield f"{name}/cross_attention", layer.cross_attention_layer
    parts = ("layer", "forward_layer", "backward_layer")
    wrapped = (getattr(layer, part) for part in parts if hasattr(layer, part))
    for child in (*getattr(layer, "layers", ()), *wrapped):
        unnamed = isinstance(child, Stateful) or (isinstance(layer, Stateful) and isinstance(child, keras.Model))
        yield from _inside(child, name if unnamed else f"{name}/{child.name}".lstrip("/"))


@contextlib.contextmanager
def record_calls(layers, method, scores=False):
    """While it lasts, every call of `method` of these layers is noted, in a list of (layer, args, kwargs, result).

    With `scores`, the result that is noted has the attention scores beside it, whether the caller asks for them or not.
    """
    calls = []

    def watch(layer):
        inner = getattr(layer, method)

        @functools.wraps(inner)
        def noted(*args, **kwargs):
            asked = kwargs | {"return_attention_scores": True} if scores else kwargs
            result = inner(*args, **asked)
            calls.append((layer, args, kwargs, result))
            return result if asked == kwargs or kwargs.get("return_attention_scores") else result[0]

        layer.__dict__[method] = noted  # past Keras, which tracks what is set on a layer

    for layer in layers:
        watch(layer)
    try:
        yield calls
    finally:
        for layer in layers:
            del layer.__dict__[method]
