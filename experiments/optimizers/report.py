"""Write the reports of `experiments.optimizers`: optimizers.json, optimizers.md and optimizers.png."""

import math
import pathlib
from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from experiments.frame import plots, report
from keras_seq.atomic_files import write_json, write_text
from keras_seq.training import read_metrics

KEY = "held_out_loss_per_character"
COLUMN_NOTES = (
    "Losses in nats per character, on disjoint windows from the zero state or the empty cache. Columns of factors and "
    "curves: loss of text held out from the training split, by which the learning rate is chosen. val_loss: loss of "
    "the validation split at the best rate. diverged: a loss or a gradient was not finite. The learning rate of muon "
    "is that of its hidden matrices; adamw has no weight decay here, so it equals adam. A best rate at the edge of the "
    "grid may not be the best one: try more --factors."
)


def best_run(rows: Sequence[dict]) -> dict | None:
    """Return the run with the lowest held-out loss, or None if all diverged."""
    return min((row for row in rows if row["diverged"] is None), key=lambda row: row[KEY], default=None)


def group_by_optimizer(rows: Sequence[dict]) -> dict[str, list[dict]]:
    """Return the runs of each optimizer by increasing learning rate, the best optimizer first."""
    groups = {}
    for row in sorted(rows, key=lambda row: row["learning_rate"]):
        groups.setdefault(row["optimizer"], []).append(row)
    losses = {name: best[KEY] if (best := best_run(group)) else math.inf for name, group in groups.items()}
    return {name: groups[name] for name in sorted(groups, key=losses.get)}


def grid_edge(group: Sequence[dict]) -> str:
    """Return "lowest" or "highest" if the best learning rate is at that edge of the grid, else ""."""
    best = best_run(group)
    if best is None or len(group) == 1 or best not in (group[0], group[-1]):
        return ""
    return "lowest" if best is group[0] else "highest"


def table(rows: Sequence[dict]) -> str:
    """Return the table of the results, a line for each optimizer."""
    factors = sorted({row["factor"] for row in rows})
    header = ["optimizer", "default rate", *(f"x {factor:g}" for factor in factors), "best rate", "grid edge"]
    lines = [[*header, "val_loss"]]
    for name, group in group_by_optimizer(rows).items():
        best = best_run(group)
        losses = {row["factor"]: "diverged" if row["diverged"] else f"{row[KEY]:.3f}" for row in group}
        default = f"{group[0]['learning_rate'] / group[0]['factor']:.3g}"
        if best is None:
            summary = ["-", "", "-"]
        else:
            summary = [f"{best['learning_rate']:g}", grid_edge(group), f"{best['val_loss_per_character']:.3f}"]
        lines.append([name, default, *(losses[factor] for factor in factors), *summary])
    return report.markdown_table(lines)


def write_report(folder: pathlib.Path, title: str, rows: Sequence[dict]):
    """Write the three files.

    Args:
        folder: Folder of the runs.
        title: Title of optimizers.md, after "Optimizers: ".
        rows: Results of the runs.
    """
    write_json(folder / "optimizers.json", rows)
    image = "![Left: loss over tokens at the best rate. Right: final loss over learning rate](optimizers.png)"
    write_text(
        folder / "optimizers.md", "\n\n".join([f"# Optimizers: {title}", table(rows), COLUMN_NOTES, image]) + "\n"
    )
    plot(folder, rows)


def plot(folder: pathlib.Path, rows: Sequence[dict]):
    """Write optimizers.png: on the left the curve of each optimizer's best rate, on the right final losses by rate.

    Args:
        folder: Folder of the runs.
        rows: Results of the runs.
    """
    figure, (curves, rates) = plt.subplots(1, 2, figsize=(12, 5), width_ratios=(6, 5), layout="constrained")
    ends = {}
    for number, (name, group) in enumerate(group_by_optimizer(rows).items()):
        style = {"color": f"C{number}", "linewidth": 1.7, "marker": "o", "markersize": 3.5}
        style["linestyle"] = "--" if name == "adamw" else "-"  # without weight decay its curve covers that of adam
        if (best := best_run(group)) is not None:
            lines = read_metrics(folder / best["run"], "validation")
            points = [(line["tokens"], line["val_loss"]) for line in lines]
            curves.plot(*zip(*points, strict=True), **style)
            ends[f"{name} {best['learning_rate']:g}"] = (*points[-1], style["color"])
        finite = [row for row in group if row["diverged"] is None]
        rates.plot([row["learning_rate"] for row in finite], [row[KEY] for row in finite], label=name, **style)
        for row in group:
            if row["diverged"]:
                at_top = {"transform": rates.get_xaxis_transform(), "clip_on": False}
                rates.plot(row["learning_rate"], 1.0, "x", color=style["color"], markersize=8, **at_top)
    label_ends(curves, ends)
    curves.xaxis.set_major_formatter(FuncFormatter(report.thousands))
    curves.set_xlabel("training tokens (characters), each optimizer at its best learning rate")
    curves.set_ylabel("held-out loss (nats per character)")
    rates.set_xscale("log")
    rates.set_xlabel("learning rate" + (" (x: diverged)" if any(row["diverged"] for row in rows) else ""))
    rates.set_ylabel("final held-out loss (nats per character)")
    rates.legend(frameon=False, loc="upper left", fontsize=9)
    for axes in (curves, rates):
        plots.style_axes(axes)
    plots.save(figure, folder / "optimizers.png")


def label_ends(axes: Axes, ends: dict[str, tuple]):
    """Label the ends of curves, moving labels apart where they would overlap.

    Args:
        axes: Axes of the curves.
        ends: From a label to the end of its curve and its color, `(x, y, color)`.
    """
    low, high = axes.get_ylim()
    label_y = -math.inf
    for name, (x, y, color) in sorted(ends.items(), key=lambda end: end[1][1]):
        label_y = max(y, label_y + 0.045 * (high - low))
        axes.annotate(
            name,
            (x, y),
            (x * 1.07, label_y),
            textcoords="data",
            va="center",
            color=color,
            fontsize=9,
            arrowprops={
                "arrowstyle": "-",
                "color": color,
                "alpha": 0.5,
                "linewidth": 0.8,
                "relpos": (0, 0.5),
                "shrinkA": 0,
                "shrinkB": 3,
            },
        )
    if ends:
        axes.set_xlim(right=1.34 * max(x for x, _, _ in ends.values()))


def final_message(folder: pathlib.Path, rows: Sequence[dict]) -> str:
    """Return what the terminal shows at the end: the table and the files written.

    Args:
        folder: Folder of the runs.
        rows: Results of the runs.
    """
    files = f"Curves:  {folder / 'optimizers.png'}\nReport:  {folder / 'optimizers.md'}"
    return "\n" + "\n\n".join([table(rows), COLUMN_NOTES, files]) + f"\n{report.tensorboard_hint(folder)}"
