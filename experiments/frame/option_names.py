"""Refuse a mistyped option before Keras and TensorFlow are imported, which takes seconds; suggest what was meant.

The options of an experiment are the fields of dataclasses, here and in keras_seq, whose classes cannot be imported
without Keras. Their names are read from the sources instead: an option with a name that no field has is a mistake.
Whether the experiment has the option, and its value, is checked when tyro parses the command line.
"""

import difflib
import re
import sys
from collections.abc import Iterable, Sequence

from experiments.frame.catalog import PACKAGE, scripts

FIELDS = re.compile(r"\n    (\w+): "), re.compile(r'name="(\w+)"')  # a field, and another name of one
OPTION = re.compile(r"--([A-Za-z][\w-]*(?:\.[\w-]+)*)(?:=.*)?", re.DOTALL)
BUILT_IN = {"help", "help_all", "tyro_print_completion", "tyro_write_completion"}
SYNONYMS = {  # names in other programs
    **dict.fromkeys(("epochs", "num_epochs", "max_epochs", "steps", "max_steps", "iterations", "max_iters"), "tokens"),
    **dict.fromkeys(("lr", "learning_rate"), "train.learning_rate"),
    **dict.fromkeys(("data", "dataset", "input", "text_file"), "corpus"),
    **dict.fromkeys(("block_size", "seq_len", "seq_length", "max_length", "context_length"), "sequence_length"),
    **dict.fromkeys(("out", "out_dir", "output", "output_dir", "logdir"), "log_dir"),
    **{
        "seeds": "num_seeds",
        "seed": "num_seeds",
        "batch": "batch_size",
        "model": "models",
        "optimizer": "train.optimizer",
    },
    **{"length": "max_new_tokens", "n": "num_samples", "format": "to", "tokenizer_type": "tokenizer"},
}


def check_names(module: str, arguments: Sequence[str]) -> None:
    """Exit with status 2 and one sentence if a word of a command line is an option that no experiment has.

    Args:
        module: What `python -m` runs, `experiments.NAME` or `experiments`.
        arguments: The words after it.
    """
    if module in ("experiments", "experiments.__main__"):
        module, arguments = f"experiments.{''.join(arguments[:1])}", arguments[1:]
    name = module.removeprefix("experiments.").removesuffix(".__main__")
    if (script := scripts().get(name)) is None or not (options := names(arguments)):
        return
    known = BUILT_IN | _fields(PACKAGE, PACKAGE.parent / "keras_seq")
    for option in options:
        if not all(part in known or part.removeprefix("no_") in known for part in option.split(".")):
            own = _fields(script if script.stem == name else script.parent)
            suggestion = suggested(option, own) or _nearest(option, own, known)
            print(f"experiments.{name}: {unrecognized(option, suggestion)}.", file=sys.stderr)
            sys.exit(2)


def unrecognized(option: str, suggestion: str | None) -> str:
    """Return the message for an option that is none, without its full stop."""
    meant = f"; perhaps you meant {_written(suggestion)}" if suggestion else ""
    return f"Unrecognized options: {_written(option)}{meant} (--help lists the options)"


def suggested(option: str, fields: Iterable[str]) -> str | None:
    """Return what an option of another program is called here, if it is one of the fields, or in a group of them."""
    name = SYNONYMS.get(option)
    return name if name is not None and name.split(".")[0] in fields else None


def _written(option):
    return "--" + option.replace("_", "-")


def names(arguments: Sequence[str]) -> list[str]:
    """Return the names of the options on a command line, with underscores."""
    words = [*arguments[: arguments.index("--")]] if "--" in arguments else arguments
    return [match[1].replace("-", "_") for word in words if (match := OPTION.fullmatch(word))]


def _fields(*places):
    files = [file for place in places for file in ([place] if place.is_file() else place.rglob("*.py"))]
    sources = "".join(path.read_text(encoding="utf-8") for path in files)
    return {name for pattern in FIELDS for name in pattern.findall(sources)}


def _nearest(option, own, known):
    """Return the nearest of the experiment's own options; in a group, such as train, that of any."""
    group, _, name = option.rpartition(".")
    nearest = difflib.get_close_matches(name, known if group else own, n=1)
    return ".".join(filter(None, (group, *nearest))) if nearest else None
