"""Options that many experiments have, as types with their help text, and changes of nested settings."""

import dataclasses
from typing import Annotated, Any

import tyro

from experiments.frame.option_types import CorpusNames

CorpusName = Annotated[
    CorpusNames,
    tyro.conf.arg(
        help="Training text: docstrings or pydoc (included in Python), shakespeare (downloaded once, or read from the "
        "folder KERAS_SEQ_DATA), or UTF-8 files, folders of *.txt files, and patterns, which are joined; or folders of "
        "experiments.prepare, also with weights, as in 0.7:FOLDER 0.3:FOLDER."
    ),
]
BatchSize = Annotated[int, tyro.conf.arg(help="Batch size B, in windows.")]
SequenceLength = Annotated[int, tyro.conf.arg(help="Sequence length T of the windows, in tokens.")]
Seed = Annotated[int, tyro.conf.arg(help="Random seed of the weights, batches and dropout.")]
LogDir = Annotated[str, tyro.conf.arg(help="Folder of the runs: LOG_DIR/EXPERIMENT/UTC-TIME/.")]
Resume = Annotated[
    str | None,
    tyro.conf.arg(
        help="Folder LOG_DIR/EXPERIMENT/UTC-TIME to resume. Options not given are read from its config.json."
    ),
]
Smoke = Annotated[
    bool,
    tyro.conf.FlagCreatePairsOff,
    tyro.conf.arg(help="Test that everything works: tiny sizes, but for those given."),
]
SMOKE_TRAIN = {"warmup_steps": 4, "log_every": 5, "validate_every": 10, "checkpoint_every": 10}


def replaced(settings: Any, changes: dict) -> Any:
    """Return a dataclass with changed fields; a dict changes a dataclass inside, a function maps the old value."""

    def value(name, change):
        old = getattr(settings, name)
        return replaced(old, change) if isinstance(change, dict) else change(old) if callable(change) else change

    return dataclasses.replace(settings, **{name: value(name, change) for name, change in changes.items()})


def check_unique(option: str, values: tuple):
    """Check that an option lists one or more values, each once.

    Raises:
        ValueError: It lists none, or one of them twice.
    """
    if not values or len(set(values)) < len(values):
        raise ValueError(f"{option} {' '.join(map(str, values))}: expected one or more, each once.")


def check_multiple(option: str, value: int, divisor: int):
    """Check that a size is a positive multiple.

    Raises:
        ValueError: It is not.
    """
    if value < divisor or value % divisor:
        raise ValueError(f"{option} {value}: expected a multiple of {divisor}.")


def check_together(option: str, value: Any, other_option: str, other_value: Any):
    """Check that two options are given together, or neither is.

    Raises:
        ValueError: Only one of them is given.
    """
    if (value is None) != (other_value is None):
        raise ValueError(f"{option} and {other_option} go together: expected both or neither.")


def options_of_a_training(settings: Any) -> dict[str, str]:
    """Return the options that have no effect where --run names a finished run, with what they would need."""
    others = {"run", "text", "top_k", "num_beams", "log_dir", "resume", "smoke"}
    return {field.name: "no --run" for field in dataclasses.fields(settings) if field.name not in others}


def num_steps(tokens: int, tokens_per_step: int) -> int:
    """Return the number of batches that contain these tokens."""
    return -(-tokens // tokens_per_step)
