"""Type and range checks that apply to every option.

    integers   below 2**31; seeds below 2**32, as in NumPy
    floats     finite, and in the range of float32
    budgets    integers or floats below 2**63

The command line checks the types already; the config.json read by `--resume` may have been edited.
"""

import dataclasses
import pathlib
import re
import types
import typing
from collections.abc import Sequence
from typing import Any

from experiments.frame.option_help import groups_not_chosen

BUDGETS = ("tokens", "base_tokens", "sweep_tokens", "characters", "compute")
NAMES = (
    "corpus",
    "base_corpus",
    "log_dir",
    "resume",
    "run",
    "inputs",
    "field",
    "trainable",
)  # of files, folders and corpora; may not be empty
MAX_INT32, MAX_INT64, MAX_SEED, MAX_FLOAT32 = 2**31, 2**63, 2**32, 3.4e38


def check_options(config: Any, **minimum: float):
    """Check the types and ranges of all options of a dataclass and of those in it, and `minimum` values by name."""
    for path, name, option_type, value in _options(config):
        expected = _type_error(option_type, value, name)
        if expected is None and not path and value is not None and name in minimum and not value >= minimum[name]:
            expected = f"at least {minimum[name]}"
        if expected is not None:
            text = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
            text = repr(text) if not text.strip() or "\0" in text else text if len(text) <= 80 else f"{text[:77]}..."
            raise ValueError(f"{path or '--'}{name.replace('_', '-')} {text}: expected {expected}.")


def check_effects(config: Any, arguments: Sequence[str]):
    """Check that the options of a command line have an effect beside each other.

    Args:
        config: What it was parsed into. Its `options_without_effect()`, if there is one, returns what each of some
            options, by its field, would need.
        arguments: The words.

    Raises:
        ValueError: An option has none: it is that of a model that is not chosen, or needs another option.
    """
    unused = {group: f"{group} among the chosen" for group in groups_not_chosen(config, ())}
    unused |= config.options_without_effect() if hasattr(config, "options_without_effect") else {}
    for word in arguments:
        option = word.partition("=")[0]
        name = option[2:].replace("-", "_").removeprefix("no_")
        for field in (name, name.partition(".")[0]):
            if option.startswith("--") and field in unused:
                raise ValueError(f"{option}: it has no effect here; expected {unused[field]} with it.")


def _options(config, path=""):
    """Yield the path before the name, the name, the type and the value of each option."""
    for field in dataclasses.fields(config):
        value, is_annotated = getattr(config, field.name), typing.get_origin(field.type) is typing.Annotated
        option_type = typing.get_args(field.type)[0] if is_annotated else field.type
        if dataclasses.is_dataclass(option_type) and isinstance(value, option_type):  # annotated: arg(name="")
            yield from _options(value, path if is_annotated else f"{path or '--'}{field.name}.")
        else:
            yield path, field.name, option_type, value


def _type_error(option_type, value, name):
    """Return what was expected if the value is not of the type, else None."""
    origin, parts = typing.get_origin(option_type), typing.get_args(option_type)
    if origin in (typing.Union, types.UnionType):
        if value is None and types.NoneType in parts:
            return None
        errors = [_type_error(part, value, name) for part in parts if part is not types.NoneType]
        return None if None in errors else errors[0]
    if origin is typing.Literal:
        return None if value in parts else f"one of {', '.join(map(str, parts))}"
    if origin is tuple:
        if not isinstance(value, tuple):
            return "a list"
        return next(filter(None, (_type_error(parts[0], part, name) for part in value)), None)
    if option_type is bool:
        return None if isinstance(value, bool) else "True or False"
    if option_type is int:
        limit = MAX_SEED if name == "seed" else MAX_INT64 if name in BUDGETS else MAX_INT32
        is_valid = isinstance(value, int) and not isinstance(value, bool) and value < limit
        is_valid = is_valid and value >= (0 if name == "seed" else -limit)
        return None if is_valid else f"an integer {'from 0 to' if name == 'seed' else 'of at most'} {limit - 1}"
    if option_type is float:
        limit = MAX_INT64 if name in BUDGETS else MAX_FLOAT32
        is_valid = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= limit
        return None if is_valid else f"a number of at most {limit:.2g}"
    if option_type in (str, pathlib.Path):
        is_valid = isinstance(value, option_type) and "\0" not in str(value) and (value != "" or name not in NAMES)
        if is_valid and re.search(r"[\ud800-\udfff]", str(value)):  # stand for bytes that could not be decoded
            return "UTF-8; if the text is UTF-8, set PYTHONUTF8=1, since this locale has another encoding"
        return None if is_valid else "a name" if name in NAMES else "a text without the character U+0000"
    return None if isinstance(value, option_type) else f"options of {option_type.__name__}"
