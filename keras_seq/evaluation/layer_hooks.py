"""Record the calls of layers or edit their outputs, as forward hooks do, without changing the layers."""

import contextlib
import functools
from collections.abc import Callable, Iterable

import keras


@contextlib.contextmanager
def record_calls(layers: Iterable[keras.layers.Layer], method: str, scores: bool = False):
    """Record every call of a method of some layers inside a `with` block.

    Args:
        layers: The layers.
        method: Name of the method.
        scores: Whether to record the attention scores with the output, even where the caller does not ask for them.

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


def ensure_built(model: keras.Model, x) -> None:
    """Call a model that is not built: its first call also traces its layers, and would record symbolic calls of them.

    Args:
        model: A Keras model.
        x: A batch of its inputs.
    """
    if not model.built:
        model(x, training=False)


@contextlib.contextmanager
def edit_outputs(layers: Iterable[keras.layers.Layer], edit: Callable):
    """Replace the output of each layer's first call inside a `with` block.

    Args:
        layers: The layers.
        edit: A function `edit(layer, output)` that returns the output to go on with.

    Yields:
        The set that layers are added to when they are called.
    """
    layers, called = list(layers), set()

    def hook(layer):
        original = layer.call

        @functools.wraps(original)
        def edited(*args, **kwargs):
            output = original(*args, **kwargs)
            if layer in called:
                return output
            called.add(layer)
            return edit(layer, output)

        layer.__dict__["call"] = edited

    for layer in layers:
        hook(layer)
    try:
        yield called
    finally:
        for layer in layers:
            del layer.__dict__["call"]
