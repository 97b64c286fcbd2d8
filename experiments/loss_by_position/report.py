"""Report of `experiments.loss_by_position`, with loss_by_position.png."""

import pathlib
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from experiments.frame import plots
from experiments.frame.report import Report
from experiments.frame.tables import Table
from experiments.frame.texts import compare_sizes
from experiments.loss_by_position.findings import RunResult, verdict

NOTES = (
    "Losses are in nats per character of the validation split. T: the length of the training windows. val_loss@T: over "
    "disjoint windows of T characters, each from the zero state or the empty cache. Columns of ranges: the loss after "
    "that many characters of past, from overlapping windows; all columns and all models are scored on the same "
    "characters. *: more past than in training; a Transformer has no such value, since its context length is T. falls "
    "by: the loss in the first range minus that in the last one within T; per doubling: the slope of a least-squares "
    "line through these ranges. ±: a standard error over blocks of text; the variance between seeds is not in it. Not "
    "significant: less than two standard errors. "
)
IMAGE = "![Left: loss by position. Right: loss relative to the first range](loss_by_position.png)"


def loss_by_position_report(corpus: str, folder: pathlib.Path, rows: Sequence[dict]) -> Report:
    """Plot the runs and return the report."""
    results = [RunResult(row) for row in rows]
    plot(folder, results)
    terminal = ("model", "T", "val_loss@T", "falls by", "per doubling")
    notes = NOTES + compare_sizes([row["parameters"] for row in rows])
    return Report(f"{corpus}: loss by position", verdict(results), table(results), terminal, rows, notes, [IMAGE])


def table(results: Sequence[RunResult]) -> Table:
    """Return a line for each run."""
    ranges = max((result.ranges for result in results), key=len)
    columns = {
        "model": lambda result: result.model,
        "T": lambda result: str(result.length),
        "parameters": lambda result: f"{result.row['parameters']:,}",
        "train seconds": lambda result: f"{result.row['train_seconds']:.0f}",
        "val_loss@T": lambda result: f"{result.row['val_loss']:.3f}",
        **{name: lambda result, k=k: octave_cell(result, k) for k, name in enumerate(ranges)},
        **{name: lambda result, name=name: str(result.falls.get(name, "-")) for name in ("falls by", "per doubling")},
    }
    return Table.of(results, columns)


def octave_cell(result: RunResult, k: int) -> str:
    """Format the loss in octave k, marked where the model had no such past in training."""
    return "-" if k >= len(result.losses) else f"{result.losses[k]:.3f}{'' if k < result.num_trained else '*'}"


def plot(folder: pathlib.Path, results: Sequence[RunResult]):
    """Write loss_by_position.png: loss by position on the left, loss relative to the first octave on the right."""
    figure, (curves, changes) = plots.subplots(1, 2, figsize=(12, 5.2), width_ratios=(6, 5))
    lengths, colors = sorted({result.length for result in results}), plots.colors([r.model for r in results])
    alphas = dict(zip(lengths, np.linspace(0.35, 1, len(lengths)), strict=True))
    for result in results:
        style = {"color": colors[result.model], "alpha": alphas[result.length]}
        plot_curve(curves, result, style, has_band=result.length == lengths[-1])
        style |= {"marker": "o", "markersize": 4, "capsize": 2.5, "elinewidth": 1}
        values = (np.arange(len(result.changes)), *np.array(result.changes).T)
        draw(changes.errorbar, values, result.num_trained, style)
    curves.set_xscale("log", base=2)
    curves.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    curves.xaxis.set_minor_locator(NullLocator())
    curves.set_ylabel("loss (nats per character)")
    ranges = max((result.ranges for result in results), key=len)
    changes.set_xticks(range(len(ranges)), ranges)
    changes.set_ylabel(f"loss minus that at {ranges[0]}, same characters (nats)")
    changes.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    for axes in (curves, changes):
        axes.set_xlabel("position: characters of past")
    styles = {f"T = {length}": {"alpha": alpha} for length, alpha in alphas.items()}
    styles |= {"lstm, beyond T": {"linestyle": "--"}}
    plots.legend(figure, colors, styles, loc="outside lower center", ncols=len(colors) + len(styles))
    plots.save(figure, folder / "loss_by_position.png")


def plot_curve(axes: Axes, result: RunResult, style: dict, has_band: bool):
    """Plot the loss in bins of positions, with a band of one standard error for the longest windows."""
    bins = result.row["by_position"]
    low, high = np.array(bins["edges"][:-1]) + 1, np.array(bins["edges"][1:])
    x, y, error = np.sqrt(low * high), np.array(bins["losses"]), np.array(bins["standard_errors"])
    draw(axes.plot, (x, y), int((high <= result.length).sum()), style)
    if has_band:
        axes.fill_between(x, y - error, y + error, color=style["color"], alpha=0.15, linewidth=0)


def draw(method: Callable, values: Sequence[np.ndarray], num_trained: int, style: dict):
    """Draw a line by a method of axes, dashed beyond the training length."""
    for part, linestyle in ((slice(num_trained), "-"), (slice(num_trained - 1, None), "--")):
        if len(values[0][part]) > 1:
            method(*(each[part] for each in values), **style, linestyle=linestyle)
