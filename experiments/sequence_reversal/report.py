"""Report of `experiments.sequence_reversal`: sequence_reversal.json, .md and .png, and the final message."""

import math
import pathlib

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from experiments.frame import plots, report
from experiments.sequence_reversal.scores import TOLERANCE
from keras_seq.atomic_files import write_json, write_text
from keras_seq.training import read_metrics

COLUMNS = {
    "model": lambda row: row["model"],
    "parameters": lambda row: f"{row['parameters']:,}",
    "train tokens": lambda row: f"{row['train_tokens']:,}",
    "train seconds": lambda row: f"{row['train_seconds']:.0f}",
    "second half accuracy": lambda row: f"{row['second_half_accuracy']:.2%}",
    "sequence accuracy": lambda row: f"{row['sequence_accuracy']:.2%}",
    "first half loss": lambda row: f"{row['first_half_loss']:.3f}",
    "letter entropy": lambda row: f"{row['entropy']:.3f}",
}
COLUMN_NOTES = (
    "The test sequences are new, with equally many of each training length. second half accuracy: of the ids after the "
    "separator. sequence accuracy: the fraction of sequences with a correct second half; greedy generation of a causal "
    "model has the same. first half loss: nats per letter before the separator, given that a letter comes. entropy: "
    "log of the alphabet size, the lowest possible first half loss of a causal model."
)
STYLES = {"second_half_accuracy": {"linestyle": "-"}, "sequence_accuracy": {"linestyle": (0, (3, 1.5))}}
NAMES = {"second_half_accuracy": "ids of the second half", "sequence_accuracy": "whole sequences"}


def table(rows: list[dict]) -> str:
    """Format the rows as a Markdown table."""
    return report.markdown_table([list(COLUMNS), *[[show(row) for show in COLUMNS.values()] for row in rows]])


def lengths(rows: list[dict]) -> str:
    """Format the accuracies at each length as a Markdown table, with a star at training lengths."""
    header = ["length", *(f"{row['model']}, {name}" for row in rows for name in ("ids", "sequences"))]
    lines = [header]
    for parts in zip(*(row["by_length"] for row in rows), strict=True):
        shares = [f"{part[key]:.2%}" for part in parts for key in STYLES]
        lines.append([f"{parts[0]['length']}{' *' if parts[0]['trained'] else '  '}", *shares])
    return report.markdown_table(lines)


def verdicts(rows: list[dict]) -> str:
    """Format the causality verdict of each model as a line."""
    return "\n".join(f"{row['model']}: {row['verdict']}" for row in rows)


def write_report(folder: pathlib.Path, rows: list[dict]):
    """Write sequence_reversal.json, sequence_reversal.md and sequence_reversal.png.

    Args:
        folder: Folder of the experiment.
        rows: Results of the runs.
    """
    write_json(folder / "sequence_reversal.json", [{k: v for k, v in row.items() if k != "sample"} for row in rows])
    parts = ["# Sequence reversal", table(rows), COLUMN_NOTES]
    parts += [f"- {line}" for line in verdicts(rows).splitlines()]
    parts += ["![Accuracy during training and by length, and the first half loss](sequence_reversal.png)"]
    parts += ["## By length (* training length)", lengths(rows)]
    parts += [f"## Samples of {row['model']}\n\n{report.indented(row['sample'])}" for row in rows]
    write_text(folder / "sequence_reversal.md", "\n\n".join(parts) + "\n")
    plot(folder, rows)


def plot(folder: pathlib.Path, rows: list[dict]):
    """Plot accuracies and first half loss during training on the left, and accuracies by length on the right.

    Args:
        folder: Folder of the experiment.
        rows: Results of the runs.
    """
    layout = [["accuracy", "lengths"], ["loss", "lengths"]]
    figure, axes = plt.subplot_mosaic(layout, figsize=(11, 5.4), layout="constrained")
    for number, row in enumerate(rows):
        plot_training(axes["accuracy"], axes["loss"], folder / row["run"], f"C{number}")
        for key, style in STYLES.items():
            points = [(part["length"], part[key]) for part in row["by_length"]]
            axes["lengths"].plot(*zip(*points, strict=True), color=f"C{number}", linewidth=1.8, **style)
    entropy = rows[0]["entropy"]
    low, high = entropy * (1 - TOLERANCE), entropy * (1 + TOLERANCE)
    axes["loss"].axhspan(low, high, color="0.93", zorder=0)
    axes["loss"].axhline(entropy, color="0.3", linewidth=1, linestyle=":")
    note = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "top", "fontsize": 9, "color": "0.3"}
    bound = f"log {round(math.exp(entropy))} = {entropy:.3f}"
    axes["loss"].annotate(f"{bound} ± {TOLERANCE:.0%}; a lower loss means seeing future tokens", (0.99, low), **note)
    lowest, highest = axes["loss"].get_ylim()
    axes["loss"].set_ylim(min(lowest, low - 0.15 * (highest - lowest)), highest)
    axes["loss"].set_ylabel("first half loss (nats per letter)")
    axes["accuracy"].set_ylabel("accuracy")
    axes["loss"].set_xlabel("train tokens")
    axes["loss"].xaxis.set_major_formatter(FuncFormatter(report.thousands))
    axes["accuracy"].sharex(axes["loss"])
    axes["accuracy"].tick_params(labelbottom=False)
    above_axes = {"xycoords": ("data", "axes fraction"), "ha": "center", "fontsize": 9, "color": "0.3"}
    trained = [part["length"] for part in rows[0]["by_length"] if part["trained"]]
    axes["lengths"].axvspan(trained[0] - 0.5, trained[-1] + 0.5, color="0.93", zorder=0)
    axes["lengths"].annotate("training lengths", (np.mean([trained[0], trained[-1]]), 1.01), **above_axes)
    axes["lengths"].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes["lengths"].set_ylabel("accuracy")
    axes["lengths"].set_xlabel("letters in the sequence")
    for name in ("accuracy", "lengths"):
        axes[name].set_ylim(-0.03, 1.03)
        axes[name].yaxis.set_major_formatter(PercentFormatter(1.0))
    colors = [Line2D([], [], color=f"C{n}", linewidth=2.2, label=row["model"]) for n, row in enumerate(rows)]
    metrics = [Line2D([], [], color="0.3", label=NAMES[key], **style) for key, style in STYLES.items()]
    axes["accuracy"].legend(handles=[*colors, *metrics], frameon=False, loc="lower right", ncols=2, fontsize=9)
    for panel in axes.values():
        plots.style_axes(panel)
    plots.save(figure, folder / "sequence_reversal.png")


def plot_training(accuracy_axes, loss_axes, run: pathlib.Path, color: str):
    """Plot the validations of one model.

    Args:
        accuracy_axes: Axes for the accuracies.
        loss_axes: Axes for the first half loss.
        run: Folder of the run.
        color: Color of the model.
    """
    lines = read_metrics(run, "validation")
    tokens = [line["tokens"] for line in lines]
    for key, style in STYLES.items():
        accuracy_axes.plot(tokens, [line[key] for line in lines], color=color, linewidth=1.8, **style)
    loss_axes.plot(tokens, [line["first_half_loss"] for line in lines], color=color, linewidth=1.8)


def attention_maps(maps, symbols):
    """Plot attention weights, a panel for each head: queries in rows, keys in columns.

    Args:
        maps: Attention weights `[H, T, T]` of each layer.
        symbols: The T symbols of the sequence.
    """
    rows, columns = len(maps), len(maps[0])
    size = (3.4 * columns, 3.6 * rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    figure.get_layout_engine().set(h_pad=0.08)
    for layer, heads in enumerate(maps):
        for head, weights in enumerate(heads):
            panel = axes[layer, head]
            panel.imshow(weights, cmap="Greys", vmin=0, vmax=1)
            panel.set_xticks(range(len(symbols)), symbols, fontsize=7)
            panel.set_yticks(range(len(symbols)), symbols, fontsize=7)
            panel.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=9)
    return figure


def final_message(folder: pathlib.Path, rows: list[dict]) -> str:
    """Format the message at the end of the experiment.

    Args:
        folder: Folder of the experiment.
        rows: Results of the runs.
    """
    samples = [f"Samples of {row['model']}:\n{report.indented(row['sample'])}" for row in rows]
    files = f"Curves:  {folder / 'sequence_reversal.png'}\nReport:  {folder / 'sequence_reversal.md'}"
    return (
        "\n"
        + "\n\n".join([table(rows), COLUMN_NOTES, *samples, verdicts(rows), files])
        + f"\n{report.tensorboard_hint(folder)}"
    )
