"""Report of the experiment: `space_restoration.json`, `.md` and `.png`, and the final message."""

import pathlib

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from experiments.frame import plots, report
from keras_seq.atomic_files import write_json, write_text
from keras_seq.training import read_metrics

COLUMNS = {
    "model": lambda row: row["model"],
    "parameters": lambda row: f"{row['parameters']:,}" if "parameters" in row else "-",
    "train seconds": lambda row: f"{row['train_seconds']:.0f}" if "train_seconds" in row else "-",
    "val_loss": lambda row: f"{row['val_loss']:.4f}",
    "space P": lambda row: f"{row['space_precision']:.3f}",
    "space R": lambda row: f"{row['space_recall']:.3f}",
    "space F1": lambda row: f"{row['space_f1']:.3f}",
    "capital P": lambda row: f"{row['capital_precision']:.3f}",
    "capital R": lambda row: f"{row['capital_recall']:.3f}",
    "capital F1": lambda row: f"{row['capital_f1']:.3f}",
    "word accuracy": lambda row: f"{row['word_accuracy']:.1%}",
}
STYLES = {"space_f1": {"linestyle": "-", "marker": "o"}, "capital_f1": {"linestyle": (0, (3, 1.5)), "marker": "s"}}
BARS = {"space_f1": "F1 of spaces", "capital_f1": "F1 of capitals", "word_accuracy": "word accuracy"}
COLUMN_NOTES = (
    "All metrics are of the validation split. val_loss: nats per character other than white space. P, precision: the "
    "fraction of predicted spaces (or capitals) that are in the text. R, recall: the fraction of those in the text "
    "that are predicted. F1: their harmonic mean. word accuracy: the fraction of words whose start, end and capitals "
    "are correct and that have no space inside. no tags: no space and no capital is predicted; its val_loss is that of "
    "the unigram frequencies of the tags in the training split."
)


def table(rows: list[dict]) -> str:
    """Format the rows as a Markdown table."""
    return report.markdown_table([list(COLUMNS), *[[show(row) for show in COLUMNS.values()] for row in rows]])


def write_report(folder: pathlib.Path, corpus: str, rows: list[dict]):
    """Write space_restoration.json, space_restoration.md and space_restoration.png.

    Args:
        folder: Folder of the experiment.
        corpus: Name of the corpus.
        rows: The baseline and the results of the runs.
    """
    write_json(folder / "space_restoration.json", [{k: v for k, v in row.items() if k != "sample"} for row in rows])
    parts = [f"# {corpus}: restored spaces and capitals", table(rows), COLUMN_NOTES]
    parts += ["![F1 of spaces and capitals during training, and at the end](space_restoration.png)"]
    parts += [f"## A passage\n\n{report.indented(passages(rows))}"]
    write_text(folder / "space_restoration.md", "\n\n".join(parts) + "\n")
    plot(folder, [row for row in rows if "run" in row])


def passages(rows: list[dict]) -> str:
    """Format a passage: original, stripped, and as each model restores it."""
    samples = {row["model"]: row["sample"].split("\n\n") for row in rows if "sample" in row}
    inputs = next(iter(samples.values()))[:-1]
    return "\n\n".join([*inputs, *(f"by {model}, {parts[-1]}" for model, parts in samples.items())])


def plot(folder: pathlib.Path, rows: list[dict]):
    """Plot F1 during training on the left, a color for each model, and the final metrics on the right.

    Args:
        folder: Folder of the experiment.
        rows: Results of the runs.
    """
    figure, (curves, bars) = plt.subplots(1, 2, figsize=(11, 4.8), width_ratios=(1, 1), layout="constrained")
    for number, row in enumerate(rows):
        lines = read_metrics(folder / row["run"], "validation")
        for key, style in STYLES.items():
            points = [(line["tokens"], line[key]) for line in lines]
            curves.plot(*zip(*points, strict=True), color=f"C{number}", markersize=3, linewidth=1.7, **style)
        positions = np.arange(len(BARS)) + 0.27 * (number - (len(rows) - 1) / 2)
        heights = [row[key] for key in BARS]
        bars.bar(positions, heights, width=0.25, color=f"C{number}", label=row["model"])
        for position, height in zip(positions, heights, strict=True):
            bars.annotate(
                f"{height:.3f}", (position, height), (0, 3), textcoords="offset points", ha="center", fontsize=9
            )
    curves.set_ylim(0, 1)
    curves.xaxis.set_major_formatter(FuncFormatter(report.thousands))
    curves.set_xlabel("characters trained on")
    curves.set_ylabel("F1 on the validation split")
    colors = [Line2D([], [], color=f"C{n}", linewidth=2.2, label=row["model"]) for n, row in enumerate(rows)]
    metrics = [Line2D([], [], color="0.3", markersize=3, label=BARS[key][6:], **style) for key, style in STYLES.items()]
    curves.legend(handles=[*colors, *metrics], frameon=False, loc="lower right", ncols=2)
    bars.set_xticks(range(len(BARS)), BARS.values())
    bars.set_ylim(0, 1.08)
    bars.legend(frameon=False, loc="upper center", ncols=len(rows))
    for axes in (curves, bars):
        plots.style_axes(axes)
    bars.set_axisbelow(True)
    bars.xaxis.grid(False)
    plots.save(figure, folder / "space_restoration.png")


def final_message(folder: pathlib.Path, rows: list[dict]) -> str:
    """Format the message at the end of the experiment.

    Args:
        folder: Folder of the experiment.
        rows: The baseline and the results of the runs.
    """
    files = f"Curves:  {folder / 'space_restoration.png'}\nReport:  {folder / 'space_restoration.md'}"
    return (
        "\n" + "\n\n".join([table(rows), COLUMN_NOTES, passages(rows), files]) + f"\n{report.tensorboard_hint(folder)}"
    )
