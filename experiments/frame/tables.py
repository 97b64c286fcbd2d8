"""Tables that keep their cells: as Markdown, readable as plain text too, and as rows for an HTML page."""

import math
import re
import statistics
from collections.abc import Callable, Sequence
from typing import Any

NUMBER = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?\s?[%kMGx]?( (±|to) [-+\d.%]+)?|-?|yes|no|diverged")


class Table:
    """A header and rows of cells, all strings; a column of numbers is right-aligned, other columns are left-aligned.

    Args:
        header: Names of the columns.
        rows: Cells, one sequence for each line.
    """

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

    def __str__(self) -> str:
        """Return the table in Markdown, padded so that it is aligned as plain text too."""
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        rule = ["-" * (width - 1) + ":" if right else "-" * width for width, right in self._with(widths)]
        return "\n".join(self._line(cells, widths) for cells in (self.header, rule, *self.rows))

    def _line(self, cells, widths):
        padded = [c.rjust(w) if right else c.ljust(w) for c, (w, right) in zip(cells, self._with(widths), strict=True)]
        return f"| {' | '.join(padded)} |"

    def _with(self, widths):
        return [*zip(widths, self.is_numeric, strict=True)]


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
    power = min(2, int(math.log10(abs(value)) // 3))
    return f"{value / 1000**power:g}{('', ' k', ' M')[power]}"


def indented(text: str) -> str:
    """Return the text as an indented Markdown code block."""
    return "\n".join("    " + line for line in text.splitlines())
