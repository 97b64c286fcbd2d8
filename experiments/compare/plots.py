"""Plot loss_curves.png: on the left the losses over tokens, a color for each model; on the right the final losses."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from experiments.common import plots
from experiments.compare.findings import CURVES, ComparisonResults

STYLES = {
    "train loss": {"alpha": 0.35, "linewidth": 1.2},
    "val_loss": {"linewidth": 1.8, "marker": "o", "markersize": 3},
    "val_loss_streaming": {"linewidth": 1.6, "linestyle": (0, (1.5, 1.2))},
}
FILLS = {"val_loss_per_character": "full", "val_loss_per_character_streaming": "none"}
BASELINES = ("unigram", "2-gram", "3-gram", "4-gram", "6-gram", "xz", "bzip2")  # lines that are far enough apart
LABEL_DISTANCE = 0.035  # fraction of the axes' height
NOTE = {"fontsize": 7.5, "color": "0.45", "pad": 3}
DASHED = {"color": "0.55", "linewidth": 0.7, "linestyle": (0, (4, 3)), "zorder": 0}


def plot(results: ComparisonResults):
    """Write loss_curves.png into the folder of the comparison."""
    colors = plots.colors(results.models)
    height = max(5.0, 1.8 + 0.4 * len(colors))
    figure, (curves, ends) = plots.subplots(1, 2, figsize=(11, height), width_ratios=(5, 3))
    seeds = f", {results.num_seeds} seeds each" if results.num_seeds > 1 else ""
    figure.suptitle(f"{results.corpus.name}, {results.folder.name}{seeds}", fontsize=11)
    plot_curves(curves, results, colors)
    plot_final_losses(ends, results, colors)
    plots.save(figure, results.folder / "loss_curves.png")


def plot_curves(axes: Axes, results: ComparisonResults, colors: dict[str, str]):
    """Plot means over the seeds, with bands from the lowest to the highest seed."""
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
    plot_baselines(axes, results.curve_baselines)
    scored = f"\nvalidation and baselines: {results.scored}" if results.scored else ""
    plots.token_axis(axes, f"training tokens (characters){scored}")
    axes.set_ylabel("loss (nats per character)")
    plots.legend(axes, colors, STYLES, loc="upper left", bbox_to_anchor=(0, -0.18), ncols=3)


def plot_baselines(axes: Axes, baselines: Sequence[tuple[str, float]]):
    """Plot a thin line for each baseline, name and loss, within the y limits, and name the others above the axes."""
    low, high = axes.get_ylim()
    named = sorted((loss, name) for name, loss in baselines if name in BASELINES)
    visible = [(loss, name) for loss, name in named if low < loss < high]
    for (loss, name), y in zip(
        visible, plots.spread([b[0] for b in visible], LABEL_DISTANCE * (high - low)), strict=True
    ):
        axes.axhline(loss, **DASHED)
        axes.text(0.005, y, name, transform=axes.get_yaxis_transform(), fontsize=7.5, color="0.45", va="bottom")
    hidden = [f"{name} {loss:.2f}" for loss, name in named if not low < loss < high]
    if hidden:
        axes.set_title(f"off the scale: {', '.join(hidden)}", loc="right", **NOTE)


def plot_final_losses(axes: Axes, results: ComparisonResults, colors: dict[str, str]):
    """Plot the final losses, best model on top: dots for each seed, the mean val_loss; below the best baselines."""
    order = sorted(colors, key=lambda model: results.mean(model, "val_loss_per_character"), reverse=True)
    for y, model in enumerate(order):
        for key, fill in FILLS.items():
            losses = [row[key] for row in results.for_model(model)]
            axes.plot(losses, [y] * len(losses), "o", color=colors[model], markersize=7, fillstyle=fill)
        mean = results.mean(model, "val_loss_per_character")
        axes.annotate(f"{mean:.3f}", (mean, y), (0, 8), textcoords="offset points", ha="center", fontsize=9)
    for y, baseline in enumerate(results.best_baselines, start=1):
        loss = baseline.loss_per_character
        axes.plot([loss], [-y], "o", color="0.55", markersize=7, fillstyle="none")
        axes.annotate(
            f"{loss:.3f}", (loss, -y), (0, 8), textcoords="offset points", ha="center", fontsize=9, color="0.45"
        )
    names = [*(b.name for b in reversed(results.best_baselines)), *order]
    axes.set_yticks(range(len(order) - len(names), len(order)), names)
    axes.axhline(-0.5, **DASHED)
    axes.set_ylim(len(order) - len(names) - 0.4, len(order) - 0.3)
    axes.margins(x=0.12)
    axes.set_xlabel("final loss (nats per character),\nwhole validation text")
    axes.set_title("baselines have all the text before, as val_loss_streaming has", loc="right", **NOTE)
    dot = {"marker": "o", "linestyle": "", "markersize": 7}
    styles = {key.replace("_per_character", ""): {**dot, "fillstyle": fill} for key, fill in FILLS.items()}
    plots.legend(axes, {}, styles, loc="upper left", bbox_to_anchor=(-0.1, -0.18), ncols=2)
