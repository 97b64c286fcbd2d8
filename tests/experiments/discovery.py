"""The experiments, found as `python -m experiments` finds them: folders with a `__main__`."""

import importlib
import pathlib

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = sorted(path.parent.name for path in (ROOT / "experiments").glob("*/__main__.py"))


def main_of(name):
    """The command line of an experiment or a tool."""
    return importlib.import_module(f"experiments.{name}.__main__").main


def experiments():
    """The names of the experiments that train."""
    sources = {name: ROOT / "experiments" / name / "__main__.py" for name in FOLDERS}
    return [name for name, path in sources.items() if "experiment_main(" in path.read_text(encoding="utf-8")]
