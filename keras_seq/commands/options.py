"""Command lines: a frozen dataclass is parsed by tyro, and its values are checked.

    int          1_500_000, 1500k, 1.5M or 1.5e6
    --help       lists the options of the chosen models; --help-all those of all

A group of options, such as `lstm`, belongs to a choice of another option, such as `--models`.
"""

import dataclasses
import fractions
import pathlib
import re
import sys
import typing
from collections.abc import Sequence
from typing import Annotated, Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec

from keras_seq.models import LANGUAGE_MODELS, MODELS

RULES = ConstructorRegistry()
UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9}
INTEGER = re.compile(r"([-+]?\d[\d_]{0,60}(?:\.\d{1,60})?(?:[eE]\+?\d{1,2})?)([kKMB]?)", re.ASCII)

# fields whose integers and floats may be larger than 32 bits, and whose texts may not be empty
BUDGETS = ("tokens", "base_tokens", "sweep_tokens", "characters", "compute")
FOLDERS = ("base", "log_dir", "resume", "run")
NAMES = (*FOLDERS, "corpus", "texts", "base_corpus", "against", "inputs", "field", "trainable")
MAX_INT32, MAX_INT64, MAX_SEED, MAX_FLOAT32 = 2**31, 2**63, 2**32, 3.4e38

CorpusName = Annotated[
    str | tuple[str, ...],
    tyro.conf.arg(
        metavar="NAME_OR_PATH ...",
        help="Training text: docstrings, pydoc or source (included in Python), shakespeare (downloaded once, or read "
        "from the folder KERAS_SEQ_DATA), or UTF-8 files, folders of *.txt files, and patterns, which are joined; or "
        "folders of keras-seq prepare, also with weights, as in 0.7:FOLDER 0.3:FOLDER.",
    ),
]
RunFolder = Annotated[
    pathlib.Path,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="RUN", help="Folder of a finished run, with model.keras and tokenizer.json."),
]
BatchSize = Annotated[int, tyro.conf.arg(help="Batch size B, in windows.")]
SequenceLength = Annotated[int, tyro.conf.arg(help="Sequence length T of the windows, in tokens.")]
Seed = Annotated[int, tyro.conf.arg(help="Random seed of the weights, batches and dropout.")]
LogDir = Annotated[str, tyro.conf.arg(help="Folder of the runs: LOG_DIR/EXPERIMENT/UTC-TIME-CORPUS/.")]
Resume = Annotated[
    str | None,
    tyro.conf.arg(
        help="Folder LOG_DIR/EXPERIMENT/UTC-TIME-CORPUS to resume. Options not given are read from its config.json."
    ),
]
Smoke = Annotated[
    bool,
    tyro.conf.FlagCreatePairsOff,
    tyro.conf.arg(help="Test that everything works: tiny sizes, but for those given."),
]
SMOKE_TRAIN = {"warmup_steps": 4, "log_every": 5, "validate_every": 10, "checkpoint_every": 10}


def to_integer(word: str) -> int:
    """Return the integer that a word such as 3e6, 3M, 150k or 1_000_000 stands for."""
    match = INTEGER.fullmatch(word)
    value = fractions.Fraction(match[1].replace("_", "")) * UNITS[match[2]] if match else None
    if value is None or value.denominator != 1:
        raise ValueError(f"{word}: expected an integer, such as 150000, 150k, 3M, 3e6 or 1_000_000")
    return int(value)


@RULES.primitive_rule
def _integer(info):
    def is_integer(value):
        return isinstance(value, int) and not isinstance(value, bool)

    if info.type is not int:
        return None
    return PrimitiveConstructorSpec(1, "INT", lambda words: to_integer(words[0]), is_integer, lambda n: [str(n)])


def with_models(config_class: type) -> type:
    """Add a field for each language model: the options of its config, such as --lstm.units."""
    for name in LANGUAGE_MODELS:
        config_class.__annotations__[name] = MODELS[name]
        setattr(config_class, name, dataclasses.field(default_factory=MODELS[name]))
    return config_class


def command_line(
    config_class: type,
    script: str,
    description: str,
    arguments: Sequence[str] | None = None,
    defaults: Any = None,
    further: type | None = None,
) -> Any:
    """Parse a command line into a dataclass whose fields are the options, or exit with status 2.

    `description` is what --help begins with, `defaults` an instance for the options that are not given, `further` a
    dataclass whose options --help lists too.
    """
    arguments = sys.argv[1:] if arguments is None else [*arguments]
    if {"-h", "--help", "--help-all"} & {*arguments}:
        hidden = set() if "--help-all" in arguments else groups_not_chosen(config_class, arguments)
        if hidden:
            description += f"\n\n--help-all also lists the options of {', '.join(sorted(hidden))}."
        config_class, arguments, defaults = _for_help(config_class, hidden, further), ["--help"], None
    options = {} if defaults is None else {"default": defaults}
    return tyro.cli(
        config_class,
        prog=script if script.startswith("keras-seq") else f"python -m {script}",
        description=description,
        args=arguments,
        registry=RULES,
        **options,
    )


def _for_help(config_class, hidden, further):
    """Return a dataclass without the options of some groups, and with those of a further dataclass."""
    fields = []
    for field in dataclasses.fields(config_class):
        if field.name in hidden:
            default = dataclasses.field(default=field.default, default_factory=field.default_factory)
            fields.append((field.name, Annotated[field.type, tyro.conf.Suppress], default))
    bases = (config_class, *([] if further is None else [further]))
    return dataclasses.make_dataclass(config_class.__name__, fields, bases=bases, frozen=True)


def groups_not_chosen(config: Any, arguments: Sequence[str] = ()) -> set[str]:
    """Return the groups of options, such as those of a model, that the chosen values of others leave out."""
    fields = {field.name: field for field in dataclasses.fields(config)}
    hidden = set()
    for name, field in fields.items():
        groups = {n for n in fields.keys() & {*_choices(field.type)} if dataclasses.is_dataclass(fields[n].type)}
        if groups:
            chosen = field.default if isinstance(config, type) else getattr(config, name)
            chosen = {chosen} if isinstance(chosen, str) else {*chosen}
            hidden |= groups - (groups & {*arguments} or chosen)
    return hidden


def _choices(kind):
    """Return the choices of a Literal, or of a tuple of them."""
    parts = typing.get_args(kind)
    return parts if typing.get_origin(kind) is typing.Literal else [c for part in parts[:1] for c in _choices(part)]


def check_effects(config: Any, arguments: Sequence[str]):
    """Raise a ValueError if an option is that of a model that is not chosen, or needs another option.

    `config.options_without_effect()`, if there is one, returns what each of some options, by its field, would need.
    """
    unused = {group: f"{group} among the chosen" for group in groups_not_chosen(config)}
    unused |= config.options_without_effect() if hasattr(config, "options_without_effect") else {}
    for word in arguments:
        option = word.partition("=")[0]
        name = option[2:].replace("-", "_").removeprefix("no_")
        for field in (name, name.partition(".")[0]):
            if option.startswith("--") and field in unused:
                raise ValueError(f"{option}: it has no effect here; expected {unused[field]} with it.")


def check_options(config: Any, **minimum: float):
    """Check the ranges of all options of a dataclass and of those in it, and `minimum` values by name."""
    for option, value, choices in _options(config):
        name = option.rpartition(".")[2].removeprefix("--").replace("-", "_")
        expected = _expected(name, value)
        if choices and value is not None and not {*choices}.issuperset(value if isinstance(value, tuple) else [value]):
            expected = f"one of {', '.join(map(str, choices))}"
        if expected is None and "." not in option and value is not None and value < minimum.get(name, value):
            expected = f"at least {minimum[name]}"
        if expected is not None:
            text = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
            text = repr(text) if not text.strip() or "\0" in text else text if len(text) <= 80 else f"{text[:77]}..."
            raise ValueError(f"{option} {text}: expected {expected}.")


def _options(config, group=""):
    """Yield the name, the value and the choices of each option."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if not dataclasses.is_dataclass(value):
            yield f"--{group}{field.name.replace('_', '-')}", value, _choices(field.type)
        elif typing.get_origin(field.type) is Annotated:  # arg(name="") leaves the group out
            yield from _options(value, group)
        else:
            yield from _options(value, f"{group}{field.name.replace('_', '-')}.")


def _expected(name, value):
    """Return what was expected if a value is out of its range, else None."""
    if isinstance(value, tuple):
        return next(filter(None, (_expected(name, part) for part in value)), None)
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        limit = MAX_SEED if name == "seed" else MAX_INT64 if name in BUDGETS else MAX_INT32
        lowest = 0 if name == "seed" else -limit
        words = "from 0 to" if name == "seed" else "of at most"
        return None if lowest <= value < limit else f"an integer {words} {limit - 1}"
    if isinstance(value, float):
        limit = MAX_INT64 if name in BUDGETS else MAX_FLOAT32
        return None if abs(value) <= limit else f"a number of at most {limit:.2g}"
    if re.search(r"[\ud800-\udfff]", str(value)):  # stand for bytes that could not be decoded
        return "UTF-8; if the text is UTF-8, set PYTHONUTF8=1, since this locale has another encoding"
    if "\0" in str(value) or (value == "" and name in NAMES):
        return "a name" if name in NAMES else "a text without the character U+0000"
    return None


def replaced(settings: Any, changes: dict) -> Any:
    """Return a dataclass with changed fields; a dict changes a dataclass inside, a function maps the old value."""

    def value(name, change):
        old = getattr(settings, name)
        return replaced(old, change) if isinstance(change, dict) else change(old) if callable(change) else change

    return dataclasses.replace(settings, **{name: value(name, change) for name, change in changes.items()})


def check_unique(option: str, values: tuple):
    """Raise a ValueError unless an option lists one or more values, each once."""
    if not values or len(set(values)) < len(values):
        raise ValueError(f"{option} {' '.join(map(str, values))}: expected one or more, each once.")


def check_multiple(option: str, value: int, divisor: int):
    """Raise a ValueError unless a size is a positive multiple."""
    if value < divisor or value % divisor:
        raise ValueError(f"{option} {value}: expected a multiple of {divisor}.")


def check_other_file(option: str, path: pathlib.Path | None, other_option: str, other: pathlib.Path | None):
    """Raise a ValueError if the file that is written is the one that another option reads."""
    if None not in (path, other) and path.exists() and other.exists() and path.samefile(other):
        raise ValueError(f"{option} {path}: expected another file, as this is the one of {other_option}.")


def check_filled_in(option: str, value: Any, source: str):
    """Raise a ValueError unless an option is left to the experiment, which sets it to what another option says."""
    if value is not None:
        raise ValueError(f"{option} {value}: expected none; it is set to {source}.")


def check_together(option: str, value: Any, other_option: str, other_value: Any):
    """Raise a ValueError unless two options are given together, or neither is."""
    if (value is None) != (other_value is None):
        raise ValueError(f"{option} and {other_option} go together: expected both or neither.")


def options_of_a_training(settings: Any) -> dict[str, str]:
    """Return the options that have no effect where --run names a finished run, with what they would need."""
    others = {"run", "text", "top_k", "num_beams", "log_dir", "resume", "smoke"}
    return {field.name: "no --run" for field in dataclasses.fields(settings) if field.name not in others}


def num_steps(tokens: int, tokens_per_step: int) -> int:
    """Return the number of batches that contain these tokens."""
    return -(-tokens // tokens_per_step)
