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
    kinds = type(instance).__mro__
    kinds = [kind for kind in kinds[: kinds.index(base)] if "__init__" in vars(kind) and "get_config" not in vars(kind)]
    return own_arguments(instance, *reversed(kinds))


def own_arguments(instance, *kinds: type) -> dict:
    """Return the arguments of the constructors of these classes, which are attributes, as JSON can hold them."""
    config = {}
    for name in _argument_names(kinds):
        if not hasattr(instance, name):
            raise NotImplementedError(
                f"{type(instance).__name__} has no attribute {name}, which its config needs; expected to keep the "
                f"argument, self.{name} = {name}, or a get_config of its own."
            )
        config[name] = _serialized(name, getattr(instance, name))
    return config


@functools.cache
def _argument_names(kinds):
    names = {}
    for kind in kinds:
        names |= inspect.signature(kind.__init__).parameters
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [name for name, one in names.items() if name != "self" and one.kind not in variadic]


def _serialized(name, value):
    if isinstance(value, PLAIN):
        return value
    if name.endswith("activation"):  # a name for those of Keras, where other functions give a dict
        return keras.activations.serialize(value)
    return keras.saving.serialize_keras_object(value)


def deserialized(config: dict, *names: str) -> dict:
    """Return a config with the objects, or lists of them, that its values of these names describe."""

    def objects(value):
        deserialize = keras.saving.deserialize_keras_object
        return [deserialize(part) for part in value] if isinstance(value, list | tuple) else deserialize(value)

    return {**config, **{name: objects(config[name]) for name in names if name in config}}


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
