"""Find a mistyped option before Keras is imported: the names of all options are read from the source of their classes.

tyro, which parses the options for good, needs the classes themselves, and so Keras and its backend: seconds.
"""

import ast
import difflib
import functools
import pathlib
from collections.abc import Iterable, Sequence

PACKAGE = pathlib.Path(__file__).parents[1]
GROUPS = {  # of options: the class whose fields they are, and its file
    "train": ("TrainConfig", "training/config.py"),
    "sampling": ("SamplingConfig", "generation/samplers.py"),
}
WITHOUT_PREFIX = {"sampling"}
EVERYWHERE = ("help", "help-all")
HINTS = {  # what people type: what to do
    "epochs": "--tokens is the length of a training, in characters over all epochs, or --minutes",
    "steps": "--tokens is the length of a training, in characters over all epochs, or --minutes",
    "lr": "it is --train.learning-rate",
    "learning-rate": "it is --train.learning-rate",
    "optimizer": "it is --train.optimizer",
    "precision": "it is --train.precision",
    "length": "it is --max-new-tokens",
    "max-length": "it is --max-new-tokens",
    "max-tokens": "it is --max-new-tokens",
    "corpus": "texts are named without an option: keras-seq train TEXT",
    "models": "it is --model; to compare models, train each and run keras-seq report RUN RUN",
    "format": "it is --to",
}


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return the nearest of some names to a mistyped one, as the end of a message, or nothing."""
    nearest = difflib.get_close_matches(name, names, n=1)
    return f"; perhaps you meant {nearest[0]}" if nearest else ""


def check_words(command: str, words: Sequence[str]) -> str | None:
    """Return what is wrong with the first option that a command does not have, else None."""
    known = option_names(command)
    for word in words:
        name = word.partition("=")[0].removeprefix("--").replace("_", "-")
        group, dot, leaf = name.rpartition(".")
        if not word.startswith("--") or word == "--" or {name, f"{group}{dot}{leaf.removeprefix('no-')}"} & known:
            continue
        hint = f"; {HINTS[name]}" if name in HINTS else suggestion(f"--{name}", [f"--{other}" for other in known])
        return f"{word.partition('=')[0]} is no option{hint}. keras-seq {command} --help lists them."
    return None


def option_names(command: str) -> set[str]:
    """Return the names of the options of a command, without dashes before them."""
    classes = _classes(PACKAGE / "commands" / f"{command}.py")
    config = next(name for name in classes if name.endswith("Config"))
    names = {*EVERYWHERE, *_fields(config, classes)}
    for group, (name, file) in GROUPS.items():
        if group in names:
            prefix = "" if group in WITHOUT_PREFIX else f"{group}."
            names |= {prefix + field for field in _fields(name, _classes(PACKAGE / file))}
    if command == "train":
        names |= _model_options()
    return names


def _model_options():
    """Return the options of all registered models, such as lstm.units."""
    files = sorted((PACKAGE / "models/families").glob("*.py"))
    classes = {name: node for file in files for name, node in _classes(file).items()}
    names = set()
    for node in classes.values():
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "register":
                model = decorator.args[0].value.replace("_", "-")
                names |= {f"{model}.{field}" for field in _fields(node.name, classes)}
    return names


@functools.cache
def _classes(path):
    """Return the classes of a file by name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _fields(name, classes):
    """Return the fields of a dataclass and of those that it inherits from, as names of options."""
    node = classes.get(name)
    if node is None:
        return set()
    own = {line.target.id.replace("_", "-") for line in node.body if isinstance(line, ast.AnnAssign)}
    return own.union(*(_fields(base.id, classes) for base in node.bases if isinstance(base, ast.Name)))
