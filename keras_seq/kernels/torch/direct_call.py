"""Call a layer inside of another without Keras's checks, which take longer than a small layer computes on torch.

Compiled backends pay for these checks once, torch at every call.
"""

import functools
import inspect

import keras
import torch


def supports(layer, args, kwargs) -> bool:
    """Return whether nothing that Keras's call does would have an effect.

    Args:
        layer: A layer whose `call` casts its weights to the dtype of the input.
        args: Positional arguments of the call.
        kwargs: Keyword arguments of the call.
    """
    return (
        len(args) == 1
        and isinstance(args[0], torch.Tensor)
        and all(value is None or isinstance(value, bool) for value in kwargs.values())
        and _knows_training(type(layer).call, kwargs)
        and layer.built
        and keras.backend.standardize_dtype(args[0].dtype) == layer.compute_dtype
        and _weights_have_their_dtype(layer)
        and not hasattr(args[0], "_keras_mask")
        and _has_the_shape(layer.input_spec, args[0])
        and layer.activity_regularizer is None
        and layer.quantization_mode is None
        and not (layer._forward_hooks or layer._forward_pre_hooks)
    )


def _has_the_shape(spec, x):
    """Return whether Keras's call, which refuses other inputs, would take a tensor."""
    return x.layout is torch.strided and (
        spec is None or (x.shape[-1] == spec.axes.get(-1) and spec.ndim in (None, x.ndim))
    )


def _weights_have_their_dtype(layer):
    """Return whether the autocast of the layers around this one leaves its weights as it would set them itself."""
    if layer.float_weight is None:
        return True
    dtype = keras.backend.standardize_dtype(getattr(layer, layer.float_weight).dtype)
    return dtype == layer.variable_dtype or (layer.autocast and dtype == layer.compute_dtype)


def _knows_training(call, kwargs):
    """Return whether `training`, which Keras would look up in the calls around this one, is given if it is needed."""
    parameters = _parameters(call)
    return parameters >= kwargs.keys() and ("training" not in parameters or kwargs.get("training") is not None)


@functools.cache
def _parameters(call):
    return inspect.signature(call).parameters.keys()


def apply(layer, args, kwargs):
    """Call the layer.

    Args:
        layer: The layer.
        args: Positional arguments of the call.
        kwargs: Keyword arguments of the call.

    Returns:
        What `call` returns.
    """
    return layer.call(*args, **kwargs)
