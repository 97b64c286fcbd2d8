"""Record the calls of a layer's method, as a forward hook does, without changing the layer."""

import contextlib
import functools


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
