"""Describe a family of pretrained models by two tables, each of which is read in both directions.

    Setting      keys of config.json                              <->  fields of a keras_seq config
    Tensor       a tensor of model.safetensors, in some layout    <->  one or several variables of the Keras model

`config_table.py` and `tensor_table.py` are the functions that read them; a family is one file beside them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a tensor lies in the file, compared with Keras's variable."""

    to_variable: Callable[[np.ndarray], np.ndarray]
    """From the tensor to the variable; a view, without a copy."""
    to_tensor: Callable[[np.ndarray], np.ndarray]
    """The inverse."""


AS_IT_IS = Layout(lambda a: a, lambda a: a)
TRANSPOSED = Layout(np.transpose, np.transpose)  # torch's Linear holds [out, in]
CONVOLUTION = Layout(lambda a: a[:, 0, ::-1].T, lambda a: a.T[:, None, ::-1])  # [E, 1, K]; ours looks k positions back


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor of the file and the variables that it holds, side by side along their last axis.

    `{n}` stands for the number of a layer. A tensor none of whose variables the model has is not expected in the file.
    """

    name: str
    variables: tuple[str, ...]
    layout: Layout | Callable[[Callable[[str], tuple[int, ...]]], Layout] = AS_IT_IS
    """The layout; or a function that returns it, given one from paths of variables to their shapes."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """Keys of config.json and the fields of a keras_seq config that say the same."""

    defaults: dict[str, Any]
    """The keys, with the values that transformers assumes where a key is missing."""
    read: Callable[[dict], dict]
    """From the values of all keys of the config, defaults included, to fields; it raises a ValueError that names a
    value it cannot express."""
    write: Callable[[Any], dict]
    """From a keras_seq config to keys."""
    fields: dict[str, str] = dataclasses.field(default_factory=dict)
    """Fields that errors of the config and the layers name, and the keys to name instead."""


@dataclasses.dataclass(frozen=True)
class Family:
    """A `model_type` of transformers."""

    model_type: str
    """Its name in config.json."""
    architectures: tuple[str, ...]
    """Classes of transformers that can be loaded; the first is assumed where config.json names none."""
    config: type
    """The dataclass of keras_seq that builds the model."""
    settings: tuple[Setting, ...]
    constants: dict[str, Any]
    """Keys that must have this value, also assumed where the key is missing."""
    ignored: frozenset[str]
    """Keys that do not change logits."""
    tensors: tuple[Tensor, ...]
    tied: dict[str, str]
    """Names of tensors that a file may repeat, and whose values they must have."""
    buffers: str
    """Regular expression of tensors that are not weights."""
    renames: tuple[tuple[str, str], ...]
    """Regular expressions and replacements, from other spellings of a tensor's name to the one of this table."""
    describe: Callable[[Any], Any]
    """From a Keras model to the config that builds it; it raises a ValueError for another model."""
    architecture_of: Callable[[Any], str]
    """From a Keras model to the class of transformers that computes the same."""
    eos_token_id: int | None = None
    """What transformers writes where no id ends a text, for any vocabulary."""
    base_prefix: str = ""
    """Beginning of the names that a class without a head, `...Model`, does not write."""
    build: Callable[..., Any] | None = None
    """`(config, vocabulary_size, dtype, architecture) -> models`, the first of which is the result; one model of
    `config.build_model` unless given."""


def same(key: str, field: str, default: Any) -> Setting:
    """Return a setting whose key and field have the same values.

    Args:
        key: The key of config.json.
        field: The field of the keras_seq config.
        default: What transformers assumes.
    """
    read, write = lambda values: {field: values[key]}, lambda config: {key: getattr(config, field)}
    return Setting({key: default}, read, write, {field: key})


def choice(key: str, field: str, default: str, options: dict[str, Any]) -> Setting:
    """Return a setting with few values, named differently.

    Args:
        key: The key of config.json.
        field: The field of the keras_seq config.
        default: What transformers assumes.
        options: From values of the key to values of the field; the first key of a value is written.
    """

    def read(values):
        value = values[key]
        if not isinstance(value, str) or value not in options:
            raise ValueError(f"{key}={value!r}; expected {' or '.join(map(repr, options))}")
        return {field: options[value]}

    written = {value: name for name, value in reversed(options.items())}
    return Setting({key: default}, read, lambda config: {key: written.get(getattr(config, field))}, {field: key})


def fixed(**fields: Any) -> Setting:
    """Return a setting of fields that this family always has.

    Args:
        **fields: The fields of the keras_seq config and their values.
    """
    return Setting({}, lambda values: fields, lambda config: {})


def dropouts(**defaults: float) -> Setting:
    """Return the setting of the field `dropout`, which transformers has in several places.

    Args:
        **defaults: The keys, with what transformers assumes.
    """

    def read(values):
        rates = {key: values[key] or 0.0 for key in defaults}
        if len({*rates.values()}) > 1:
            listed = ", ".join(f"{key}={rate}" for key, rate in rates.items())
            raise ValueError(f"{listed}; expected one rate for all, or pass dropout= to load")
        return {"dropout": next(iter(rates.values()))}

    return Setting(defaults, read, lambda config: dict.fromkeys(defaults, config.dropout))


def linear(name: str, path: str, layout: Layout = TRANSPOSED) -> tuple[Tensor, ...]:
    """Return the tensors of a dense layer.

    Args:
        name: Name of the tensors, without `.weight`.
        path: Path of the variables, without `/kernel`.
        layout: That of the matrix.
    """
    return Tensor(f"{name}.weight", (f"{path}/kernel",), layout), Tensor(f"{name}.bias", (f"{path}/bias",))


def normalization(name: str, path: str) -> tuple[Tensor, ...]:
    """Return the tensors of a layer or RMS normalization.

    Args:
        name: Name of the tensors, without `.weight`.
        path: Path of the variables, without `/gamma` or `/scale`.
    """
    return (
        Tensor(f"{name}.weight", (f"{path}/gamma",)),
        Tensor(f"{name}.weight", (f"{path}/scale",)),
        Tensor(f"{name}.bias", (f"{path}/beta",)),
    )
