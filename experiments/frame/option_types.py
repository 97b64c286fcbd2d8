"""Convert the words of a command line into the value of an option, by its type.

    int                 1_500_000, 1500k, 1.5M or 1.5e6
    Literal[...]        one of the choices
    tuple[int, ...]     any number of words
    int | None          an integer, or none
    CorpusNames         one name or path, as a str; or several, as a tuple

A wrong word is told in a sentence, with the nearest choice.
"""

import dataclasses
import fractions
import pathlib
import re
import types
import typing
from typing import Annotated, Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from experiments.frame.catalog import suggestion

RULES = ConstructorRegistry()
UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9}
INTEGER = re.compile(r"([-+]?\d[\d_]{0,60}(?:\.\d{1,60})?(?:[eE]\+?\d{1,2})?)([kKMB]?)", re.ASCII)


def to_integer(word: str) -> int:
    """Return the integer that a word such as 3e6, 3M, 150k or 1_000_000 stands for."""
    match = INTEGER.fullmatch(word)
    value = fractions.Fraction(match[1].replace("_", "")) * UNITS[match[2]] if match else None
    if value is None or value.denominator != 1:
        raise ValueError(f"{word}: expected an integer, such as 150000, 150k, 3M, 3e6 or 1_000_000")
    return int(value)


def to_float(word: str) -> float:
    """Return the number that a word stands for."""
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"{word}: expected a number, such as 0.003 or 3e-3") from None


def to_choice(word: str, choices: tuple[Any, ...]) -> Any:
    """Return the choice that is written like a word."""
    by_name = {str(choice): choice for choice in choices}
    if word not in by_name:
        raise ValueError(f"{word}: expected one of {', '.join(by_name)}{suggestion(word, by_name)}")
    return by_name[word]


def _words(nargs, metavar, from_words, to_words):
    return PrimitiveConstructorSpec(nargs, metavar, from_words, lambda value: True, to_words)


def _one_word(metavar, from_word):
    return _words(1, metavar, lambda words: from_word(words[0]), lambda value: [str(value)])


@RULES.primitive_rule
def _number_or_choice(info):
    choices = typing.get_args(info.type)
    if info.type_origin is typing.Literal:
        return _one_word("{" + ",".join(map(str, choices)) + "}", lambda word: to_choice(word, choices))
    return {int: _one_word("INT", to_integer), float: _one_word("FLOAT", to_float)}.get(info.type)


@RULES.primitive_rule
def _list(info):
    parts = typing.get_args(info.type)
    if info.type_origin is not tuple or parts[1:] != (...,) or tyro.conf.UseAppendAction in info.markers:
        return None
    spec = _spec(info, parts[0])
    return _words(
        "*",
        f"{spec.metavar} ...",
        lambda words: tuple(spec.instance_from_str([word]) for word in words),
        lambda values: [word for value in values for word in spec.str_from_instance(value)],
    )


@RULES.primitive_rule
def _optional(info):
    parts = typing.get_args(info.type)
    if info.type_origin not in (typing.Union, types.UnionType) or types.NoneType not in parts:
        return None
    [part] = [part for part in parts if part is not types.NoneType]
    spec, is_name = _spec(info, part), part in (str, pathlib.Path)  # a file may be called "none"

    def from_words(words):
        return None if words[0].lower() == "none" and not is_name else spec.instance_from_str(words)

    return dataclasses.replace(spec, instance_from_str=from_words)


def _spec(info, part):
    return ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(part, info.markers))


RunFolder = Annotated[
    pathlib.Path,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="RUN", help="Folder of a finished run, with model.keras and tokenizer.json."),
]
CorpusNames = Annotated[
    str | tuple[str, ...],
    _words(
        "*",
        "NAME_OR_PATH ...",
        lambda words: words[0] if len(words) == 1 else tuple(words),
        lambda names: [names] if isinstance(names, str) else [*names],
    ),
]
