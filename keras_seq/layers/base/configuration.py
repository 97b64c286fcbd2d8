"""Describe layers: the constructor's arguments for a config, and what a call returns for symbolic inputs."""

import contextlib
import functools
import inspect

import keras

from keras_seq.ops import tensor_checks

PLAIN = (bool, int, float, str, type(None))  # what JSON holds as it is


def constructor_arguments(instance, base: type) -> dict:
    """Return the arguments of the constructors of a class and of those between it and `base`, as JSON can hold them.

    A class with a `get_config` of its own adds its arguments itself.
    """
    config = {}
    for name in _argument_names(type(instance), base):
        if not hasattr(instance, name):
            raise NotImplementedError(
                f"{type(instance).__name__} has no attribute {name}, which its config needs; expected to keep the "
                f"argument, self.{name} = {name}, or a get_config of its own."
            )
        config[name] = _serialized(name, getattr(instance, name))
    return config


@functools.cache
def _argument_names(kind, base):
    names = {}
    for parent in reversed(kind.__mro__[: kind.__mro__.index(base)]):
        if "__init__" in vars(parent) and "get_config" not in vars(parent):
            names |= inspect.signature(parent.__init__).parameters
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [name for name, one in names.items() if name != "self" and one.kind not in variadic]


def _serialized(name, value):
    if isinstance(value, PLAIN):
        return value
    if name.endswith("activation"):  # a name for those of Keras, where other functions give a dict
        return keras.activations.serialize(value)
    return keras.saving.serialize_keras_object(value)


class Initializer(keras.initializers.Initializer):
    """Base class of initializers, which keep their arguments as attributes."""

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {**super().get_config(), **constructor_arguments(self, Initializer)}


MASKS = ("mask", "inputs_mask")


def output_spec(layer, inputs, *args, **kwargs):
    """Return the shapes and dtypes of `layer(inputs, *args, **kwargs)`, for a layer of one output in its compute dtype.

    Known without a trace is the output for a sequence of at least one position, alone or with a boolean mask `[B, T]`,
    of a layer with `compute_output_shape`.
    """
    tensor_checks.dense("inputs", inputs)
    given = {name for name, value in kwargs.items() if value is not None and value is not False}
    masks = [kwargs[name] for name in given.intersection(MASKS)]
    fits = all(mask.dtype == "bool" and tuple(mask.shape) == tuple(inputs.shape[:2]) for mask in masks)
    if not args and given <= {*MASKS, "training"} and fits and 0 not in inputs.shape[1:2]:
        with contextlib.suppress(NotImplementedError):  # a user's layer needs no compute_output_shape
            shape = layer.compute_output_shape(inputs.shape)
            if not any(isinstance(size, tuple) for size in shape):  # one tensor
                return keras.KerasTensor(shape, dtype=layer.compute_dtype)
    return keras.Operation.compute_output_spec(layer, inputs, *args, **kwargs)
