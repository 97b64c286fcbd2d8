"""What `experiments.words` leaves beside its runs, words.json, words.md and words.png, and says at the end."""

import math
import pathlib

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from experiments import pictures, report
from keras_seq.atomic_files import write_json, write_text
from keras_seq.training import read_metrics
from keras_seq.training.metrics_logger import LOSS_KEYS

COLUMNS = {
    "blocks": lambda row: row["blocks"],
    "seconds": lambda row: f"{row['train_seconds']:.0f}",
    "tokens": lambda row: f"{row['train_tokens']:,}",
    "passes": lambda row: f"{row['passes']:.1f}",
    "best at tokens": lambda row: f"{row['best']['tokens']:,}",
    "at pass": lambda row: f"{row['best']['passes']:.1f}",
    "perplexity": lambda row: f"{row['best']['perplexity']:.1f}",
    "warm": lambda row: f"{row['best']['perplexity_streaming']:.1f}",
    "per word": lambda row: f"{row['best']['val_word_perplexity']:.0f}",
    "bits/character": lambda row: f"{row['best']['bits_per_character']:.3f}",
    "last training": lambda row: f"{row['train_perplexity']:.1f}",
    "last validation": lambda row: f"{row['perplexity']:.1f}",
}
NOTES = (
    "perplexity: exp(nats per piece) of the whole validation split, in blocks on their own from the zero state; warm: "
    "with the state carried from start to end. per word: all nats, those of spaces and signs too, over the words "
    "alone. bits/character: the same nats over the characters. The first figures of a row are of the validation where "
    "its perplexity was lowest, the last two of the end. An unknown piece costs what it costs to say [UNK], and nobody "
    "pays for its letters: so bits per character do not compare with those of a model of characters, nor with those "
    "at another --min-count."
)


def about(about) -> str:
    """What is trained on, in words."""
    return (
        f"{about['corpus']}: {about['training_pieces']:,} pieces to train on, {about['validation_pieces']:,} to "
        f"validate on; {about['vocabulary']:,} known ones. [UNK] is {about['unknown_in_training']:.1%} of the training "
        f"and {about['unknown_in_validation']:.1%} of the validation split."
    )


def curve(folder: pathlib.Path, row, split) -> list[dict]:
    """The lines of a run's metrics.jsonl that are of one split."""
    return [line for line in read_metrics(folder / row["run"] / "metrics.jsonl") if line["split"] == split]


def followed(folder: pathlib.Path, row, about) -> dict:
    """A run's row with what its curves tell: where validation was best, and where both ended."""
    validation = curve(folder, row, "validation")
    best = min(validation, key=lambda line: line["val_loss"])
    tokens_per_pass = row["steps_per_pass"] * best["tokens"] // best["step"]
    return {
        **row,
        "tokens_per_pass": tokens_per_pass,
        "passes": row["train_tokens"] / tokens_per_pass,
        "best": {
            "tokens": best["tokens"],
            "passes": best["tokens"] / tokens_per_pass,
            "perplexity": math.exp(best["val_loss"]),
            "perplexity_streaming": math.exp(best["val_loss_streaming"]),
            "val_word_perplexity": math.exp(best["val_loss"] * about["pieces_per_word"]),
            "bits_per_character": best["val_bits_per_character"],
        },
        "train_perplexity": math.exp(curve(folder, row, "train")[-1]["loss"]),
        "perplexity": math.exp(validation[-1]["val_loss"]),
    }


def table(rows) -> str:
    """A Markdown table, aligned so that it reads as plain text too."""
    return report.aligned([list(COLUMNS), *[[show(row) for show in COLUMNS.values()] for row in rows]])


def side_by_side(folder, rows) -> str:
    """Both at equal passes and at equal tokens: training and validation perplexity, interpolated between the points."""
    places = {}
    for passes in range(1, int(min(row["passes"] for row in rows)) + 1):
        places[f"pass {passes}"] = [passes * row["tokens_per_pass"] for row in rows]
    for share in (0.125, 0.25, 0.5, 1.0):
        tokens = share * rows[0]["train_tokens"]
        places[f"{tokens:,.0f} tokens"] = [tokens for _ in rows]
    kinds = {"training": "train", "validation": "validation"}
    lines = [["after", *(f"{row['blocks']}, {kind}" for row in rows for kind in kinds)]]
    first = max(curve(folder, row, "validation")[0]["tokens"] for row in rows)
    for name, tokens in places.items():
        if min(tokens) < first:  # before the first validation there is nothing to tell
            continue
        lines.append([name])
        for row, at in zip(rows, tokens, strict=True):
            for split in kinds.values():
                points = [(line["tokens"], line[LOSS_KEYS[split]]) for line in curve(folder, row, split)]
                lines[-1].append(f"{math.exp(np.interp(at, *zip(*points, strict=True))):.1f}")
    return report.aligned(lines)


def write(folder: pathlib.Path, facts, rows):
    """Writes the three files into `folder`."""
    write_json(
        folder / "words.json", {**facts, "runs": [{k: v for k, v in row.items() if k != "sample"} for row in rows]}
    )
    parts = [f"# {facts['corpus']}: a model of words, on blocks apart and overlapping", about(facts), table(rows)]
    parts += [NOTES, side_by_side(folder, rows), "![Perplexity over tokens, and over passes](words.png)"]
    parts += [f"## A sample of {row['run']}\n\n{report.indented(row['sample'])}" for row in rows]
    write_text(folder / "words.md", "\n\n".join(parts) + "\n")
    draw(folder, rows)


def draw(folder, rows):
    """words.png: training and validation perplexity, on the left over tokens, on the right over passes."""
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.8), sharey=True, layout="constrained")
    highest = 0.0
    for panel, axes in zip(("tokens", "passes"), panels, strict=True):
        for number, row in enumerate(rows):
            unit = 1 if panel == "tokens" else row["tokens_per_pass"]
            for split, style in (("train", {"alpha": 0.4, "linewidth": 1.3}), ("validation", {"linewidth": 2})):
                points = curve(folder, row, split)
                values = [math.exp(line[LOSS_KEYS[split]]) for line in points]
                axes.plot([line["tokens"] / unit for line in points], values, color=f"C{number}", **style)
            highest = max(highest, values[0])
            axes.plot(row["best"]["tokens"] / unit, row["best"]["perplexity"], "o", color=f"C{number}", markersize=7)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:g}"[0] in "235" else ""))
        axes.set_xlabel("tokens seen" if panel == "tokens" else "passes over the blocks")
        pictures.plain(axes)
    panels[0].xaxis.set_major_formatter(FuncFormatter(report.thousands))
    panels[0].set_ylabel("perplexity per piece")
    panels[0].set_ylim(top=1.5 * highest)
    colours = [
        Line2D([], [], color=f"C{n}", linewidth=2, label=f"blocks {row['blocks']}") for n, row in enumerate(rows)
    ]
    grey = [
        Line2D([], [], color="0.3", alpha=0.5, linewidth=1.3, label="training"),
        Line2D([], [], color="0.3", linewidth=2, label="validation"),
        Line2D([], [], color="0.3", marker="o", linestyle="", markersize=7, label="lowest validation"),
    ]
    figure.legend(handles=[*colours, *grey], frameon=False, loc="outside upper center", ncols=5)
    pictures.save(figure, folder / "words.png")


def closing(folder: pathlib.Path, facts, rows) -> str:
    """What the terminal shows at the end."""
    samples = [f"{row['run']} writes:\n{report.indented(row['sample'])}" for row in rows]
    files = f"Curves:  {folder / 'words.png'}\nReport:  {folder / 'words.md'}"
    parts = [about(facts), table(rows), NOTES, side_by_side(folder, rows), *samples, files]
    return "\n" + "\n\n".join(parts) + f"\n{report.to_look(folder)}"
