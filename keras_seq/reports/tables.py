"""Report an experiment: a verdict, a table, notes and samples, in the terminal, in NAME.md and in NAME.json.

terminal   verdict, the columns of the table that fit into 80 characters, samples, files, the next commands
NAME.md    title, verdict, the whole table, notes, details (images, further tables), samples
"""

import dataclasses
import math
import os
import pathlib
import re
import shlex
import shutil
import statistics
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from keras_seq.files import write_json, write_text
from keras_seq.tracking.tensorboard import code_block

TENSORBOARD_ADDRESS = "http://localhost:6006/?smoothing=0"
WIDTH = 80  # of a terminal, in characters
MAX_PARAMETER_RATIO = 1.05  # models whose parameter counts differ more are pointed out
NUMBER = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?\s?[%kMGx*]?( (±|to) [-+\d.%]+)?|-?|yes|no|diverged")


class Table:
    """A header and rows of cells, all strings; a column of numbers is right-aligned, other columns are left-aligned."""

    def __init__(self, header: Sequence[str], rows: Sequence[Sequence[str]]):
        self.header, self.rows = list(header), [list(row) for row in rows]
        columns = zip(*self.rows, strict=True) if self.rows else [[]] * len(self.header)
        self.is_numeric = [all(NUMBER.fullmatch(cell) for cell in cells) for cells in columns]

    @classmethod
    def of(cls, items: Sequence[Any], columns: dict[str, Callable[[Any], str]]) -> "Table":
        """Return a table with one line for each item and a function from an item to the cell for each column."""
        return cls([*columns], [[cell(item) for cell in columns.values()] for item in items])

    def select(self, *names: str) -> "Table":
        """Return the table of some of the columns, in the given order; names that it lacks are left out."""
        indices = [self.header.index(name) for name in names if name in self.header]
        return Table([self.header[n] for n in indices], [[row[n] for n in indices] for row in self.rows])

    def without(self, *names: str) -> "Table":
        """Return the table without some of the columns."""
        return self.select(*(name for name in self.header if name not in names))

    def __str__(self) -> str:
        """Return the table in Markdown, padded so that it is aligned as plain text too."""
        widths = [max(2, *map(len, column)) for column in zip(self.header, *self.rows, strict=True)]  # "-:" is two
        rule = ["-" * (width - right) + ":" * right for width, right in zip(widths, self.is_numeric, strict=True)]
        justify = [str.rjust if right else str.ljust for right in self.is_numeric]
        lines = []
        for cells in (self.header, rule, *self.rows):
            padded = [just(cell, width) for just, cell, width in zip(justify, cells, widths, strict=True)]
            lines.append(f"| {' | '.join(padded)} |")
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Report:
    """The results of an experiment."""

    title: str  # what was trained on what
    verdict: str  # one or two sentences: what was found, and how certain that is
    table: Table  # all results
    columns: Sequence[str]  # those for the terminal; together at most 80 characters wide
    data: Any  # what NAME.json holds
    notes: str = ""  # definitions and units of the columns
    details: Sequence[str | Table] = ()  # further Markdown and tables of NAME.md, in order
    samples: dict[str, str] = dataclasses.field(default_factory=dict)  # texts by their headings
    failures: Sequence[str] = ()  # sentences for standard error; if there are any, the exit status is 1
    runs: Sequence[pathlib.Path] = ()  # of language models, for the commands to look at one of them

    def write(self, folder: pathlib.Path, name: str):
        """Write NAME.json and NAME.md into the folder of the runs."""
        write_json(folder / f"{name}.json", self.data)
        samples = [f"## {heading}\n\n{code_block(text)}" for heading, text in self.samples.items()]
        parts = [f"# {self.title}", self.verdict, str(self.table), self.notes, *map(str, self.details), *samples]
        write_text(folder / f"{name}.md", "\n\n".join(filter(None, parts)) + "\n")

    def message(self, folder: pathlib.Path) -> str:
        """Return what the terminal shows at the end."""
        samples = [f"{heading}:\n{code_block(text.strip())}" for heading, text in self.samples.items()]
        files = [path for suffix in ("html", "md", "png") for path in sorted(folder.glob(f"*.{suffix}"))]
        listing = "\n".join(["Files:", *(f"    {path}" for path in files)])
        parts = [fill(self.verdict), str(self.table.select(*self.columns)), *samples, listing, self._commands(folder)]
        return "\n" + "\n\n".join(parts)

    def _commands(self, folder):
        page, lines = folder / "page.html", []
        if page.is_file():
            lines += ["To write with the models, and to see how they read, open in a browser:", f"    {page}"]
        if not all(run.is_relative_to(folder) for run in self.runs):  # runs of several folders
            folder = pathlib.Path(os.path.commonpath([run.parent.absolute() for run in self.runs]))
            folder = pathlib.Path(os.path.relpath(folder))
        lines += ["To view the curves in TensorBoard:", f"    {tensorboard_command(folder)}"]
        lines += [f"    then open {TENSORBOARD_ADDRESS}    (smoothing off: it hides where few points cross)"]
        if self.runs:
            lines += next_commands(self.runs[0])
        return "\n".join(lines)


def fill(text: str) -> str:
    """Wrap text to the width of a terminal."""
    return textwrap.fill(text, WIDTH, break_on_hyphens=False, break_long_words=False)


def without_texts(rows: Sequence[dict]) -> list[dict]:
    """Return rows of results without their samples, for NAME.json."""
    return [{key: value for key, value in row.items() if key not in ("sample", "predictions")} for row in rows]


def tensorboard_command(folder: pathlib.Path) -> str:
    """Return the command line that opens the runs of a folder in TensorBoard."""
    installed = pathlib.Path(sys.executable).with_name("tensorboard")
    return shell_command(str(installed) if installed.exists() else "tensorboard", "--logdir", pathlib.Path(folder))


def shell_command(program: str, *words: str | pathlib.PurePath) -> str:
    """Return a command line quoted for the shell; the program's path is relative, and a path is never an option."""
    program = os.path.relpath(program) if os.path.isabs(program) else program
    words = [f"./{word}" if isinstance(word, pathlib.PurePath) and str(word)[0] == "-" else str(word) for word in words]
    return shlex.join([program, *words])


def command(program: str, *words: str | pathlib.PurePath) -> str:
    """Return a command line of a program as it is shown, "keras-seq generate" or "experiments.compare"."""
    if not program.startswith("keras-seq"):
        return shell_command(sys.executable, "-m", program, *words)
    installed = pathlib.Path(sys.executable).with_name("keras-seq")
    own = [str(installed)] if installed.exists() else [sys.executable, "-m", "keras_seq"]
    own = ["keras-seq"] if shutil.which("keras-seq") == str(installed) else own  # an active environment
    return shell_command(*own, *program.split()[1:], *words)


def next_commands(run: pathlib.Path) -> list[str]:
    """Return what to do with the run of a language model, line by line."""
    from keras_seq.reports.pages import name_in_config  # here, as Jinja2 is for pages

    lines = [
        "To let it write, to see how it reads a text, and what it computes:",
        f"    {command('keras-seq generate', run)}",
        f"    {command('keras-seq score', run, '--text', 'Some text.', '--html', 'score.html')}",
        f"    {command('keras-seq inspect', run)}",
    ]
    if name_in_config(run, "model") == "ensemble":  # which has no layers to look at
        lines = ["To let it write, and to see how it reads a text:", *lines[1:-1]]
    return lines


def plus_minus(values: Sequence[float], digits: int) -> str:
    """Return mean ± standard deviation with this number of decimals, without the latter for a single value."""
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"


def percent_interval(fraction: float, count: int) -> str:
    """Return a fraction of `count` independent trials with its 95 % interval (Wilson, 1927): 81.2% (77.5 to 84.4%)."""
    z = 1.96
    scale = 1 + z**2 / count
    center = (fraction + z**2 / (2 * count)) / scale
    half = z * math.sqrt(fraction * (1 - fraction) / count + (z / (2 * count)) ** 2) / scale
    return f"{fraction:.1%} ({100 * max(center - half, 0):.1f} to {min(center + half, 1):.1%})"


def tera(flops: float) -> str:
    """Format a number of operations in units of 10^12: with two decimals, or two significant digits below one."""
    return f"{flops / 1e12:,.2f}" if flops >= 1e12 else f"{flops / 1e12:.2g}"


def perplexity(value: float | None) -> str:
    """Format a perplexity without decimals, in scientific notation from 10^6 on; None as "-"."""
    return "-" if value is None else f"{value:,.0f}" if value < 1e6 else f"{value:.1e}"


def thousands(value: float, position: int | None = None) -> str:
    """Format 1,500,000 as 1.5 M, for tick labels; matplotlib passes the position of the tick, which is not used."""
    if value == 0:
        return "0"
    power = min(2, max(0, int(math.log10(abs(value)) // 3)))
    return f"{value / 1000**power:g}{('', ' k', ' M')[power]}"


def compare_sizes(counts: Sequence[int]) -> str:
    """Return a sentence that compares the largest and the smallest of the numbers of parameters; "" for equal ones."""
    if len({*counts}) == 1:
        return ""
    ratio = max(counts) / min(counts)
    size = f"The largest model has {ratio - 1:.1%} more parameters than the smallest"
    return f"{size}{'.' if ratio <= MAX_PARAMETER_RATIO else ': more than the 5 % that count as equal here.'}"
