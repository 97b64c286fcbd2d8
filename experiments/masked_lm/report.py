"""Report of `experiments.masked_lm`: masked_lm.json, .md and .png, attention.png, and the final message."""

import pathlib

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, PercentFormatter

from experiments.frame import plots, report
from keras_seq.atomic_files import write_json, write_text
from keras_seq.training import read_metrics

COLUMN_NOTES = (
    "All metrics are of the masked tokens of the validation split, the same at every validation. val_loss: nats per "
    "masked token. top-5 accuracy: the fraction of them among the model's five most likely tokens. unigram: predicts "
    "by the frequencies of the tokens in the training split."
)


def table(result: dict) -> str:
    """Format the metrics of the encoder and the unigram baseline as a Markdown table."""
    lines = [["model", "parameters", "train seconds", "masked tokens", "val_loss", "accuracy", "top-5 accuracy"]]
    sizes = [f"{result['parameters']:,}", f"{result['train_seconds']:.0f}"]
    for name, cells, row in (("encoder", sizes, result), ("unigram", ["-", "-"], result["unigram_baseline"])):
        metrics = [f"{row['val_loss']:.3f}", f"{row['accuracy']:.1%}", f"{row['top5_accuracy']:.1%}"]
        lines.append([name, *cells, f"{result['masked_tokens']:,}", *metrics])
    return report.markdown_table(lines)


def write_report(folder: pathlib.Path, run: pathlib.Path, corpus: str, result: dict):
    """Write masked_lm.json, masked_lm.md and masked_lm.png.

    Args:
        folder: Folder of the experiment.
        run: Folder of the run.
        corpus: Name of the corpus.
        result: Content of the run's result.json.
    """
    write_json(folder / "masked_lm.json", {"run": run.name, **result})
    parts = [f"# {corpus}: masked language modeling", table(result), COLUMN_NOTES]
    parts += ["![Loss and accuracies during training](masked_lm.png)"]
    parts += [f"## Predictions of the encoder\n\n{report.indented(result['predictions'])}"]
    parts += ["![Attention weights for the first of these texts](attention.png)"]
    write_text(folder / "masked_lm.md", "\n\n".join(parts) + "\n")
    plot_curves(folder, run, result["unigram_baseline"])


def final_message(folder: pathlib.Path, result: dict) -> str:
    """Format the message at the end of the experiment.

    Args:
        folder: Folder of the experiment.
        result: Content of the run's result.json.
    """
    predictions = f"Predictions of the encoder:\n{report.indented(result['predictions'])}"
    files = [f"Curves:     {folder / 'masked_lm.png'}", f"Attention:  {folder / 'attention.png'}"]
    files = "\n".join([*files, f"Report:     {folder / 'masked_lm.md'}"])
    return (
        "\n" + "\n\n".join([table(result), COLUMN_NOTES, predictions, files]) + f"\n{report.tensorboard_hint(folder)}"
    )


def attention_figure(tokens, scores):
    """Plot the mean over heads of the last block's attention on the left, and every head on the right.

    Args:
        tokens: The T tokens of the text.
        scores: Attention weights `[blocks, H, T, T]`: queries in rows, keys in columns.
    """
    blocks, heads = scores.shape[:2]
    figure = plt.figure(figsize=(13, 6.2), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1))
    axes = left.subplots()
    image = axes.imshow(scores[-1].mean(axis=0), cmap="magma_r", vmin=0)
    axes.set_xticks(range(len(tokens)), tokens, rotation=90)
    axes.set_yticks(range(len(tokens)), tokens)
    axes.set_title(f"block {blocks}, mean of its heads: queries in rows, keys in columns", fontsize=10)
    left.colorbar(image, ax=axes, shrink=0.7, label="attention weight")
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
    """Render the attention figure for TensorBoard.

    Args:
        tokens: The T tokens of the text.
        scores: Attention weights `[blocks, H, T, T]`.
    """
    return plots.pixels(attention_figure(tokens, scores))


def plot_attention(path: pathlib.Path, tokens, scores):
    """Write the attention figure to a PNG file.

    Args:
        path: File to write.
        tokens: The T tokens of the text.
        scores: Attention weights `[blocks, H, T, T]`.
    """
    plots.save(attention_figure(tokens, scores), path)


def plot_curves(folder: pathlib.Path, run: pathlib.Path, baseline: dict):
    """Plot losses on the left and accuracies on the right, with the unigram baseline as dashed lines.

    Args:
        folder: Folder of the experiment.
        run: Folder of the run.
        baseline: Metrics of the unigram baseline.
    """
    figure, (loss_axes, accuracy_axes) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    curves = (
        (loss_axes, "train", "loss", "training", "C0"),
        (loss_axes, "validation", "val_loss", "validation", "C1"),
        (accuracy_axes, "validation", "top5_accuracy", "top-5 accuracy", "C2"),
        (accuracy_axes, "validation", "accuracy", "accuracy", "C1"),
    )
    for axes, split, key, label, color in curves:
        points = [(line["tokens"], line[key]) for line in read_metrics(run, split)]
        style = {"alpha": 0.45} if split == "train" else {"marker": "o", "markersize": 3.5}
        axes.plot(*zip(*points, strict=True), color=color, linewidth=1.7, label=label, **style)
        if split == "validation":
            axes.axhline(baseline[key], color=color, linestyle="--", linewidth=1.2, label=f"{label}, unigram")
    for axes in (loss_axes, accuracy_axes):
        axes.xaxis.set_major_formatter(FuncFormatter(report.thousands))
        axes.set_xlabel("train tokens, masked or not")
        axes.legend(frameon=False, fontsize=9)
        plots.style_axes(axes)
    loss_axes.set_ylabel("loss (nats per masked token)")
    accuracy_axes.set_ylabel("accuracy, validation")
    accuracy_axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    accuracy_axes.set_ylim(bottom=0)
    plots.save(figure, folder / "masked_lm.png")
