"""Record the calls of a layer's method, as a forward hook does, without changing the layer."""

import contextlib
import functools
from collections.abc import Iterable

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
