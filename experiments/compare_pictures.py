"""loss_curves.png: on the left the losses over tokens, a colour a model; on the right where each model ends."""

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter
from matplotlib.transforms import blended_transform_factory

from experiments import pictures
from experiments.compare_findings import CURVES, Findings
from experiments.report import thousands

STYLES = {
    "training": {"alpha": 0.35, "linewidth": 1.2},
    "cold validation": {"linewidth": 1.8, "marker": "o", "markersize": 3},
    "warm validation": {"linewidth": 1.6, "linestyle": (0, (1.5, 1.2))},
}
SHOWN = ("unigram", "2-gram", "3-gram", "4-gram", "6-gram", "xz", "bzip2")  # lines that would lie apart
APART = 0.035  # of the height of the picture, so that labels do not touch


def draw(found: Findings):
    """Writes the picture."""
    colours = {model: f"C{n % 10}" for n, model in enumerate(found.models)}
    height = max(4.8, 1.6 + 0.4 * len(colours))
    figure, (curves, ends) = plt.subplots(1, 2, figsize=(11, height), width_ratios=(5, 3), layout="constrained")
    draw_curves(curves, found, colours)
    draw_ends(ends, found, colours)
    pictures.plain(curves)
    pictures.plain(ends)
    pictures.save(figure, found.folder / "loss_curves.png")


def draw_curves(axes, found, colours):
    """Means over the seeds, with bands from the lowest to the highest seed; training faint, warm validation dotted."""
    highest = 0.0
    for model, colour in colours.items():
        for name, style in STYLES.items():
            curve = found.curve(model, name)
            axes.plot(curve["tokens"], curve["mean"], color=colour, **style)
            if found.seeds > 1:
                faint = 0.25 * style.get("alpha", 1)
                axes.fill_between(curve["tokens"], curve["low"], curve["high"], color=colour, alpha=faint, linewidth=0)
            if CURVES[name][0] == "validation":
                highest = max(highest, curve["mean"][0])
    lowest = min(min(found.curve(model, name)["low"]) for model in colours for name in STYLES)
    axes.set_ylim(lowest - 0.05, max(highest + 0.1, lowest + 0.5))
    draw_references(axes, found.references)
    axes.xaxis.set_major_formatter(FuncFormatter(thousands))
    axes.set_xlabel("tokens seen (characters)")
    axes.set_ylabel("nats per character")
    handles = [Line2D([], [], color=colour, linewidth=2.2, label=model) for model, colour in colours.items()]
    grey = [Line2D([], [], color="0.3", label=name, **style) for name, style in STYLES.items()]
    opaque = {"facecolor": "white", "edgecolor": "none", "framealpha": 0.9}
    axes.add_artist(axes.legend(handles=handles, loc="upper right", **opaque))
    axes.legend(handles=grey, loc="upper center", **opaque)


def draw_references(axes, references):
    """A thin line for what needs no training; in words above the picture what lies outside of it."""
    low, high = axes.get_ylim()
    outside, labels = [], []
    for reference in references:
        value = reference.loss_per_character
        if reference.name not in SHOWN:
            continue
        if not low < value < high:
            outside.append(f"{reference.name} {value:.2f}")
            continue
        axes.axhline(value, color="0.55", linewidth=0.7, linestyle=(0, (4, 3)), zorder=0)
        labels.append((value, reference.name))
    step, last = APART * (high - low), low
    for value, name in sorted(labels):
        last = max(value, last + step)
        place = blended_transform_factory(axes.transAxes, axes.transData)
        axes.text(0.005, last, name, transform=place, fontsize=7.5, color="0.45", va="bottom")
    if outside:
        told = f"without training, off the scale: {', '.join(outside)}"
        axes.set_title(told, fontsize=7.5, color="0.45", loc="right", pad=3)


def draw_ends(axes, found, colours):
    """The final scores, the best model on top: a dot a seed, the mean of the cold ones as a number."""
    order = sorted(colours, key=lambda model: found.mean(model, "val_loss_per_character"), reverse=True)
    for y, model in enumerate(order):
        for key, fill in (("val_loss_per_character", "full"), ("val_loss_per_character_streaming", "none")):
            values = [row[key] for row in found.of(model)]
            axes.plot(values, [y] * len(values), "o", color=colours[model], markersize=7, fillstyle=fill)
        mean = found.mean(model, "val_loss_per_character")
        axes.annotate(f"{mean:.3f}", (mean, y), (0, 8), textcoords="offset points", ha="center", fontsize=9)
    axes.set_yticks(range(len(order)), order)
    axes.set_ylim(-0.6, len(order) - 0.2)
    axes.margins(x=0.12)
    axes.set_xlabel("nats per character at the end")
    best = min(found.references, key=lambda reference: reference.loss_per_character)
    low, high = axes.get_xlim()
    if low < best.nats_per_character < high:
        axes.axvline(best.nats_per_character, color="0.55", linewidth=0.7, linestyle=(0, (4, 3)), zorder=0)
    axes.set_title(
        f"best without training: {best.name} {best.nats_per_character:.3f}",
        fontsize=7.5,
        color="0.45",
        loc="right",
        pad=3,
    )
    marks = [
        Line2D([], [], color="0.3", marker="o", linestyle="", markersize=7, fillstyle=fill, label=label)
        for fill, label in (("full", "cold"), ("none", "warm"))
    ]
    axes.legend(handles=marks, frameon=False, loc="upper right")
