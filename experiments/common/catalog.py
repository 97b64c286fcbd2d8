"""List all experiments: files, and folders with a `__main__.py`, whose docstring is read without an import.

Its first line is the question; a line "Time: 7 minutes on 2 cores." says how long it takes.
"""

import ast
import importlib
import pathlib
import re
from collections.abc import Callable

PACKAGE = pathlib.Path(__file__).parents[1]


def scripts() -> dict[str, pathlib.Path]:
    """Return what `python -m experiments.NAME` runs, by name: experiments/NAME.py or experiments/NAME/__main__.py."""
    paths = [*PACKAGE.glob("[!_]*.py"), *PACKAGE.glob("*/__main__.py")]
    return dict(sorted((path.relative_to(PACKAGE).parts[0].removesuffix(".py"), path) for path in paths))


def load_main(name: str) -> Callable:
    """Import an experiment and return its `main`."""
    module = f"experiments.{name}"
    return importlib.import_module(module if scripts()[name].stem == name else f"{module}.__main__").main


def docstrings() -> dict[str, str]:
    """Return the docstring of each experiment, by name."""
    return {name: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) for name, path in scripts().items()}


def summary(docstring: str) -> str:
    """Return the question and the time that it takes."""
    return " ".join(re.findall(r"\A.+$|^Time: .+\.$", docstring, re.MULTILINE))
