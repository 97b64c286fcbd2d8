"""Find the best learning rate of each optimizer, by the loss of held-out text, and the best optimizer."""

import dataclasses
import math
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class OptimizerResult:
    """The runs of one optimizer by increasing learning rate, and the best of them, None if all diverged."""

    name: str
    runs: list[dict]
    best: dict | None

    @property
    def loss(self) -> float:
        """Held-out loss at the best learning rate, in nats per character."""
        return math.inf if self.best is None else self.best["held_out_loss"]

    @property
    def grid_edge(self) -> str:
        """Return "lowest" or "highest" if the best learning rate is at that edge of the grid, else ""."""
        if self.best is None or len(self.runs) == 1 or self.best not in (self.runs[0], self.runs[-1]):
            return ""
        return "lowest" if self.best is self.runs[0] else "highest"


def by_optimizer(rows: Sequence[dict]) -> list[OptimizerResult]:
    """Group runs by optimizer, the best optimizer first."""
    results = []
    for name in dict.fromkeys(row["optimizer"] for row in rows):
        runs = sorted((row for row in rows if row["optimizer"] == name), key=lambda row: row["learning_rate"])
        finite = [run for run in runs if run["diverged"] is None]
        results.append(OptimizerResult(name, runs, min(finite, key=lambda run: run["held_out_loss"], default=None)))
    return sorted(results, key=lambda result: result.loss)


def verdict(results: Sequence[OptimizerResult]) -> str:
    """Say which optimizer is best, by how much, and how certain that is."""
    first, *others = [result for result in results if result.best is not None] or [None]
    if first is None:
        return "Training diverged with every optimizer at every learning rate: try smaller --factors."
    below = f", {others[0].loss - first.loss:.3f} below {others[0].name}" if others else ""
    edges = [result.name for result in results if result.grid_edge]
    edge = f" At the edge of their grid, so perhaps better elsewhere: {', '.join(edges)} (--factors)." if edges else ""
    best = f"{first.name} has the lowest held-out loss, {first.loss:.3f} nats per character{below}"
    return f"{best}. One seed each: differences below 0.01 may be chance.{edge}"
