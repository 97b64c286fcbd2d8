"""List all experiments, or run one: `python -m experiments NAME ...` is `python -m experiments.NAME ...`."""

import shutil
import sys
import textwrap
from collections.abc import Sequence

from experiments.common.catalog import docstrings, load_main, summary
from keras_seq.checks import suggestion

INDENT = 21


def listing() -> str:
    """Return the list of all experiments, as wide as the terminal."""
    wrapper = textwrap.TextWrapper(min(shutil.get_terminal_size().columns, 120), break_on_hyphens=False)
    usage = wrapper.fill(
        "python -m experiments.NAME --help says more and lists the options; --smoke tests an experiment in seconds. "
        "keras-seq has the tools for texts and finished runs."
    )
    wrapper.initial_indent, wrapper.subsequent_indent = "  ", INDENT * " "
    lines = [wrapper.fill(f"{name:<{INDENT - 3}} {summary(doc)}") for name, doc in docstrings().items()]
    return "\n".join(["Experiments:", *lines, "", usage])


def main(arguments: Sequence[str]):
    """Run the experiment that is named first, or list all of them."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(listing())
    elif (name := arguments[0].removeprefix("experiments.")) in docstrings():
        load_main(name)(arguments[1:])
    else:
        expected = f"the name of an experiment{suggestion(name, docstrings())} (python -m experiments lists them)"
        print(f"experiments: {name}: expected {expected}.", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
