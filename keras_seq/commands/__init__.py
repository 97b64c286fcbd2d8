"""The command `keras-seq`: train a model on a text, and use finished runs.

Its own options, and the names of those of each command, are checked before Keras and its backend are imported.
"""

import ast
import importlib
import importlib.util
import pathlib
import sys
from collections.abc import Sequence

from keras_seq.checks import suggestion
from keras_seq.commands.mistyped_options import check_words
from keras_seq.commands.start import refuse, start

FOLDER = pathlib.Path(__file__).parent
COMMANDS = ("train", "generate", "score", "inspect", "report", "export", "prepare")
NEEDED = ("tyro", "jinja2", "matplotlib")  # by the commands, not by the library


def listing() -> str:
    """Return the list of commands, each with the first line of its docstring."""
    lines = ["Train small language models, and use what was trained.", "", "Commands:"]
    for name in COMMANDS:
        docstring = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8")))
        lines.append(f"  {name:<10}{docstring.splitlines()[0]}")
    return "\n".join([*lines, "", "keras-seq COMMAND --help says more and lists the options."])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that is named first, or list all of them."""
    name, *words = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help"):
        print(listing())
    elif name not in COMMANDS:
        refuse(f"keras-seq: {name}: expected {', '.join(COMMANDS)}{suggestion(name, COMMANDS)}.")
    elif missing := [package for package in NEEDED if importlib.util.find_spec(package) is None]:
        refuse(f'keras-seq: {missing[0]} is not installed in {sys.executable}: pip install "keras_seq[command]".')
    else:
        if mistake := check_words(name, words):
            refuse(f"keras-seq {name}: {mistake}")
        try:
            start()
            module = importlib.import_module(f"keras_seq.commands.{name}")
        except KeyboardInterrupt:  # which `module.main` describes
            sys.exit(130)
        module.main(words)
