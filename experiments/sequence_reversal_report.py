"""What `experiments.reverse` leaves beside its runs, reverse.json, reverse.md and reverse.png, and says at the end."""

import math
import pathlib

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from experiments import pictures, report
from experiments.reverse_scores import TOLERANCE
from keras_seq.atomic_files import write_json, write_text
from keras_seq.training import read_metrics

COLUMNS = {
    "model": lambda row: row["model"],
    "parameters": lambda row: f"{row['parameters']:,}",
    "training tokens": lambda row: f"{row['train_tokens']:,}",
    "seconds": lambda row: f"{row['train_seconds']:.0f}",
    "second half right": lambda row: f"{row['second_half_accuracy']:.2%}",
    "sequences right": lambda row: f"{row['sequence_accuracy']:.2%}",
    "first-half nats": lambda row: f"{row['first_half_loss']:.3f}",
    "least": lambda row: f"{row['entropy']:.3f}",
}
NOTES = (
    "Of new sequences, as many at each trained length. second half right: ids behind the separator. sequences right: "
    "all of them, which is when greedy generation of a causal model gets them right too. first-half nats: for a letter "
    "before the separator, given that a letter comes. least: log of the size of the alphabet; nobody gets below it "
    "without seeing the future."
)
STYLES = {"second_half_accuracy": {"linestyle": "-"}, "sequence_accuracy": {"linestyle": (0, (3, 1.5))}}
NAMES = {"second_half_accuracy": "ids of the second half", "sequence_accuracy": "whole sequences"}


def table(rows) -> str:
    """A Markdown table, aligned so that it reads as plain text too."""
    return report.aligned([list(COLUMNS), *[[show(row) for show in COLUMNS.values()] for row in rows]])


def lengths(rows) -> str:
    """What is right at each length, as a Markdown table; a star where the length was trained on."""
    header = ["length", *(f"{row['model']}, {name}" for row in rows for name in ("ids", "sequences"))]
    lines = [header]
    for parts in zip(*(row["by_length"] for row in rows), strict=True):
        shares = [f"{part[key]:.2%}" for part in parts for key in STYLES]
        lines.append([f"{parts[0]['length']}{' *' if parts[0]['trained'] else '  '}", *shares])
    return report.aligned(lines)


def verdicts(rows) -> str:
    """A sentence for each model."""
    return "\n".join(f"{row['model']}: {row['verdict']}" for row in rows)


def write(folder: pathlib.Path, rows):
    """Writes the three files into `folder`."""
    write_json(folder / "reverse.json", [{k: v for k, v in row.items() if k != "sample"} for row in rows])
    parts = ["# A sequence, then its reverse", table(rows), NOTES]
    parts += [f"- {line}" for line in verdicts(rows).splitlines()]
    parts += ["![What is right over training and by length, and the loss of the first half](reverse.png)"]
    parts += ["## By length (* trained on)", lengths(rows)]
    parts += [f"## What {row['model']} writes\n\n{report.indented(row['sample'])}" for row in rows]
    write_text(folder / "reverse.md", "\n\n".join(parts) + "\n")
    draw(folder, rows)


def draw(folder, rows):
    """reverse.png: on the left what is right, and the loss of the first half, over training; on the right by length."""
    panes = [["right", "lengths"], ["first", "lengths"]]
    figure, axes = plt.subplot_mosaic(panes, figsize=(11, 5.4), layout="constrained")
    for number, row in enumerate(rows):
        draw_training(axes["right"], axes["first"], folder / row["run"] / "metrics.jsonl", f"C{number}")
        for key, style in STYLES.items():
            points = [(part["length"], part[key]) for part in row["by_length"]]
            axes["lengths"].plot(*zip(*points, strict=True), color=f"C{number}", linewidth=1.8, **style)
    least = rows[0]["entropy"]
    below, above = least * (1 - TOLERANCE), least * (1 + TOLERANCE)
    axes["first"].axhspan(below, above, color="0.93", zorder=0)
    axes["first"].axhline(least, color="0.3", linewidth=1, linestyle=":")
    note = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "top", "fontsize": 9, "color": "0.3"}
    size = f"log {round(math.exp(least))} = {least:.3f}"
    axes["first"].annotate(f"{size} ± {TOLERANCE:.0%}; who gets lower sees the future", (0.99, below), **note)
    lowest, highest = axes["first"].get_ylim()
    axes["first"].set_ylim(min(lowest, below - 0.15 * (highest - lowest)), highest)
    axes["first"].set_ylabel("first half: nats a letter")
    axes["right"].set_ylabel("second half: right")
    axes["first"].set_xlabel("training tokens")
    axes["first"].xaxis.set_major_formatter(FuncFormatter(report.thousands))
    axes["right"].sharex(axes["first"])
    axes["right"].tick_params(labelbottom=False)
    above_axes = {"xycoords": ("data", "axes fraction"), "ha": "center", "fontsize": 9, "color": "0.3"}
    trained = [part["length"] for part in rows[0]["by_length"] if part["trained"]]
    axes["lengths"].axvspan(trained[0] - 0.5, trained[-1] + 0.5, color="0.93", zorder=0)
    axes["lengths"].annotate("trained lengths", (np.mean([trained[0], trained[-1]]), 1.01), **above_axes)
    axes["lengths"].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes["lengths"].set_ylabel("second half: right")
    axes["lengths"].set_xlabel("letters in the sequence")
    for name in ("right", "lengths"):
        axes[name].set_ylim(-0.03, 1.03)
        axes[name].yaxis.set_major_formatter(PercentFormatter(1.0))
    colours = [Line2D([], [], color=f"C{n}", linewidth=2.2, label=row["model"]) for n, row in enumerate(rows)]
    kinds = [Line2D([], [], color="0.3", label=NAMES[key], **style) for key, style in STYLES.items()]
    axes["right"].legend(handles=[*colours, *kinds], frameon=False, loc="lower right", ncols=2, fontsize=9)
    for each in axes.values():
        pictures.plain(each)
    pictures.save(figure, folder / "reverse.png")


def draw_training(right, first, path, colour):
    """One model's validations."""
    lines = read_metrics(path)
    lines = [line for line in lines if line["split"] == "validation"]
    tokens = [line["tokens"] for line in lines]
    for key, style in STYLES.items():
        right.plot(tokens, [line[key] for line in lines], color=colour, linewidth=1.8, **style)
    first.plot(tokens, [line["first_half_loss"] for line in lines], color=colour, linewidth=1.8)


def attention_maps(maps, signs):
    """A figure of attention weights `[H, T, T]` of each layer, dark where a position (row) looks (column)."""
    rows, columns = len(maps), len(maps[0])
    size = (3.4 * columns, 3.6 * rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    figure.get_layout_engine().set(h_pad=0.08)
    for layer, heads in enumerate(maps):
        for head, weights in enumerate(heads):
            pane = axes[layer, head]
            pane.imshow(weights, cmap="Greys", vmin=0, vmax=1)
            pane.set_xticks(range(len(signs)), signs, fontsize=7)
            pane.set_yticks(range(len(signs)), signs, fontsize=7)
            pane.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=9)
    return figure


def closing(folder: pathlib.Path, rows) -> str:
    """What the terminal shows at the end."""
    samples = [f"{row['model']} writes:\n{report.indented(row['sample'])}" for row in rows]
    files = f"Curves:  {folder / 'reverse.png'}\nReport:  {folder / 'reverse.md'}"
    return "\n" + "\n\n".join([table(rows), NOTES, *samples, verdicts(rows), files]) + f"\n{report.to_look(folder)}"
