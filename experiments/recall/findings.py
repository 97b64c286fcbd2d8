"""From the accuracies of all runs to what each model recalls."""

import dataclasses
import statistics
from collections.abc import Sequence

from experiments.common.reports import plus_minus


@dataclasses.dataclass(frozen=True)
class Cell:
    """A model on a task, at one length and number of items: the accuracies of all seeds."""

    length: int
    items: int
    is_trained: bool
    chance: float
    accuracies: tuple[float, ...]

    @property
    def accuracy(self) -> float:
        """Mean over the seeds."""
        return statistics.mean(self.accuracies)

    def __str__(self) -> str:
        """Return the mean and the standard deviation in percent."""
        mean, *deviation = plus_minus([100 * value for value in self.accuracies], 1).split(" ± ")
        return " ± ".join(f"{value}%" for value in (mean, *deviation))


@dataclasses.dataclass(frozen=True)
class Finding:
    """One model on one task."""

    task: str
    model: str
    parameters: int
    seconds: float
    cells: tuple[Cell, ...]

    @property
    def hardest(self) -> Cell:
        """The cell of the largest sizes of training."""
        return max((cell for cell in self.cells if cell.is_trained), key=lambda cell: (cell.length, cell.items))

    @property
    def twice_as_long(self) -> Cell:
        """The cell of as many items, at twice the length."""
        (cell,) = (c for c in self.cells if (c.length, c.items) == (2 * self.hardest.length, self.hardest.items))
        return cell


def find(rows: Sequence[dict]) -> list[Finding]:
    """Return a finding for each task and model, in the order of the rows, over all of its seeds."""
    findings = []
    for task, model in dict.fromkeys((row["task"], row["model"]) for row in rows):
        runs = [row for row in rows if (row["task"], row["model"]) == (task, model)]
        cells = tuple(_cell(groups) for groups in zip(*(run["groups"] for run in runs), strict=True))
        seconds = statistics.mean(run["train_seconds"] for run in runs)
        findings.append(Finding(task, model, runs[0]["parameters"], seconds, cells))
    return findings


def _cell(groups):
    """Return the cell of the same size in the results of all seeds."""
    first = groups[0]
    sizes = first["length"], first["items"], first["trained"], first["chance"]
    return Cell(*sizes, tuple(group["accuracy"] for group in groups))


def verdict(findings: Sequence[Finding]) -> str:
    """Say of each task what each model recalls at the largest sizes it was trained on, and at twice the length."""
    sentences = []
    for task in dict.fromkeys(finding.task for finding in findings):
        of_task = [finding for finding in findings if finding.task == task]
        cell, longer = of_task[0].hardest, of_task[0].twice_as_long
        parts = [f"{f.model} {f.hardest.accuracy:.1%} and {f.twice_as_long.accuracy:.1%}" for f in of_task]
        items = f" with {cell.items} items" if cell.items > 1 else ""
        sizes = f"{task} at length {cell.length} and {longer.length}{items}"
        sentences.append(f"{sizes}: {', '.join(parts)}, guessing {cell.chance:.1%}.")
    seeds = len(findings[0].cells[0].accuracies)
    count = "One seed" if seeds == 1 else f"{seeds} seeds"
    return " ".join([*sentences, f"{count} each; the second length is beyond training."])
