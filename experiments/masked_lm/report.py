"""Report of `experiments.masked_lm`, with masked_lm.png and attention.png."""

import pathlib

import keras
import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.ticker import PercentFormatter

from experiments.frame import plots
from experiments.frame.report import Report
from experiments.frame.tables import Table, percent_interval
from experiments.masked_lm.data import encode_masked
from keras_seq.interpretability import attention_weights
from keras_seq.tokenizers import WordPieceTokenizer
from keras_seq.training import load_run

NOTES = (
    "All metrics are of the masked tokens of the validation split, the same at every validation. val_loss: nats per "
    "masked token. top-5 accuracy: the fraction of them among the model's five most likely tokens. unigram: predicts "
    "by the frequencies of the tokens in the training split."
)
IMAGES = (
    "![Loss and accuracies during training](masked_lm.png)",
    "![Attention weights for the first of the texts below](attention.png)",
)


def masked_lm_report(folder: pathlib.Path, run: pathlib.Path, corpus: str, text: str, result: dict) -> Report:
    """Plot the curves of the run and the attention of its model within a text, and return the report."""
    plot_curves(folder, run, result["unigram_baseline"])
    plot_attention(folder, text, *load_run(run))
    columns = ("model", "parameters", "masked tokens", "val_loss", "accuracy", "top-5 accuracy")
    samples = {"Predictions of the encoder": result["predictions"]}
    title = f"{corpus}: masked language modeling"
    return Report(title, verdict(result), table(result), columns, {"run": run.name, **result}, NOTES, IMAGES, samples)


def table(result: dict) -> Table:
    """Return a line for the encoder and one for the unigram frequencies."""
    header = ["model", "parameters", "train seconds", "masked tokens", "val_loss", "accuracy", "top-5 accuracy"]
    lines, sizes = [], [f"{result['parameters']:,}", f"{result['train_seconds']:.0f}"]
    for name, cells, scores in (("encoder", sizes, result), ("unigram", ["-", "-"], result["unigram_baseline"])):
        values = [f"{scores['val_loss']:.3f}", f"{scores['accuracy']:.1%}", f"{scores['top5_accuracy']:.1%}"]
        lines.append([name, *cells, f"{result['masked_tokens']:,}", *values])
    return Table(header, lines)


def verdict(result: dict) -> str:
    """Compare the encoder with the unigram frequencies, with a 95 % interval of its accuracy."""
    baseline, accuracy = result["unigram_baseline"], percent_interval(result["accuracy"], result["masked_tokens"])
    gain = baseline["val_loss"] - result["val_loss"]
    return (
        f"The encoder's first guess is right for {accuracy} of the masked tokens, that of the token frequencies for "
        f"{baseline['accuracy']:.1%}; its loss is {abs(gain):.3f} nats per token {'lower' if gain > 0 else 'higher'}. "
        "In parentheses the 95 % interval for this many tokens; one seed."
    )


def plot_curves(folder: pathlib.Path, run: pathlib.Path, baseline: dict):
    """Write masked_lm.png: losses on the left, accuracies on the right, unigram frequencies as dashed lines."""
    figure, (losses, accuracies) = plots.subplots(1, 2, figsize=(11, 4.6))
    losses.plot(*plots.curve(run, "loss", "train"), color="C0", alpha=0.45, label="training")
    for axes, key, label, color in (
        (losses, "val_loss", f"validation{plots.sample_note(run)}", "C1"),
        (accuracies, "top5_accuracy", "top-5 accuracy", "C2"),
        (accuracies, "accuracy", "accuracy", "C1"),
    ):
        axes.plot(*plots.curve(run, key), color=color, label=label, marker="o", markersize=3.5)
        axes.axhline(baseline[key], color=color, linestyle="--", linewidth=1.2, label=f"{label}, unigram")
    for axes in (losses, accuracies):
        plots.token_axis(axes, "training tokens, masked or not")
        axes.legend()
    losses.set_ylabel("loss (nats per masked token)")
    accuracies.set_ylabel(f"accuracy{plots.sample_note(run)}, validation")
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
