"""Every experiment that has a command line, its settings, and bad values for each of their fields by its type."""

import dataclasses
import importlib
import pathlib
import pkgutil
import types
import typing
from unittest import mock

import experiments


class _Asked(BaseException):
    """Carries the settings class that a main asks the command line for."""


def _settings_of(main):
    def cli(settings, **_):
        raise _Asked(settings)

    with mock.patch("tyro.cli", cli):
        try:
            main([])
        except _Asked as asked:
            return asked.args[0]
    raise AssertionError(f"{main.__module__} has a command line without settings.")


def found():
    """From the name of an experiment to its main and its settings class."""
    names = [module.name for module in pkgutil.iter_modules(experiments.__path__)]
    folder = pathlib.Path(experiments.__file__).parent
    scripts = [name for name in names if "@one_sentence(" in (folder / f"{name}.py").read_text(encoding="utf-8")]
    mains = {name: importlib.import_module(f"experiments.{name}").main for name in scripts}
    return {name: (main, _settings_of(main)) for name, main in mains.items()}


EXPERIMENTS = found()
REQUIRED = {  # what a command line cannot do without
    "export": {"run": "RUN"},
    "generate": {"run": "RUN"},
    "inspect": {"run": "RUN"},
    "score": {"run": "RUN", "text": "a"},
}
EMPTY_IS_MEANT = {"rows", "prompt", "text", "stop", "alone", "full"}  # options for which nothing is something


def settings(name):
    """The defaults of an experiment."""
    kind, required = EXPERIMENTS[name][1], REQUIRED.get(name, {})
    fields = {field.name: field for field in dataclasses.fields(kind)}
    types = {k: typing.get_args(fields[k].type)[:1] for k in required}
    return kind(**{k: pathlib.Path(v) if types[k] == (pathlib.Path,) else v for k, v in required.items()})


def bad(kind, name):
    """Values that an option of this type and name cannot have: those of the type, then those of another."""
    kind = _inner(kind)
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return bad(next(part for part in parts if part is not types.NoneType), name)
    if origin is typing.Literal:
        return ["unknown", 7]
    if origin is tuple:
        several = [(value,) for value in bad(parts[0], name)]
        return [*several, *([] if name in EMPTY_IS_MEANT else [()]), 7]
    empty = [] if name in EMPTY_IS_MEANT else [""]
    return {
        int: [-1, 2**63, 10**30, "x", 1.5, True],
        float: [float("nan"), float("inf"), -1.0, 1e300, "x", True],
        bool: [1, "yes"],
        str: [*empty, "\0", 7],
        pathlib.Path: [pathlib.Path("a\0b"), 7],
    }[kind]


def _inner(kind):
    return typing.get_args(kind)[0] if typing.get_origin(kind) is typing.Annotated else kind


def options(kind):
    """The fields of a settings class that are no dataclasses themselves: name and type."""
    return [(f.name, f.type) for f in dataclasses.fields(kind) if not dataclasses.is_dataclass(_inner(f.type))]


def groups(given):
    """The fields of settings that are dataclasses, such as `train`: name and value."""
    return [
        (f.name, getattr(given, f.name)) for f in dataclasses.fields(given) if dataclasses.is_dataclass(_inner(f.type))
    ]


def written(name, value):
    """An option as the command line has it."""
    values = map(str, value) if isinstance(value, tuple) else [str(value)]
    return [f"--{name.replace('_', '-')}", *values]
