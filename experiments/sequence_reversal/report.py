"""Report of `experiments.sequence_reversal`, with sequence_reversal.png."""

import pathlib
from collections.abc import Sequence

from experiments.frame import plots, task_plots
from experiments.frame.report import Report, without_texts
from experiments.frame.tables import Table
from experiments.sequence_reversal.findings import TOLERANCE, failures, verdict

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
NOTES = (
    "The test sequences are new, with equally many of each training length. second half accuracy: of the ids after the "
    "separator. sequence accuracy: the fraction of sequences with a correct second half; greedy generation of a causal "
    "model has the same. first half loss: nats per letter before the separator, given that a letter comes. entropy: "
    "log of the alphabet size, the lowest possible first half loss of a causal model."
)
IMAGE = "![Accuracy during training and by length, and the first half loss](sequence_reversal.png)"
STYLES = {"second_half_accuracy": {"linestyle": "-"}, "sequence_accuracy": {"linestyle": (0, (3, 1.5))}}
NAMES = {"ids of the second half": "second_half_accuracy", "whole sequences": "sequence_accuracy"}


def reversal_report(folder: pathlib.Path, rows: Sequence[dict]) -> Report:
    """Plot the runs and return the report."""
    plot(folder, rows)
    return Report(
        "Sequence reversal",
        verdict(rows),
        Table.of(rows, COLUMNS),
        ("model", "second half accuracy", "sequence accuracy", "first half loss"),
        without_texts(rows),
        NOTES,
        [IMAGE, "## By length (* training length)", lengths(rows)],
        {f"Samples of {row['model']}": row["sample"] for row in rows},
        failures(rows),
    )


def lengths(rows: Sequence[dict]) -> Table:
    """Return the accuracies at each length, with a star at training lengths."""
    header = ["length", *(f"{row['model']}, {name}" for row in rows for name in ("ids", "sequences"))]
    lines = []
    for parts in zip(*(row["groups"] for row in rows), strict=True):
        shares = [f"{part[key]:.2%}" for part in parts for key in STYLES]
        lines.append([f"{parts[0]['group']}{' *' if parts[0]['trained'] else '  '}", *shares])
    return Table(header, lines)


def plot(folder: pathlib.Path, rows: Sequence[dict]):
    """Write sequence_reversal.png: accuracies and first half loss during training, and accuracies by length."""
    figure, axes = plots.subplot_mosaic([["accuracy", "lengths"], ["loss", "lengths"]], figsize=(11, 5.4))
    task_plots.curves(axes["accuracy"], folder, rows, STYLES)
    task_plots.curves(axes["loss"], folder, rows, {"first_half_loss": {}})
    task_plots.by_group(axes["lengths"], rows, STYLES, "letters in the sequence")
    for name in ("accuracy", "lengths"):
        task_plots.accuracy_axis(axes[name])
        axes[name].set_ylabel("accuracy")
    axes["accuracy"].set_xlabel("")
    styles = {name: STYLES[key] for name, key in NAMES.items()}
    plots.legend(axes["accuracy"], task_plots.model_colors(rows), styles, loc="lower right", ncols=2)
    draw_bound(axes["loss"], rows[0]["entropy"])
    axes["loss"].set_ylabel("first half loss (nats per letter)")
    plots.save(figure, folder / "sequence_reversal.png")


def draw_bound(axes: plots.Axes, entropy: float):
    """Shade the losses that pass the check, and name them."""
    low, high = entropy * (1 - TOLERANCE), entropy * (1 + TOLERANCE)
    axes.axhspan(low, high, color="0.93", zorder=0)
    axes.axhline(entropy, color="0.3", linewidth=1, linestyle=":")
    text = f"entropy of a letter {entropy:.3f} ± {TOLERANCE:.0%}; less means seeing future tokens"
    lowest, highest = axes.get_ylim()
    axes.set_ylim(min(lowest, low - 0.15 * (highest - lowest)), highest)
    axes.annotate(text, (0.99, low), xycoords=("axes fraction", "data"), ha="right", va="top", fontsize=9, color="0.3")
