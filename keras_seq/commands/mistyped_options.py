"""Find a mistyped option before Keras is imported: the names of all options are read from the source of their classes.

tyro, which parses the options for good, needs the classes themselves, and so Keras and its backend: seconds.
"""

import ast
import functools
import pathlib
from collections.abc import Sequence

from keras_seq.checks import suggestion

PACKAGE = pathlib.Path(__file__).parents[1]
GROUPS = {  # of options: the class whose fields they are, and its file
    "train": ("TrainConfig", "training/config.py"),
    "sampling": ("SamplingConfig", "generation/samplers.py"),
    "positions": ("RotaryPositions", "layers/attention/relative_positions.py"),  # of models that have this field
}
WITHOUT_PREFIX = {"sampling"}
EVERYWHERE = ("help", "help-all")
LENGTH = "--tokens is the length of a training, in characters over all epochs, or --minutes"
HINTS = {  # by command, what people type: what to do
    "train": {
        "epochs": LENGTH,
        "steps": LENGTH,
        "lr": "it is --train.learning-rate",
        "learning-rate": "it is --train.learning-rate",
        "optimizer": "it is --train.optimizer",
        "precision": "it is --train.precision",
        "corpus": "texts are named without an option: keras-seq train TEXT",
        "models": "it is --model; to compare models, train each and run keras-seq report RUN RUN",
    },
    "generate": dict.fromkeys(("length", "max-length", "max-tokens"), "it is --max-new-tokens"),
    "export": {"format": "it is --to"},
}


def check_words(command: str, words: Sequence[str]) -> str | None:
    """Return what is wrong with the first option that a command does not have, else None."""
    known = option_names(command)
    for word in words:
        name = word.partition("=")[0].removeprefix("--").replace("_", "-")
        group, dot, leaf = name.rpartition(".")
        if not word.startswith("--") or word == "--" or {name, f"{group}{dot}{leaf.removeprefix('no-')}"} & known:
            continue
        hint = HINTS.get(command, {}).get(name)
        hint = f"; {hint}" if hint else suggestion(f"--{name}", [f"--{other}" for other in known])
        return f"{word.partition('=')[0]} is no option{hint}. keras-seq {command} --help lists them."
    return None


def option_names(command: str) -> set[str]:
    """Return the names of the options of a command, without dashes before them."""
    classes = _classes(PACKAGE / "commands" / f"{command}.py")
    config = next(name for name in classes if name.endswith("Config"))
    names = {*EVERYWHERE, *_fields(config, classes), *(_model_options() if command == "train" else ())}
    for option in [*names]:
        group = option.rpartition(".")[2]
        if group in GROUPS:
            name, file = GROUPS[group]
            prefix = "" if group in WITHOUT_PREFIX else f"{option}."
            names |= {prefix + field for field in _fields(name, _classes(PACKAGE / file))}
    return names


def _model_options():
    """Return the options of all registered language models, such as lstm.units."""
    files = sorted((PACKAGE / "models/families").glob("*.py"))
    classes = {name: node for file in files for name, node in _classes(file).items()}
    names = set()
    for node in classes.values():
        for decorator in node.decorator_list if "LanguageModelConfig" in _bases(node.name, classes) else ():
            if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "register":
                model = decorator.args[0].value.replace("_", "-")
                names |= {f"{model}.{field}" for field in _fields(node.name, classes)}
    return names


@functools.cache
def _classes(path):
    """Return the classes of a file by name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _bases(name, classes):
    """Return a class and those that it inherits from, by name."""
    bases = [base.id for base in classes[name].bases if isinstance(base, ast.Name)] if name in classes else []
    return {name}.union(*(_bases(base, classes) for base in bases))


def _fields(name, classes):
    """Return the fields of a dataclass and of those that it inherits from, as names of options."""
    lines = [line for base in _bases(name, classes) & classes.keys() for line in classes[base].body]
    fields = [line for line in lines if isinstance(line, ast.AnnAssign) and "ClassVar" not in ast.dump(line.annotation)]
    return {field.target.id.replace("_", "-") for field in fields}
