"""Describe an object by its constructor's arguments, each of which it keeps as an attribute of the same name."""

import functools
import inspect

import keras

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
