"""Report of `experiments.gradient_descent`, with gradient_descent.png."""

import math
import pathlib
from collections.abc import Sequence

from experiments.frame import plots
from experiments.frame.report import Report
from experiments.frame.tables import Table
from experiments.gradient_descent.settings import METHODS

NOTES = "Columns of epochs: suboptimality f(w) minus the lowest loss of {:.6f}, in nats, after that many. L = {:.4f}."
IMAGE = "![Suboptimality over gradients computed](gradient_descent.png)"


def gradient_descent_report(folder: pathlib.Path, rows: Sequence[dict]) -> Report:
    """Plot the runs of all methods, full batches first, and return the report."""
    full = rows[0]
    lowest = full["val_loss"] - full["suboptimality"]
    curves = {row["method"]: suboptimality(folder / row["run"], full["batch_size"]) for row in rows}
    plot(folder, rows, curves, lowest)
    last = max(curves["full"])
    epochs = {f"{n} epochs": n for n in sorted({2, max(2, last // 10 * 2), last})}
    columns = {
        "method": lambda row: row["method"],
        "description": lambda row: METHODS[row["method"]].description,
        "batch size": lambda row: f"{row['batch_size']:,}",
        "learning rate": lambda row: f"{row['learning_rate']:.3g}",
        "steps": lambda row: f"{row['steps']:,}",
        **{name: lambda row, n=n: f"{curves[row['method']][n]:.1e}" for name, n in epochs.items()},
    }
    title, terminal = "Full-batch and stochastic gradient descent", ("method", "batch size", *epochs)
    notes = NOTES.format(lowest, 1 / full["learning_rate"])
    return Report(title, verdict(curves, (2, last)), Table.of(rows, columns), terminal, rows, notes, [IMAGE])


def suboptimality(run: pathlib.Path, num_examples: int) -> dict[int, float]:
    """Return the suboptimality of a run by the epochs after which it was validated."""
    return {n // num_examples: value for n, value in zip(*plots.curve(run, "suboptimality"), strict=True)}


def verdict(curves: dict[str, dict[int, float]], epochs: Sequence[int]) -> str:
    """Say which method is nearest to the optimum after some epochs, and how certain that is."""
    best = {n: min(curves, key=lambda name: curves[name][n]) for n in epochs}
    parts = [f"{name} after {n} epochs, {curves[name][n]:.1e} nats above it" for n, name in best.items()]
    return f"Nearest to the optimum: {'; '.join(parts)}. One seed: other orders of the examples end elsewhere."


def plot(folder: pathlib.Path, rows: Sequence[dict], curves: dict[str, dict[int, float]], lowest: float):
    """Write gradient_descent.png: the suboptimality of each method over the gradients it has computed."""
    figure, axes = plots.subplots(figsize=(8, 5))
    colors = plots.colors(curves)
    for row in rows:
        method, points = METHODS[row["method"]], {0: math.log(2) - lowest, **curves[row["method"]]}
        style = {"color": colors[row["method"]], "linestyle": "-" if method.stochastic else (0, (5, 1.5))}
        label = f"{method.description} ({row['steps']:,} steps)"
        axes.plot([*points], [*points.values()], marker="o", markersize=3, label=label, **style)
    axes.set_yscale("log")
    axes.set_xlabel(f"gradients computed, in epochs of {rows[0]['batch_size']:,} examples")
    axes.set_ylabel("suboptimality, nats")
    figure.legend(loc="outside lower center", ncols=2)
    plots.save(figure, folder / "gradient_descent.png")
