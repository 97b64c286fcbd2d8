"""What `experiments.respace` leaves beside its runs, respace.json, respace.md and respace.png, and says at the end."""

import pathlib

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from experiments import pictures, report
from keras_seq.atomic_files import write_json, write_text
from keras_seq.training import read_metrics

COLUMNS = {
    "model": lambda row: row["model"],
    "parameters": lambda row: f"{row['parameters']:,}" if "parameters" in row else "-",
    "seconds": lambda row: f"{row['train_seconds']:.0f}" if "train_seconds" in row else "-",
    "nats": lambda row: f"{row['loss_per_character']:.4f}",
    "space P": lambda row: f"{row['space_precision']:.3f}",
    "space R": lambda row: f"{row['space_recall']:.3f}",
    "space F1": lambda row: f"{row['space_f1']:.3f}",
    "capital P": lambda row: f"{row['capital_precision']:.3f}",
    "capital R": lambda row: f"{row['capital_recall']:.3f}",
    "capital F1": lambda row: f"{row['capital_f1']:.3f}",
    "words right": lambda row: f"{row['word_accuracy']:.1%}",
}
STYLES = {"space_f1": {"linestyle": "-", "marker": "o"}, "capital_f1": {"linestyle": (0, (3, 1.5)), "marker": "s"}}
BARS = {"space_f1": "F1 of spaces", "capital_f1": "F1 of capitals", "word_accuracy": "words right"}
NOTES = (
    "Of the validation split, which was never trained on. nats: per character that is no white space. P, precision: "
    "how many of the spaces (or capitals) that the model puts are in the text. R, recall: how many of those in the "
    "text it puts. F1: their harmonic mean. words right: the share of the words that begin and end where they should, "
    "have no space inside and all their capitals. no tags: nothing is put; its nats are those of how frequent each tag "
    "is in the training split."
)


def table(rows) -> str:
    """A Markdown table, aligned so that it reads as plain text too."""
    return report.aligned([list(COLUMNS), *[[show(row) for show in COLUMNS.values()] for row in rows]])


def write(folder: pathlib.Path, corpus, rows):
    """Writes the three files into `folder`."""
    write_json(folder / "respace.json", [{k: v for k, v in row.items() if k != "sample"} for row in rows])
    parts = [f"# {corpus}: spaces and capitals put back", table(rows), NOTES]
    parts += ["![F1 of spaces and capitals over training, and at the end](respace.png)"]
    parts += [f"## A passage\n\n{report.indented(passages(rows))}"]
    write_text(folder / "respace.md", "\n\n".join(parts) + "\n")
    draw(folder, [row for row in rows if "run" in row])


def passages(rows) -> str:
    """A passage as it was and stripped, and what each model makes of it."""
    samples = {row["model"]: row["sample"].split("\n\n") for row in rows if "sample" in row}
    given = next(iter(samples.values()))[:-1]
    return "\n\n".join([*given, *(f"by {model}, {parts[-1]}" for model, parts in samples.items())])


def draw(folder, rows):
    """respace.png: on the left F1 over training, a colour a model; on the right where each ends."""
    figure, (curves, bars) = plt.subplots(1, 2, figsize=(11, 4.8), width_ratios=(1, 1), layout="constrained")
    for number, row in enumerate(rows):
        path = folder / row["run"] / "metrics.jsonl"
        lines = read_metrics(path)
        lines = [line for line in lines if line["split"] == "validation"]
        for key, style in STYLES.items():
            points = [(line["tokens"], line[key]) for line in lines]
            curves.plot(*zip(*points, strict=True), color=f"C{number}", markersize=3, linewidth=1.7, **style)
        places = np.arange(len(BARS)) + 0.27 * (number - (len(rows) - 1) / 2)
        heights = [row[key] for key in BARS]
        bars.bar(places, heights, width=0.25, color=f"C{number}", label=row["model"])
        for place, height in zip(places, heights, strict=True):
            bars.annotate(f"{height:.3f}", (place, height), (0, 3), textcoords="offset points", ha="center", fontsize=9)
    curves.set_ylim(0, 1)
    curves.xaxis.set_major_formatter(FuncFormatter(report.thousands))
    curves.set_xlabel("characters seen in training")
    curves.set_ylabel("F1 on the validation split")
    colours = [Line2D([], [], color=f"C{n}", linewidth=2.2, label=row["model"]) for n, row in enumerate(rows)]
    kinds = [Line2D([], [], color="0.3", markersize=3, label=BARS[key][6:], **style) for key, style in STYLES.items()]
    curves.legend(handles=[*colours, *kinds], frameon=False, loc="lower right", ncols=2)
    bars.set_xticks(range(len(BARS)), BARS.values())
    bars.set_ylim(0, 1.08)
    bars.legend(frameon=False, loc="upper center", ncols=len(rows))
    for axes in (curves, bars):
        pictures.plain(axes)
    bars.set_axisbelow(True)
    bars.xaxis.grid(False)
    pictures.save(figure, folder / "respace.png")


def closing(folder: pathlib.Path, rows) -> str:
    """What the terminal shows at the end."""
    files = f"Curves:  {folder / 'respace.png'}\nReport:  {folder / 'respace.md'}"
    return "\n" + "\n\n".join([table(rows), NOTES, passages(rows), files]) + f"\n{report.to_look(folder)}"
