"""All command lines with their configs, and invalid values for each option by its type."""

import dataclasses
import importlib
import pathlib
import types
import typing
from unittest import mock

from experiments.common.catalog import load_main, scripts
from experiments.common.command import Machine
from keras_seq.commands import COMMANDS


class _ConfigClass(BaseException):
    """Carries the config class that a main passes to the command line."""


def _config_class(main):
    def cli(config_class, **_):
        if config_class is Machine:  # the options of a process are read first
            return Machine()
        raise _ConfigClass(config_class)

    with mock.patch("tyro.cli", cli):
        try:
            main([])
        except _ConfigClass as error:
            return error.args[0]
    raise AssertionError(f"{main.__module__} has a command line without a config.")


def find_programs():
    """Return the main and the config class of each experiment and each command of keras-seq, by its name."""
    mains = {name: load_main(name) for name in scripts()}
    mains |= {name: importlib.import_module(f"keras_seq.commands.{name}").main for name in COMMANDS}
    return {name: (main, _config_class(main)) for name, main in mains.items()}


PROGRAMS = find_programs()
REQUIRED = {  # options without a default
    "export": {"runs": ("RUN",)},
    "generate": {"run": "RUN"},
    "inspect": {"run": "RUN"},
    "prepare": {"inputs": ("TEXTS",), "to": "IDS"},
    "report": {"runs": ("RUN",)},
    "score": {"run": "RUN", "text": "a"},
    "train": {"texts": ("TEXT",)},
}
NAMED = ("text", "to")  # the others are positional
MAY_BE_EMPTY = {"inputs", "texts", "cases", "prompt", "text", "stop_strings", "choices", "individual", "full_size"}
MAY_BE_EMPTY |= {"modules_to_save", "lengths", "learning_rates", "parts"}


def required_arguments(name):
    """Return the arguments of a program's required options."""
    arguments = []
    for option, value in REQUIRED.get(name, {}).items():
        values = value if isinstance(value, tuple) else (value,)
        arguments += [f"--{option}={value}"] if option in NAMED else values
    return arguments


def default_config(name):
    """Return the config of a program with its defaults."""
    config_class, required = PROGRAMS[name][1], REQUIRED.get(name, {})
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    types = {k: typing.get_args(fields[k].type)[:1] for k in required}
    return config_class(**{k: pathlib.Path(v) if types[k] == (pathlib.Path,) else v for k, v in required.items()})


def bad(kind, name):
    """Return values of an option of this type and name that are out of its range."""
    kind = _inner(kind)
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return bad(next(part for part in parts if part is not types.NoneType), name)
    if origin is typing.Literal:
        return ["unknown"]
    if origin is tuple:
        several = [(value,) for value in bad(parts[0], name)]
        return [*several, *([] if name in MAY_BE_EMPTY else [()])]
    empty = [] if name in MAY_BE_EMPTY else [""]
    return {
        int: [-1, 2**63, 10**30],
        float: [float("nan"), float("inf"), -1.0, 1e300],
        bool: [],
        str: [*empty, "\0"],
        pathlib.Path: [pathlib.Path("a\0b")],
    }[kind]


def _inner(kind):
    return typing.get_args(kind)[0] if typing.get_origin(kind) is typing.Annotated else kind


def options(kind):
    """Return name and type of the fields of a config class that are not dataclasses."""
    return [(f.name, f.type) for f in dataclasses.fields(kind) if not dataclasses.is_dataclass(_inner(f.type))]


def groups(config):
    """Return name and value of the fields of a config that are dataclasses, such as `train`."""
    return [
        (f.name, getattr(config, f.name))
        for f in dataclasses.fields(config)
        if dataclasses.is_dataclass(_inner(f.type))
    ]


def to_arguments(name, value):
    """Return the command-line arguments of an option."""
    values = map(str, value) if isinstance(value, tuple) else [str(value)]
    return [f"--{name.replace('_', '-')}", *values]
