"""What `experiments.optimizers` leaves beside its runs: optimizers.json, optimizers.md and optimizers.png."""

import math
import pathlib

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter

from experiments import pictures, report
from keras_seq.atomic_files import write_json, write_text
from keras_seq.training import read_metrics

KEY = "held_out_loss_per_character"
NOTES = (
    "Nats per character, every window from the zero state or the empty cache. Rates are compared on text held out from "
    "the training split (the columns of factors; the curves); validation: of the run at the best rate, on the "
    "validation split. diverged: a loss or a gradient was no longer a number. The learning rate of muon is that of its "
    "hidden matrices; adamw decays nothing here, which makes it adam. A best rate at the border "
    "of the grid may not be the best one: try further --factors."
)


def best(rows) -> dict | None:
    """The run of the lowest held-out loss, None where all have diverged."""
    return min((row for row in rows if row["diverged"] is None), key=lambda row: row[KEY], default=None)


def by_optimizer(rows) -> dict[str, list[dict]]:
    """The runs of each optimizer by rising learning rate, the best optimizer first."""
    groups = {}
    for row in sorted(rows, key=lambda row: row["learning_rate"]):
        groups.setdefault(row["optimizer"], []).append(row)
    order = {name: chosen[KEY] if (chosen := best(group)) else math.inf for name, group in groups.items()}
    return {name: groups[name] for name in sorted(groups, key=order.get)}


def border(group) -> str:
    """At which end of the grid the best rate stands, if at one."""
    chosen = best(group)
    if chosen is None or len(group) == 1 or chosen not in (group[0], group[-1]):
        return ""
    return "lowest tried" if chosen is group[0] else "highest tried"


def table(rows) -> str:
    """A line for each optimizer, as a Markdown table that reads as plain text too."""
    factors = sorted({row["factor"] for row in rows})
    lines = [["optimizer", "default", *(f"x {factor:g}" for factor in factors), "best rate", "border", "validation"]]
    for name, group in by_optimizer(rows).items():
        chosen = best(group)
        found = {row["factor"]: "diverged" if row["diverged"] else f"{row[KEY]:.3f}" for row in group}
        default = f"{group[0]['learning_rate'] / group[0]['factor']:.3g}"
        end = (
            ["-", "", "-"]
            if chosen is None
            else [f"{chosen['learning_rate']:g}", border(group), f"{chosen['val_loss_per_character']:.3f}"]
        )
        lines.append([name, default, *(found[factor] for factor in factors), *end])
    return report.aligned(lines)


def write(folder: pathlib.Path, title, rows):
    """Writes the three files into `folder`."""
    write_json(folder / "optimizers.json", rows)
    picture = "![Left: loss over tokens at the best rate. Right: final loss over learning rate](optimizers.png)"
    write_text(folder / "optimizers.md", "\n\n".join([f"# Optimizers: {title}", table(rows), NOTES, picture]) + "\n")
    draw(folder, rows)


def draw(folder, rows):
    """optimizers.png: on the left a curve for each optimizer at its best rate; on the right final losses by rate."""
    figure, (curves, rates) = plt.subplots(1, 2, figsize=(12, 5), width_ratios=(6, 5), layout="constrained")
    ends = {}
    for number, (name, group) in enumerate(by_optimizer(rows).items()):
        style = {"color": f"C{number}", "linewidth": 1.7, "marker": "o", "markersize": 3.5}
        style["linestyle"] = "--" if name == "adamw" else "-"  # without decay, as it is here, it lies on adam
        if (chosen := best(group)) is not None:
            lines = read_metrics(folder / chosen["run"] / "metrics.jsonl")
            points = [(line["tokens"], line["val_loss"]) for line in lines if line["split"] == "validation"]
            curves.plot(*zip(*points, strict=True), **style)
            ends[f"{name} {chosen['learning_rate']:g}"] = (*points[-1], style["color"])
        finite = [row for row in group if row["diverged"] is None]
        rates.plot([row["learning_rate"] for row in finite], [row[KEY] for row in finite], label=name, **style)
        for row in group:
            if row["diverged"]:
                at_the_top = {"transform": rates.get_xaxis_transform(), "clip_on": False}
                rates.plot(row["learning_rate"], 1.0, "x", color=style["color"], markersize=8, **at_the_top)
    label_ends(curves, ends)
    curves.xaxis.set_major_formatter(FuncFormatter(report.thousands))
    curves.set_xlabel("characters seen, each optimizer at its best learning rate")
    curves.set_ylabel("nats per character of held-out text")
    rates.set_xscale("log")
    rates.set_xlabel("learning rate" + (" (x: diverged)" if any(row["diverged"] for row in rows) else ""))
    rates.set_ylabel("nats per character of held-out text at the end")
    rates.legend(frameon=False, loc="upper left", fontsize=9)
    for axes in (curves, rates):
        pictures.plain(axes)
    pictures.save(figure, folder / "optimizers.png")


def label_ends(axes, ends):
    """Names at the ends of curves, moved apart where they would cover each other.

    Args:
        axes: where the curves are.
        ends: from a name to the end of its curve and its colour, `(x, y, colour)`.
    """
    low, high = axes.get_ylim()
    above = -math.inf
    for name, (x, y, colour) in sorted(ends.items(), key=lambda end: end[1][1]):
        above = max(y, above + 0.045 * (high - low))
        axes.annotate(
            name,
            (x, y),
            (x * 1.07, above),
            textcoords="data",
            va="center",
            color=colour,
            fontsize=9,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "alpha": 0.5,
                "linewidth": 0.8,
                "relpos": (0, 0.5),
                "shrinkA": 0,
                "shrinkB": 3,
            },
        )
    if ends:
        axes.set_xlim(right=1.34 * max(x for x, _, _ in ends.values()))


def closing(folder: pathlib.Path, rows) -> str:
    """What the terminal shows at the end."""
    files = f"Curves:  {folder / 'optimizers.png'}\nReport:  {folder / 'optimizers.md'}"
    return "\n" + "\n\n".join([table(rows), NOTES, files]) + f"\n{report.to_look(folder)}"
