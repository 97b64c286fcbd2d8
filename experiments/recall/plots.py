"""Heat maps of accuracy by length and number of items: one for each model and task."""

import pathlib
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from experiments.common import plots
from experiments.recall.findings import Cell, Finding


def heat_map(axes: Axes, cells: Sequence[Cell]):
    """Draw the accuracy of each cell as a color and a number; a frame holds the sizes of training."""
    lengths, items = (sorted({getattr(cell, key) for cell in cells}) for key in ("length", "items"))
    grid = np.full((len(items), len(lengths)), np.nan)
    for cell in cells:
        row, column = items.index(cell.items), lengths.index(cell.length)
        grid[row, column] = cell.accuracy
        color = "white" if cell.accuracy < 0.6 else "black"
        axes.text(column, row, f"{100 * cell.accuracy:.0f}", ha="center", va="center", color=color, fontsize=9)
    image = axes.imshow(grid, vmin=0, vmax=1, cmap="viridis", origin="lower", aspect="auto")
    for row, column in {(items.index(c.items), lengths.index(c.length)) for c in cells if c.is_trained}:
        axes.add_patch(_edge(column, row))
    axes.set_xticks(range(len(lengths)), lengths)
    axes.set_yticks(range(len(items)), items)
    axes.grid(visible=False)
    axes.set_xlabel("length")
    return image


def _edge(column, row):
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.46, row - 0.46), 0.92, 0.92, fill=False, edgecolor="white", linewidth=1.5)


def single(cells: Sequence[Cell], title: str) -> Figure:
    """Return the heat map of one run, for TensorBoard."""
    figure, axes = plots.subplots(figsize=(4, 1.6 + 0.35 * len({cell.items for cell in cells})))
    heat_map(axes, cells)
    axes.set_title(title)
    axes.set_ylabel("items")
    return figure


def plot(folder: pathlib.Path, findings: Sequence[Finding]):
    """Write recall.png: a row for each task, a column for each model."""
    tasks, models = (list(dict.fromkeys(getattr(f, key) for f in findings)) for key in ("task", "model"))
    heights = {f.task: 1.4 + len({cell.items for cell in f.cells}) for f in findings}
    figure, grid = plots.subplots(
        len(tasks),
        len(models),
        figsize=(2.2 + 2.8 * len(models), 0.6 + 0.42 * sum(heights.values())),
        height_ratios=[heights[task] for task in tasks],
        squeeze=False,
    )
    for finding in findings:
        row, column = tasks.index(finding.task), models.index(finding.model)
        axes = grid[row, column]
        image = heat_map(axes, finding.cells)
        if not row:
            axes.set_title(finding.model)
        axes.set_ylabel(f"{finding.task}\nitems" if not column else "")
    figure.colorbar(image, ax=grid, format=PercentFormatter(1), label="accuracy", fraction=0.03)
    plots.save(figure, folder / "recall.png")
