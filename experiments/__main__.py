"""List all experiments and tools, or run one: `python -m experiments NAME ...` is `python -m experiments.NAME ...`."""

import runpy
import shutil
import sys
import textwrap
from collections.abc import Sequence

from experiments.frame.catalog import docstrings, duration, question, suggestion

INDENT = 21


def listing() -> str:
    """Return the list of all experiments, then of the tools for a finished run, as wide as the terminal."""
    width = min(shutil.get_terminal_size().columns, 120)
    groups = {"Experiments": [], "Tools for RUN, the folder of a finished run": []}
    experiments, tools = groups.values()
    for name, docstring in docstrings().items():
        text = f"{name:<{INDENT - 3}} {question(docstring)} Time: {duration(docstring)}."
        entry = textwrap.fill(text, width, initial_indent="  ", subsequent_indent=" " * INDENT, break_on_hyphens=False)
        (tools if "\nRUN is the folder of a finished run" in docstring else experiments).append(entry)
    usage = "python -m experiments.NAME --help says more and lists the options; --smoke tests an experiment in seconds."
    parts = ["\n".join([f"{title}:", *entries]) for title, entries in groups.items()]
    return "\n\n".join([*parts, textwrap.fill(usage, width, break_on_hyphens=False)])


def main(arguments: Sequence[str]):
    """Run the experiment that is named first, or list all of them."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(listing())
    elif (name := arguments[0].removeprefix("experiments.")) in docstrings():
        sys.argv = [f"experiments.{name}", *arguments[1:]]
        runpy.run_module(f"experiments.{name}", run_name="__main__", alter_sys=True)
    else:
        print(
            f"experiments: {name}: expected the name of an experiment{suggestion(name)} "
            "(python -m experiments lists them).",
            file=sys.stderr,
        )
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
