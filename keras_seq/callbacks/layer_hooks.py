"""Name the layers inside a model, and record the arguments and outputs of their methods during a call."""

import contextlib
import functools
from collections.abc import Iterable, Iterator

import keras

from keras_seq.layers import Stateful, TransformerBlock


def named_layers(layer: keras.layers.Layer, name: str = "") -> Iterator[tuple[str, keras.layers.Layer]]:
    """Yield the name and object of a layer and of all layers inside it, each once, such as block_0/mingru.

    `Stateful` and the model in it add nothing to the names, so that layers are called the same with and without it. The
    self-attention of a `TransformerBlock` has the block's name.

    Args:
        layer: Layer or model.
        name: Its name; inner layers have it as a prefix.
    """
    seen = set()
    for path, inner in _walk(layer, name):
        if id(inner) not in seen:
            seen.add(id(inner))
            yield path, inner


def _walk(layer, name):
    yield name, layer
    if isinstance(layer, TransformerBlock):
        yield name, layer.self_attention_layer
        if layer.cross_attention:
            yield f"{name}/cross_attention", layer.cross_attention_layer
    attributes = ("layer", "forward_layer", "backward_layer")
    wrapped = (getattr(layer, attribute) for attribute in attributes if hasattr(layer, attribute))
    for child in (*getattr(layer, "layers", ()), *wrapped):
        unnamed = isinstance(child, Stateful) or (isinstance(layer, Stateful) and isinstance(child, keras.Model))
        yield from _walk(child, name if unnamed else f"{name}/{child.name}".lstrip("/"))


@contextlib.contextmanager
def record_calls(layers: Iterable[keras.layers.Layer], method: str, scores: bool = False):
    """Record every call of a method of some layers inside a `with` block.

    Args:
        layers: The layers.
        method: Name of the method.
        scores: Whether to record the attention scores with the output, whether the caller requests them or not.

    Yields:
        The list that calls are appended to, as (layer, args, kwargs, output).
    """
    layers, calls = list(layers), []

    def hook(layer):
        original = getattr(layer, method)

        @functools.wraps(original)
        def recording(*args, **kwargs):
            call_kwargs = kwargs | {"return_attention_scores": True} if scores else kwargs
            output = original(*args, **call_kwargs)
            calls.append((layer, args, kwargs, output))
            return output if call_kwargs == kwargs or kwargs.get("return_attention_scores") else output[0]

        layer.__dict__[method] = recording  # bypasses Keras's tracking of attributes

    for layer in layers:
        hook(layer)
    try:
        yield calls
    finally:
        for layer in layers:
            del layer.__dict__[method]
