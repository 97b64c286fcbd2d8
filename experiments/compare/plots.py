"""Plot loss_curves.png: on the left the losses over tokens, a color for each model; on the right the final losses."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter
from matplotlib.transforms import blended_transform_factory

from experiments.compare.findings import CURVES, ComparisonResults
from experiments.frame import plots
from experiments.frame.report import thousands
from keras_seq.baselines import Baseline

STYLES = {
    "train loss": {"alpha": 0.35, "linewidth": 1.2},
    "val_loss": {"linewidth": 1.8, "marker": "o", "markersize": 3},
    "val_loss_streaming": {"linewidth": 1.6, "linestyle": (0, (1.5, 1.2))},
}
BASELINES = ("unigram", "2-gram", "3-gram", "4-gram", "6-gram", "xz", "bzip2")  # lines that are far enough apart
MIN_LABEL_DISTANCE = 0.035  # fraction of the axes' height


def plot(results: ComparisonResults):
    """Write loss_curves.png into the folder of the comparison."""
    colors = {model: f"C{n % 10}" for n, model in enumerate(results.models)}
    height = max(4.8, 1.6 + 0.4 * len(colors))
    figure, (curves, ends) = plt.subplots(1, 2, figsize=(11, height), width_ratios=(5, 3), layout="constrained")
    plot_curves(curves, results, colors)
    plot_final_losses(ends, results, colors)
    plots.style_axes(curves)
    plots.style_axes(ends)
    plots.save(figure, results.folder / "loss_curves.png")


def plot_curves(axes: Axes, results: ComparisonResults, colors: dict[str, str]):
    """Plot means over the seeds, with bands from the lowest to the highest seed.

    Args:
        axes: Axes to plot into.
        results: Results of the comparison.
        colors: Color of each model.
    """
    highest = 0.0
    for model, color in colors.items():
        for name, style in STYLES.items():
            curve = results.curve(model, name)
            axes.plot(curve["tokens"], curve["mean"], color=color, **style)
            if results.num_seeds > 1:
                alpha = 0.25 * style.get("alpha", 1)
                axes.fill_between(curve["tokens"], curve["low"], curve["high"], color=color, alpha=alpha, linewidth=0)
            if CURVES[name][0] == "validation":
                highest = max(highest, curve["mean"][0])
    lowest = min(min(results.curve(model, name)["low"]) for model in colors for name in STYLES)
    axes.set_ylim(lowest - 0.05, max(highest + 0.1, lowest + 0.5))
    plot_baselines(axes, results.baselines)
    axes.xaxis.set_major_formatter(FuncFormatter(thousands))
    axes.set_xlabel("training tokens (characters)")
    axes.set_ylabel("loss (nats per character)")
    handles = [Line2D([], [], color=color, linewidth=2.2, label=model) for model, color in colors.items()]
    gray = [Line2D([], [], color="0.3", label=name, **style) for name, style in STYLES.items()]
    opaque = {"facecolor": "white", "edgecolor": "none", "framealpha": 0.9}
    axes.add_artist(axes.legend(handles=handles, loc="upper right", **opaque))
    axes.legend(handles=gray, loc="upper center", **opaque)


def plot_baselines(axes: Axes, baselines: Sequence[Baseline]):
    """Plot a thin line for each baseline within the y limits, and name the others above the axes.

    Args:
        axes: Axes to plot into, with their final y limits.
        baselines: Baselines; those not named in `BASELINES` are left out.
    """
    low, high = axes.get_ylim()
    off_scale, labels = [], []
    for baseline in baselines:
        loss = baseline.loss_per_character
        if baseline.name not in BASELINES:
            continue
        if not low < loss < high:
            off_scale.append(f"{baseline.name} {loss:.2f}")
            continue
        axes.axhline(loss, color="0.55", linewidth=0.7, linestyle=(0, (4, 3)), zorder=0)
        labels.append((loss, baseline.name))
    step, last = MIN_LABEL_DISTANCE * (high - low), low
    for loss, name in sorted(labels):
        last = max(loss, last + step)
        transform = blended_transform_factory(axes.transAxes, axes.transData)
        axes.text(0.005, last, name, transform=transform, fontsize=7.5, color="0.45", va="bottom")
    if off_scale:
        title = f"baselines off the scale: {', '.join(off_scale)}"
        axes.set_title(title, fontsize=7.5, color="0.45", loc="right", pad=3)


def plot_final_losses(axes: Axes, results: ComparisonResults, colors: dict[str, str]):
    """Plot the final losses, the best model on top: a dot for each seed, and the mean val_loss as a number.

    Args:
        axes: Axes to plot into.
        results: Results of the comparison.
        colors: Color of each model.
    """
    order = sorted(colors, key=lambda model: results.mean(model, "val_loss_per_character"), reverse=True)
    for y, model in enumerate(order):
        for key, fill in (("val_loss_per_character", "full"), ("val_loss_per_character_streaming", "none")):
            losses = [row[key] for row in results.for_model(model)]
            axes.plot(losses, [y] * len(losses), "o", color=colors[model], markersize=7, fillstyle=fill)
        mean = results.mean(model, "val_loss_per_character")
        axes.annotate(f"{mean:.3f}", (mean, y), (0, 8), textcoords="offset points", ha="center", fontsize=9)
    axes.set_yticks(range(len(order)), order)
    axes.set_ylim(-0.6, len(order) - 0.2)
    axes.margins(x=0.12)
    axes.set_xlabel("final loss (nats per character)")
    best = min(results.baselines, key=lambda baseline: baseline.loss_per_character)
    low, high = axes.get_xlim()
    if low < best.loss_per_character < high:
        axes.axvline(best.loss_per_character, color="0.55", linewidth=0.7, linestyle=(0, (4, 3)), zorder=0)
    title = f"best baseline: {best.name} {best.loss_per_character:.3f}"
    axes.set_title(title, fontsize=7.5, color="0.45", loc="right", pad=3)
    handles = [
        Line2D([], [], color="0.3", marker="o", linestyle="", markersize=7, fillstyle=fill, label=label)
        for fill, label in (("full", "val_loss"), ("none", "val_loss_streaming"))
    ]
    axes.legend(handles=handles, frameon=False, loc="upper right")
