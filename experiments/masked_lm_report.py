"""What `experiments.masked_lm` leaves beside its run, a report and two pictures, and what it says at the end."""

import pathlib

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, PercentFormatter

from experiments import pictures, report
from keras_seq.atomic_files import write_json, write_text
from keras_seq.training import read_metrics

NOTES = (
    "Of the tokens that are hidden in the validation split, the same ones at every validation. nats: per hidden token. "
    "likeliest: how many of them are the model's first guess; 5 likeliest: how many are among its first five. "
    "frequency: knows of a token only how frequent it is in the training split."
)


def table(result) -> str:
    """The encoder and the baseline, as a Markdown table that reads as plain text too."""
    lines = [["model", "parameters", "seconds", "hidden tokens", "nats", "likeliest", "5 likeliest"]]
    sizes = [f"{result['parameters']:,}", f"{result['train_seconds']:.0f}"]
    for name, cells, figures in (("encoder", sizes, result), ("frequency", ["-", "-"], result["by_frequency"])):
        scores = [f"{figures['val_loss']:.3f}", f"{figures['accuracy']:.1%}", f"{figures['top5_accuracy']:.1%}"]
        lines.append([name, *cells, f"{result['hidden_tokens']:,}", *scores])
    return report.aligned(lines)


def write(folder: pathlib.Path, run: pathlib.Path, corpus, result):
    """Writes the report and the curves into `folder`."""
    write_json(folder / "masked_lm.json", {"run": run.name, **result})
    parts = [f"# {corpus}: hidden tokens", table(result), NOTES]
    parts += ["![Nats and accuracies over tokens seen](masked_lm.png)"]
    parts += [f"## What the encoder fills in\n\n{report.indented(result['hidden'])}"]
    parts += ["![Who attends to whom in the first of these texts](attention.png)"]
    write_text(folder / "masked_lm.md", "\n\n".join(parts) + "\n")
    draw_curves(folder, run, result["by_frequency"])


def closing(folder: pathlib.Path, result) -> str:
    """What the terminal shows at the end."""
    said = f"The encoder fills in:\n{report.indented(result['hidden'])}"
    files = [f"Curves:     {folder / 'masked_lm.png'}", f"Attention:  {folder / 'attention.png'}"]
    files = "\n".join([*files, f"Report:     {folder / 'masked_lm.md'}"])
    return "\n" + "\n\n".join([table(result), NOTES, said, files]) + f"\n{report.to_look(folder)}"


def attention_figure(tokens, scores):
    """The last block large, the mean over its heads; every head of every block small.

    Args:
        tokens: of the text, T.
        scores: `[blocks, H, T, T]`, rows looking at columns.
    """
    blocks, heads = scores.shape[:2]
    figure = plt.figure(figsize=(13, 6.2), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1))
    axes = left.subplots()
    image = axes.imshow(scores[-1].mean(axis=0), cmap="magma_r", vmin=0)
    axes.set_xticks(range(len(tokens)), tokens, rotation=90)
    axes.set_yticks(range(len(tokens)), tokens)
    axes.set_title(f"block {blocks}, mean of its heads: each row looks at the columns", fontsize=10)
    left.colorbar(image, ax=axes, shrink=0.7, label="attention")
    grid = right.subplots(blocks, heads, squeeze=False)
    for block, head in np.ndindex(blocks, heads):
        small = grid[block, head]
        small.imshow(scores[block, head], cmap="magma_r", vmin=0)
        small.set_xticks([])
        small.set_yticks([])
        if block == 0:
            small.set_title(f"head {head + 1}", fontsize=9)
        if head == 0:
            small.set_ylabel(f"block {block + 1}", fontsize=9)
    return figure


def attention_pixels(tokens, scores) -> np.ndarray:
    """The figure for TensorBoard."""
    return pictures.pixels(attention_figure(tokens, scores))


def draw_attention(path: pathlib.Path, tokens, scores):
    """The figure as a file."""
    pictures.save(attention_figure(tokens, scores), path)


def draw_curves(folder: pathlib.Path, run: pathlib.Path, baseline):
    """masked_lm.png: nats on the left and accuracies on the right, over tokens; the unigram baseline dashed."""
    lines = read_metrics(run / "metrics.jsonl")
    figure, (nats, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    curves = (
        (nats, "train", "loss", "training", "C0"),
        (nats, "validation", "val_loss", "validation", "C1"),
        (right, "validation", "top5_accuracy", "among the 5 likeliest", "C2"),
        (right, "validation", "accuracy", "the likeliest", "C1"),
    )
    for axes, split, key, label, colour in curves:
        points = [(line["tokens"], line[key]) for line in lines if line["split"] == split]
        style = {"alpha": 0.45} if split == "train" else {"marker": "o", "markersize": 3.5}
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.7, label=label, **style)
        if split == "validation":
            axes.axhline(baseline[key], color=colour, linestyle="--", linewidth=1.2, label=f"{label}, by frequency")
    for axes in (nats, right):
        axes.xaxis.set_major_formatter(FuncFormatter(report.thousands))
        axes.set_xlabel("tokens seen, hidden or not")
        axes.legend(frameon=False, fontsize=9)
        pictures.plain(axes)
    nats.set_ylabel("nats per hidden token")
    right.set_ylabel("hidden tokens found, validation")
    right.yaxis.set_major_formatter(PercentFormatter(1.0))
    right.set_ylim(bottom=0)
    pictures.save(figure, folder / "masked_lm.png")
