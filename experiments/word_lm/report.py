"""Report of `experiments.word_lm`: word_lm.json, word_lm.md and word_lm.png, and the final message."""

import math
import pathlib

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from experiments.frame import plots, report
from keras_seq.atomic_files import write_json, write_text
from keras_seq.training import read_metrics
from keras_seq.training.metrics_logger import LOSS_KEYS

COLUMNS = {
    "windows": lambda row: row["windows"],
    "train seconds": lambda row: f"{row['train_seconds']:.0f}",
    "train tokens": lambda row: f"{row['train_tokens']:,}",
    "epochs": lambda row: f"{row['epochs']:.1f}",
    "best at tokens": lambda row: f"{row['best']['tokens']:,}",
    "best at epoch": lambda row: f"{row['best']['epochs']:.1f}",
    "perplexity": lambda row: f"{row['best']['perplexity']:.1f}",
    "perplexity, streaming": lambda row: f"{row['best']['perplexity_streaming']:.1f}",
    "perplexity/word": lambda row: f"{row['best']['val_word_perplexity']:.0f}",
    "val bits/char": lambda row: f"{row['best']['val_bits_per_character']:.3f}",
    "final train perplexity": lambda row: f"{row['train_perplexity']:.1f}",
    "final perplexity": lambda row: f"{row['perplexity']:.1f}",
}
COLUMN_NOTES = (
    "perplexity: exp(val_loss per token), over disjoint windows of the validation split, each from the zero state; "
    "streaming: with the state carried from start to end. perplexity/word: exp(summed loss / number of words), where "
    "the sum includes spaces and punctuation. val bits/char: the summed loss over the number of characters. These "
    "metrics are of the validation with the lowest perplexity, the last two columns of the end of training. An unknown "
    "word is scored as the one token [UNK], without its letters, so val bits/char does not compare with that of a "
    "character model, nor with that of another --min-count."
)


def describe_corpus(corpus_info: dict) -> str:
    """Format the sizes of the corpus and its rate of unknown tokens."""
    return (
        f"{corpus_info['corpus']}: {corpus_info['train_split_tokens']:,} training tokens, "
        f"{corpus_info['validation_split_tokens']:,} validation tokens, vocabulary size "
        f"{corpus_info['vocabulary_size']:,}. [UNK] is {corpus_info['train_oov_rate']:.1%} of the training and "
        f"{corpus_info['validation_oov_rate']:.1%} of the validation split."
    )


def curve(folder: pathlib.Path, row: dict, split: str) -> list[dict]:
    """Read the lines of one split from a run's metrics.jsonl.

    Args:
        folder: Folder of the experiment.
        row: Row of the run.
        split: "train" or "validation".
    """
    return read_metrics(folder / row["run"], split)


def with_curve_stats(folder: pathlib.Path, row: dict, tokens_per_word: float) -> dict:
    """Add statistics of its curves to a run's row: the best validation, and the end of training.

    Args:
        folder: Folder of the experiment.
        row: Row of the run.
        tokens_per_word: Tokens per word in the validation split, for the perplexity per word.
    """
    validation = curve(folder, row, "validation")
    best = min(validation, key=lambda line: line["val_loss"])
    tokens_per_epoch = row["steps_per_epoch"] * best["tokens"] // best["step"]
    return {
        **row,
        "tokens_per_epoch": tokens_per_epoch,
        "epochs": row["train_tokens"] / tokens_per_epoch,
        "best": {
            "tokens": best["tokens"],
            "epochs": best["tokens"] / tokens_per_epoch,
            "perplexity": math.exp(best["val_loss"]),
            "perplexity_streaming": math.exp(best["val_loss_streaming"]),
            "val_word_perplexity": math.exp(best["val_loss"] * tokens_per_word),
            "val_bits_per_character": best["val_bits_per_character"],
        },
        "train_perplexity": math.exp(curve(folder, row, "train")[-1]["loss"]),
        "perplexity": math.exp(validation[-1]["val_loss"]),
    }


def table(rows: list[dict]) -> str:
    """Format the rows as a Markdown table."""
    return report.markdown_table([list(COLUMNS), *[[show(row) for show in COLUMNS.values()] for row in rows]])


def compare_curves(folder: pathlib.Path, rows: list[dict]) -> str:
    """Format the perplexities of the runs at equal epochs and at equal tokens as a Markdown table.

    Values between two points of a curve are interpolated linearly.

    Args:
        folder: Folder of the experiment.
        rows: Rows of the runs.
    """
    positions = {}
    for epoch in range(1, int(min(row["epochs"] for row in rows)) + 1):
        positions[f"epoch {epoch}"] = [epoch * row["tokens_per_epoch"] for row in rows]
    for share in (0.125, 0.25, 0.5, 1.0):
        tokens = share * rows[0]["train_tokens"]
        positions[f"{tokens:,.0f} tokens"] = [tokens for _ in rows]
    splits = ("train", "validation")
    lines = [["after", *(f"{row['windows']}, {split}" for row in rows for split in splits)]]
    first = max(curve(folder, row, "validation")[0]["tokens"] for row in rows)
    for name, tokens in positions.items():
        if min(tokens) < first:  # no validation yet
            continue
        lines.append([name])
        for row, position in zip(rows, tokens, strict=True):
            for split in splits:
                points = [(line["tokens"], line[LOSS_KEYS[split]]) for line in curve(folder, row, split)]
                lines[-1].append(f"{math.exp(np.interp(position, *zip(*points, strict=True))):.1f}")
    return report.markdown_table(lines)


def write_report(folder: pathlib.Path, corpus_info: dict, rows: list[dict]):
    """Write word_lm.json, word_lm.md and word_lm.png.

    Args:
        folder: Folder of the experiment.
        corpus_info: Sizes of the corpus.
        rows: Rows of the runs.
    """
    write_json(
        folder / "word_lm.json",
        {**corpus_info, "runs": [{k: v for k, v in row.items() if k != "sample"} for row in rows]},
    )
    parts = [f"# {corpus_info['corpus']}: a word-level model, on disjoint and overlapping windows"]
    parts += [describe_corpus(corpus_info), table(rows)]
    parts += [COLUMN_NOTES, compare_curves(folder, rows), "![Perplexity by tokens, and by epochs](word_lm.png)"]
    parts += [f"## A sample of {row['run']}\n\n{report.indented(row['sample'])}" for row in rows]
    write_text(folder / "word_lm.md", "\n\n".join(parts) + "\n")
    plot(folder, rows)


def plot(folder: pathlib.Path, rows: list[dict]):
    """Plot training and validation perplexity, by tokens on the left and by epochs on the right.

    Args:
        folder: Folder of the experiment.
        rows: Rows of the runs.
    """
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.8), sharey=True, layout="constrained")
    highest = 0.0
    for panel, axes in zip(("tokens", "epochs"), panels, strict=True):
        for number, row in enumerate(rows):
            unit = 1 if panel == "tokens" else row["tokens_per_epoch"]
            for split, style in (("train", {"alpha": 0.4, "linewidth": 1.3}), ("validation", {"linewidth": 2})):
                points = curve(folder, row, split)
                values = [math.exp(line[LOSS_KEYS[split]]) for line in points]
                axes.plot([line["tokens"] / unit for line in points], values, color=f"C{number}", **style)
            highest = max(highest, values[0])
            axes.plot(row["best"]["tokens"] / unit, row["best"]["perplexity"], "o", color=f"C{number}", markersize=7)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:g}"[0] in "235" else ""))
        axes.set_xlabel("train tokens" if panel == "tokens" else "epochs")
        plots.style_axes(axes)
    panels[0].xaxis.set_major_formatter(FuncFormatter(report.thousands))
    panels[0].set_ylabel("perplexity per token")
    panels[0].set_ylim(top=1.5 * highest)
    colors = [
        Line2D([], [], color=f"C{n}", linewidth=2, label=f"{row['windows']} windows") for n, row in enumerate(rows)
    ]
    styles = [
        Line2D([], [], color="0.3", alpha=0.5, linewidth=1.3, label="training"),
        Line2D([], [], color="0.3", linewidth=2, label="validation"),
        Line2D([], [], color="0.3", marker="o", linestyle="", markersize=7, label="lowest validation"),
    ]
    figure.legend(handles=[*colors, *styles], frameon=False, loc="outside upper center", ncols=5)
    plots.save(figure, folder / "word_lm.png")


def final_message(folder: pathlib.Path, corpus_info: dict, rows: list[dict]) -> str:
    """Format the message at the end of the experiment.

    Args:
        folder: Folder of the experiment.
        corpus_info: Sizes of the corpus.
        rows: Rows of the runs.
    """
    samples = [f"Sample of {row['run']}:\n{report.indented(row['sample'])}" for row in rows]
    files = f"Curves:  {folder / 'word_lm.png'}\nReport:  {folder / 'word_lm.md'}"
    parts = [describe_corpus(corpus_info), table(rows), COLUMN_NOTES, compare_curves(folder, rows), *samples, files]
    return "\n" + "\n\n".join(parts) + f"\n{report.tensorboard_hint(folder)}"
