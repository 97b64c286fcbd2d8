"""What every option has to be, whatever it means: of its own type, and a number or a name that can be used.

    whole numbers   below 2**31, seeds below 2**32 as NumPy has it
    numbers         what 32 bits hold, so neither NaN nor infinite
    budgets         of either kind, below 2**63

The command line knows the types already; the config.json that `--resume` reads may have been written by anyone.
"""

import dataclasses
import pathlib
import types
import typing

BUDGETS = ("tokens", "sweep_tokens", "characters", "compute")
NAMES = ("corpus", "log_dir", "resume", "run")  # of files, folders and corpora: an empty one is none
SMALL, LARGE, SEEDS, LARGEST_FLOAT = 2**31, 2**63, 2**32, 3.4e38


def check_options(settings, **least):
    """Refuses the first option that cannot be meant.

    Args:
        settings: a dataclass; the dataclasses in it are checked too.
        least: the smallest that numbers of it may be, by the names of their fields.

    Raises:
        ValueError: one sentence that names the option, its value and what was expected.
    """
    for path, name, kind, value in _options(settings):
        expected = _expected(kind, value, name)
        if expected is None and not path and value is not None and name in least and not value >= least[name]:
            expected = f"at least {least[name]}"
        if expected is not None:
            raise ValueError(f"{path or '--'}{name.replace('_', '-')} {_shown(value)}: expected {expected}.")


def _options(settings, path=""):
    """The path before the name, the name, the type and the value of each option."""
    for field in dataclasses.fields(settings):
        value, kind = getattr(settings, field.name), field.type
        inner = typing.get_args(kind)[0] if typing.get_origin(kind) is typing.Annotated else kind
        if dataclasses.is_dataclass(inner) and isinstance(value, inner):
            nameless = inner is not kind  # tyro.conf.arg(name="")
            yield from _options(value, path if nameless else f"{path or '--'}{field.name}.")
        else:
            yield path, field.name, inner, value


def _expected(kind, value, name):
    """What was expected where the value is no such thing, else None."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        [kind] = [part for part in parts if part is not types.NoneType]
        return None if value is None else _expected(kind, value, name)
    if origin is typing.Literal:
        return None if value in parts else f"one of {', '.join(map(str, parts))}"
    if origin is tuple:
        if not isinstance(value, tuple):
            return "a list"
        return next(filter(None, (_expected(parts[0], part, name) for part in value)), None)
    if kind is bool:
        return None if isinstance(value, bool) else "True or False"
    if kind is int:
        return _not_whole(value, name)
    if kind is float:
        end = LARGE if name in BUDGETS else LARGEST_FLOAT
        fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= end
        return None if fits else f"a number of at most {end:.2g}"
    if kind in (str, pathlib.Path):
        fits = isinstance(value, kind) and "\0" not in str(value) and (value != "" or name not in NAMES)
        if fits and not _is_utf8(str(value)):
            return "UTF-8; if it is, set PYTHONUTF8=1, for this locale has another encoding"
        return None if fits else "a name" if name in NAMES else "a text without the character U+0000"
    return None if isinstance(value, kind) else f"options of {kind.__name__}"


def _is_utf8(text):
    """Whether all bytes of the command line were decoded: those that were not are lone surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _not_whole(value, name):
    end = SEEDS if name == "seed" else LARGE if name in BUDGETS else SMALL
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and (0 if name == "seed" else -end) <= value < end:
        return None
    return f"a whole number from 0 to {end - 1}" if name == "seed" else f"a whole number of at most {end - 1}"


def _shown(value):
    text = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return repr(text) if not text.strip() or "\0" in text else text if len(text) <= 80 else f"{text[:77]}..."
