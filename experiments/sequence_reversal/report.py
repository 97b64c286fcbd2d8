"""Report of `experiments.sequence_reversal`, with sequence_reversal.png."""

import math
import pathlib
from collections.abc import Sequence

from experiments.frame import plots, task_plots
from experiments.frame.report import Report, without_texts
from experiments.frame.tables import Table, percent_interval

TOLERANCE = 0.02  # relative, of the first half loss around log A, the least of a causal model with A letters
COLUMNS = {
    "model": lambda row: row["model"],
    "parameters": lambda row: f"{row['parameters']:,}",
    "train tokens": lambda row: f"{row['train_tokens']:,}",
    "train seconds": lambda row: f"{row['train_seconds']:.0f}",
    "second half accuracy": lambda row: f"{row['second_half_accuracy']:.2%}",
    "sequence accuracy": lambda row: f"{row['sequence_accuracy']:.2%}",
    "first half loss": lambda row: f"{row['first_half_loss']:.3f}",
}
NOTES = (
    "The test sequences are new, with equally many of each training length. second half accuracy: of the ids after the "
    "separator. sequence accuracy: the fraction of sequences with a correct second half; greedy generation of a causal "
    "model has the same. first half loss: nats per letter before the separator, given that a letter comes."
)
IMAGE = "![Accuracy during training and by length, and the first half loss](sequence_reversal.png)"
STYLES = {"second_half_accuracy": {"linestyle": "-"}, "sequence_accuracy": {"linestyle": (0, (3, 1.5))}}


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


def causality(row: dict) -> tuple[bool, str]:
    """Return whether the first half loss is that of a causal model, as low as it can be, and a sentence about it."""
    entropy, loss = row["entropy"], row["first_half_loss"]
    measured = f"its first half loss is {loss:.3f} nats per letter"
    bound = f"log {round(math.exp(entropy))} = {entropy:.3f}"
    if loss < (1 - TOLERANCE) * entropy:
        return False, f"The {row['model']} is not causal, it sees future tokens: {measured}; the minimum is {bound}."
    if loss > (1 + TOLERANCE) * entropy:
        return False, f"The {row['model']} has not learned that letters are equally likely: {measured}, above {bound}."
    return True, f"The {row['model']} is causal: {measured}; the minimum without seeing future tokens is {bound}."


def failures(rows: Sequence[dict]) -> list[str]:
    """Return the sentences about the models that do not pass the check."""
    return [sentence for is_passed, sentence in map(causality, rows) if not is_passed]


def verdict(rows: Sequence[dict]) -> str:
    """Say of each model whether it is causal, and how many whole sequences it reverses."""
    count = sum(part["examples"] for part in rows[0]["groups"] if part["trained"])
    correct = [f"{row['model']} {percent_interval(row['sequence_accuracy'], count)}" for row in rows]
    ends = f"Whole sequences reversed, of {count:,} of the training lengths: {', '.join(correct)}; one seed each."
    return " ".join([*(causality(row)[1] for row in rows), ends])


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
    styles = dict(zip(("ids of the second half", "whole sequences"), STYLES.values(), strict=True))
    plots.legend(axes["accuracy"], task_plots.model_colors(rows), styles, loc="lower right", ncols=2)
    entropy, text = rows[0]["entropy"], f"± {TOLERANCE:.0%};\nless means seeing future tokens"
    axes["loss"].axhspan((1 - TOLERANCE) * entropy, (1 + TOLERANCE) * entropy, color="0.93", zorder=0)
    line = axes["loss"].axhline(entropy, color="0.3", linestyle=":", label=f"entropy of a letter {entropy:.3f} {text}")
    axes["loss"].legend(handles=[line])
    axes["loss"].set_ylabel("first half loss (nats per letter)")
    plots.save(figure, folder / "sequence_reversal.png")
