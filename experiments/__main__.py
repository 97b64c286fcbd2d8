"""List all experiments and tools, or run one: `python -m experiments NAME ...` is `python -m experiments.NAME ...`."""

import shutil
import sys
import textwrap
from collections.abc import Sequence

from experiments.common.catalog import docstrings, load_main, summary
from keras_seq.commands.early import suggestion

INDENT = 21


def listing() -> str:
    """Return the list of all experiments, then of the tools for data and finished runs, as wide as the terminal."""
    wrapper = textwrap.TextWrapper(min(shutil.get_terminal_size().columns, 120), break_on_hyphens=False)
    usage = wrapper.fill(
        "python -m experiments.NAME --help says more and lists the options; --smoke tests an experiment in seconds."
    )
    wrapper.initial_indent, wrapper.subsequent_indent = "  ", INDENT * " "
    experiments, data = ["Experiments:"], ["Tools for data:"]
    tools = ["Tools for RUN, the folder of a finished run:"]
    for name, docstring in docstrings().items():
        is_for_runs, is_for_data = (
            line in docstring for line in ("\nRUN is the folder of a finished run", "\nINPUT is")
        )
        group = tools if is_for_runs else data if is_for_data else experiments
        group.append(wrapper.fill(f"{name:<{INDENT - 3}} {summary(docstring)}"))
    return "\n\n".join(["\n".join(group) for group in (experiments, data, tools)] + [usage])


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
