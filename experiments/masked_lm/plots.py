"""Pictures of `experiments.masked_lm`: curves of the training, attention of the trained encoder."""

import pathlib

import keras
import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.ticker import PercentFormatter

from experiments.frame import plots
from experiments.masked_lm.data import encode_masked
from keras_seq.evaluation import attention_weights
from keras_seq.tokenizers import WordPieceTokenizer


def plot_curves(folder: pathlib.Path, run: pathlib.Path, baseline: dict):
    """Write masked_lm.png: losses on the left, accuracies on the right, unigram frequencies as dashed lines."""
    figure, (losses, accuracies) = plots.subplots(1, 2, figsize=(11, 4.6))
    losses.plot(*plots.curve(run, "loss", "train"), color="C0", alpha=0.45, label="training")
    for axes, key, label, color in (
        (losses, "val_loss", "validation", "C1"),
        (accuracies, "top5_accuracy", "top-5 accuracy", "C2"),
        (accuracies, "accuracy", "accuracy", "C1"),
    ):
        axes.plot(*plots.curve(run, key), color=color, label=label, marker="o", markersize=3.5)
        axes.axhline(baseline[key], color=color, linestyle="--", linewidth=1.2, label=f"{label}, unigram")
    for axes in (losses, accuracies):
        plots.token_axis(axes, "training tokens, masked or not")
        axes.legend()
    losses.set_ylabel("loss (nats per masked token)")
    accuracies.set_ylabel("accuracy, validation")
    accuracies.yaxis.set_major_formatter(PercentFormatter(1.0))
    accuracies.set_ylim(bottom=0)
    plots.save(figure, folder / "masked_lm.png")


def plot_attention(folder: pathlib.Path, text: str, model: keras.Model, tokenizer: WordPieceTokenizer):
    """Write attention.png: a row of heads for each block, each with its queries in rows and its keys in columns."""
    row = encode_masked(text, tokenizer, model.get_layer("token_id_check").context_length)
    tokens = [tokenizer.vocabulary[n] for n in row["token_ids"][0]]
    blocks = np.concatenate([*attention_weights(model, row).values()])  # [blocks, H, T, T]
    size = (1.2 + 0.11 * len(tokens)) * np.array(blocks.shape[1::-1])  # inches
    figure, grid = plots.subplots(*blocks.shape[:2], figsize=size, sharex=True, sharey=True, squeeze=False)
    for (block, head), axes in np.ndenumerate(grid):
        axes.grid(visible=False)
        image = axes.imshow(blocks[block, head], cmap="Oranges", norm=PowerNorm(0.5, 0, 1))
        axes.set_title(f"block {block + 1}, head {head + 1}", fontsize=8)
        axes.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=7)
        axes.set_yticks(range(len(tokens)), tokens, fontsize=7)
    figure.colorbar(image, ax=grid, shrink=0.5, label="attention weight", ticks=[0, 0.05, 0.2, 0.5, 1])
    plots.save(figure, folder / "attention.png")
