"""The text of --help: as wide as the terminal, and only with the options of the models that are chosen.

A group of options, such as `lstm`, is left out if it is one of the choices of another option, such as `--models`, and
not chosen there; `--help --models mamba` shows that model's options, and `--help-all` those of all.
"""

import ast
import dataclasses
import inspect
import itertools
import shutil
import textwrap
import typing
from collections.abc import Sequence
from typing import Annotated, Any

import tyro


def print_help(config: Any, description: str, arguments: Sequence[str], further: type | None = None, **options: Any):
    """Print the help of a command line and exit.

    `config` is a dataclass, or an instance with other defaults, and `further` one whose options are listed with its.
    """
    hidden = set() if "--help-all" in arguments else groups_not_chosen(config, arguments)
    print(wrapped(description), end="\n\n")
    try:
        fields = _for_help(config, hidden)
        if further is not None:
            bases, documented = (fields, _for_help(further)), {"__doc__": fields.__doc__}
            fields = dataclasses.make_dataclass(fields.__name__, [], bases=bases, namespace=documented)
        tyro.cli(fields, args=["--help"], description="", **options)
    finally:
        if hidden:
            print(wrapped(f"--help-all also lists the options of {', '.join(sorted(hidden))}."))


def wrapped(text: str) -> str:
    """Return a docstring with paragraphs as wide as the terminal, at most 120 columns, and indented lines unchanged."""
    width = min(shutil.get_terminal_size().columns, 120)
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(p if p.startswith(" ") else textwrap.fill(p, width, break_on_hyphens=False) for p in paragraphs)


def groups_not_chosen(config: Any, arguments: Sequence[str]) -> set[str]:
    """Return the groups of options, such as those of a model, that the chosen values of others leave out."""
    fields = {field.name: field for field in dataclasses.fields(config)}
    hidden = set()
    for field in fields.values():
        if groups := fields.keys() & {*_choices(field.type)}:
            default = _default(config, field)
            chosen = {default} if isinstance(default, str) else {*default}
            hidden |= groups - (groups & {*arguments} or chosen)
    return hidden


def _choices(kind):
    """Return the choices of a Literal, or of a tuple of them."""
    parts = typing.get_args(kind)
    return parts if typing.get_origin(kind) is typing.Literal else [c for part in parts[:1] for c in _choices(part)]


def _default(config, field):
    """Return the value of a field in an instance, or its default in a class."""
    if not isinstance(config, type):
        return getattr(config, field.name)
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _for_help(config, hidden=()):
    """Return a dataclass with the options, whose texts tyro wraps without Python's words and line breaks."""
    config_class = config if isinstance(config, type) else type(config)
    texts, fields = _texts(config_class), []
    for field in dataclasses.fields(config):
        kind, *notes = typing.get_args(field.type) if typing.get_origin(field.type) is Annotated else (field.type,)
        default = _default(config, field)
        if dataclasses.is_dataclass(kind):
            kind = _for_help(default)
            field_with_default = dataclasses.field(default_factory=kind)
        else:
            name = next((note for note in notes if hasattr(note, "help_behavior_hint")), tyro.conf.arg())
            notes = [note for note in notes if note is not name]
            notes.append(dataclasses.replace(name, help=texts.get(field.name, name.help), help_behavior_hint=_hint))
            field_with_default = dataclasses.field(default=default)
        notes += [tyro.conf.Suppress] if field.name in hidden else []
        fields.append((field.name, Annotated[(kind, *notes)] if notes else kind, field_with_default))
    first_paragraph = " ".join(inspect.getdoc(config_class).split("\n\n")[0].split())
    return dataclasses.make_dataclass(config_class.__name__, fields, namespace={"__doc__": first_paragraph})


def _hint(default):
    return "" if default in ("None", "False", "''", "") else f"(default: {default})"


def _texts(config_class):
    """Return the docstrings of the fields of a dataclass, by name."""
    texts = {}
    for base in filter(dataclasses.is_dataclass, reversed(config_class.__mro__)):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body
        for field, text in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                texts[field.target.id] = " ".join(ast.literal_eval(text.value).split())
    return texts
