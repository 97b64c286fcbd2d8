"""Report of `experiments.optimizers`, with optimizers.png."""

import pathlib
from collections.abc import Sequence

import numpy as np

from experiments.frame import plots
from experiments.frame.report import Report
from experiments.frame.tables import Table
from experiments.optimizers.findings import OptimizerResult, by_optimizer, verdict

NOTES = (
    "Losses in nats per character, on disjoint windows from the zero state or the empty cache. Columns of factors and "
    "curves: loss of text held out from the training split, by which the learning rate is chosen. val_loss: loss of "
    "the validation split at the best rate. diverged: a loss or a gradient was not finite. The learning rate of muon "
    "is that of its hidden matrices; adamw has no weight decay here, so it equals adam."
)
IMAGE = "![Left: loss over tokens at the best rate. Right: final loss over learning rate](optimizers.png)"


def optimizers_report(title: str, folder: pathlib.Path, rows: Sequence[dict]) -> Report:
    """Plot the runs and return the report."""
    results = by_optimizer(rows)
    plot(folder, results)
    columns = ("optimizer", "best rate", "grid edge", "val_loss")
    return Report(f"Optimizers: {title}", verdict(results), table(results), columns, rows, NOTES, [IMAGE])


def table(results: Sequence[OptimizerResult]) -> Table:
    """Return a line for each optimizer."""
    factors = sorted({run["factor"] for result in results for run in result.runs})
    header = ["optimizer", "default rate", *(f"x {factor:g}" for factor in factors), "best rate", "grid edge"]
    lines = []
    for result in results:
        first, best = result.runs[0], result.best
        losses = ["diverged" if run["diverged"] else f"{run['held_out_loss']:.3f}" for run in result.runs]  # by factor
        last = ["-", "", "-"]
        if best is not None:
            last = [f"{best['learning_rate']:g}", result.grid_edge, f"{best['val_loss']:.3f}"]
        lines.append([result.name, f"{first['learning_rate'] / first['factor']:.3g}", *losses, *last])
    return Table([*header, "val_loss"], lines)


def plot(folder: pathlib.Path, results: Sequence[OptimizerResult]):
    """Write optimizers.png: on the left the curve of each optimizer's best rate, on the right final losses by rate."""
    figure, (curves, rates) = plots.subplots(1, 2, figsize=(12, 5), width_ratios=(6, 5))
    colors, ends, some_diverged = plots.colors([result.name for result in results]), {}, False
    at_top = {"transform": rates.get_xaxis_transform(), "clip_on": False}
    for result in results:
        # without weight decay the curve of adamw covers that of adam
        style = {"color": colors[result.name], "marker": "o", "linestyle": "--" if result.name == "adamw" else "-"}
        if result.best is not None:
            tokens, losses = plots.curve(folder / result.best["run"])
            curves.plot(tokens, losses, **style)
            ends[f"{result.name} {result.best['learning_rate']:g}"] = (tokens[-1], losses[-1], style["color"])
        finite = [(run["learning_rate"], run["held_out_loss"]) for run in result.runs if not run["diverged"]]
        rates.plot(*np.reshape(finite, (-1, 2)).T, label=result.name, **style)
        diverged = [run["learning_rate"] for run in result.runs if run["diverged"]]
        if diverged:
            some_diverged = True
            rates.plot(diverged, np.ones(len(diverged)), "x", color=style["color"], markersize=8, **at_top)
    plots.label_ends(curves, ends)
    plots.token_axis(curves, "training tokens (characters), each optimizer at its best learning rate")
    note = next((plots.sample_note(folder / result.best["run"]) for result in results if result.best), "")
    curves.set_ylabel(f"held-out loss{note} (nats per character)")
    rates.set_xscale("log")
    rates.set_xlabel("learning rate" + (" (x: diverged)" if some_diverged else ""))
    rates.set_ylabel("final held-out loss (nats per character)")
    rates.legend(loc="best")
    plots.save(figure, folder / "optimizers.png")
