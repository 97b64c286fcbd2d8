"""Report of `experiments.space_restoration`, with space_restoration.png."""

import pathlib
from collections.abc import Sequence

from experiments.frame import plots, task_plots
from experiments.frame.report import Report, without_texts
from experiments.frame.tables import Table, percent_interval

SHORT = {"P": "precision", "R": "recall", "F1": "f1"}
COLUMNS = {
    "model": lambda row: row["model"],
    "parameters": lambda row: f"{row['parameters']:,}" if "parameters" in row else "-",
    "train seconds": lambda row: f"{row['train_seconds']:.0f}" if "train_seconds" in row else "-",
    "val_loss": lambda row: f"{row['val_loss']:.4f}",
    **{
        f"{name} {short}": lambda row, key=f"{name}_{score}": f"{row[key]:.3f}"
        for name in ("space", "capital")
        for short, score in SHORT.items()
    },
    "word accuracy": lambda row: f"{row['word_accuracy']:.1%}",
}
NOTES = (
    "All scores are of the validation split. val_loss: nats per character other than white space. P, precision: the "
    "fraction of predicted spaces (or capitals) that are in the text. R, recall: the fraction of those in the text "
    "that are predicted. F1: their harmonic mean. word accuracy: the fraction of words whose start, end and capitals "
    "are correct and that have no space inside. no tags: no space and no capital is predicted; its val_loss is that of "
    "the unigram frequencies of the tags in the training split."
)
IMAGE = "![F1 of spaces and capitals during training, and at the end](space_restoration.png)"
STYLES = {"space_f1": {"marker": "o"}, "capital_f1": {"marker": "s", "linestyle": (0, (3, 1.5))}}
BARS = {"F1 of spaces": "space_f1", "F1 of capitals": "capital_f1", "word accuracy": "word_accuracy"}


def spacing_report(corpus: str, folder: pathlib.Path, rows: Sequence[dict]) -> Report:
    """Plot the runs and return the report; the first row is of no tags."""
    title, runs = f"{corpus}: restored spaces and capitals", rows[1:]
    plot(folder, runs)
    columns = ("model", "parameters", "val_loss", "space F1", "capital F1", "word accuracy")
    data, samples = without_texts(rows), {"A passage": passages(runs)}
    return Report(title, verdict(runs), Table.of(rows, COLUMNS), columns, data, NOTES, [IMAGE], samples)


def verdict(rows: Sequence[dict]) -> str:
    """Order the taggers by the words that they restore exactly."""
    first, *others = sorted(rows, key=lambda row: -row["word_accuracy"])
    shares = [f"{row['model']} {percent_interval(row['word_accuracy'], row['words'])}" for row in (first, *others)]
    exact = f"Words restored exactly, of {first['words']:,}: {', '.join(shares)}; one seed each"
    spaces = ", ".join(f"{row['space_f1']:.3f}" for row in (first, *others))
    return f"{exact}. F1 of spaces in the same order: {spaces}."


def passages(rows: Sequence[dict]) -> str:
    """Return a passage: original, stripped, and as each model restores it."""
    samples = {row["model"]: row["sample"].split("\n\n") for row in rows}
    inputs = next(iter(samples.values()))[:-1]
    return "\n\n".join([*inputs, *(f"by {model}, {parts[-1]}" for model, parts in samples.items())])


def plot(folder: pathlib.Path, rows: Sequence[dict]):
    """Write space_restoration.png: F1 during training on the left, the final scores on the right."""
    figure, (curves, bars) = plots.subplots(1, 2, figsize=(11, 4.8))
    colors = task_plots.model_colors(rows)
    task_plots.curves(curves, folder, rows, STYLES)
    run = next(folder / row["run"] for row in rows if "run" in row)
    task_plots.accuracy_axis(curves)
    curves.set(xlabel="characters trained on", ylabel=f"F1{plots.sample_note(run)} of the validation split")
    plots.legend(curves, colors, {"spaces": STYLES["space_f1"], "capitals": STYLES["capital_f1"]}, loc="best", ncols=2)
    task_plots.bars(bars, [*BARS], {row["model"]: [row[key] for key in BARS.values()] for row in rows}, colors)
    plots.save(figure, folder / "space_restoration.png")
