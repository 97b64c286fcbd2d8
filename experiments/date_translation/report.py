"""Report of `experiments.date_translation`: date_translation.json, .md and .png, and the final message."""

import pathlib

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from experiments.frame import plots, report
from keras_seq.atomic_files import write_json, write_text
from keras_seq.training import read_metrics

COLUMN_NOTES = (
    "Exact match: the fraction of dates whose ten characters are all correct. The test dates were not trained on in "
    "any format, and the held-out formats were not trained on with any date. The validation pairs are of other dates, "
    "in the formats trained on."
)
MAX_MISTAKES = 12  # shown in the report


def write_report(folder: pathlib.Path, run: str, result: dict, label_smoothing: float):
    """Write date_translation.json, date_translation.md and date_translation.png.

    Args:
        folder: Folder of the experiment.
        run: Name of the run's folder in it.
        result: Content of the run's result.json.
        label_smoothing: Label smoothing of the training loss.
    """
    write_json(folder / "date_translation.json", result)
    parts = ["# DateTranslationConfig to ISO 8601", summary(result), formats(result), COLUMN_NOTES, mistakes(result)]
    parts += ["![Loss and exact match during training; exact match by format](date_translation.png)"]
    parts += ["![Cross-attention of the decoder while it generates a date](cross_attention.png)"]
    write_text(folder / "date_translation.md", "\n\n".join(parts) + "\n")
    plot(folder / "date_translation.png", folder / run, result, label_smoothing)


def totals(formats) -> dict:
    """Compute the exact match over all test texts in the formats trained on, and over those in the held-out formats."""
    exact_match = {}
    for name, held_out in (("formats trained on", False), ("formats held out", True)):
        rows = [row for row in formats if row["held_out"] == held_out]
        texts = sum(row["texts"] for row in rows)
        shares = {search: sum(row[search] * row["texts"] for row in rows) / texts for search in ("greedy", "beam")}
        exact_match[name] = {"texts": texts, **shares}
    return exact_match


def summary(result: dict) -> str:
    """Format the exact match of all formats together as a Markdown table, with sizes and the validation loss below."""
    lines = [["format", "texts", "greedy", f"{result['num_beams']} beams"]]
    for name, row in result["exact_match"].items():
        lines.append([name, f"{row['texts']:,}", f"{row['greedy']:.2%}", f"{row['beam']:.2%}"])
    sizes = (
        f"{result['parameters']:,} parameters, {result['train_seconds']:.0f} seconds of training, "
        f"val_loss {result['val_loss']:.4f} nats per character, exact match of greedy search on the validation pairs "
        f"{result['val_exact_match']:.2%}."
    )
    return report.markdown_table(lines) + "\n\n" + sizes


def formats(result: dict) -> str:
    """Format the exact match of each format as a Markdown table."""
    lines = [["format", "example", "trained on", "greedy", f"{result['num_beams']} beams"]]
    for row in result["formats"]:
        shares = [f"{row[name]:.1%}" for name in ("greedy", "beam")]
        lines.append([row["format"], row["example"], "no" if row["held_out"] else "yes", *shares])
    return report.markdown_table(lines)


def mistakes(result: dict) -> str:
    """Format the first mistakes of greedy search as a Markdown table."""
    if not result["mistakes"]:
        return "Greedy search made no mistakes."
    lines = [["text", "target", "greedy", f"{result['num_beams']} beams"]]
    lines += [
        [mistake[key] for key in ("text", "iso", "greedy", "beam")] for mistake in result["mistakes"][:MAX_MISTAKES]
    ]
    return f"The first of {len(result['mistakes'])} mistakes of greedy search:\n\n{report.markdown_table(lines)}"


def smoothed_entropy(label_smoothing: float, vocabulary_size: int) -> float:
    """Compute the entropy in nats of a smoothed target, a lower bound of the training loss.

    Args:
        label_smoothing: Probability that is spread over all ids.
        vocabulary_size: V.
    """
    p = np.full(vocabulary_size, label_smoothing / vocabulary_size)
    p[0] += 1 - label_smoothing
    return float(-(p[p > 0] * np.log(p[p > 0])).sum())


def plot(path: pathlib.Path, run: pathlib.Path, result: dict, label_smoothing: float):
    """Plot loss and exact match during training on the left, and the exact match of each format on the right.

    Args:
        path: PNG file to write.
        run: Folder of the run.
        result: Content of the run's result.json.
        label_smoothing: Label smoothing of the training loss.
    """
    train, validation = (read_metrics(run, split) for split in ("train", "validation"))
    figure, axes = plt.subplot_mosaic(
        [["loss", "bars"], ["match", "bars"]], figsize=(12, 6.4), width_ratios=(5, 6), layout="constrained"
    )
    loss, match, bars = axes["loss"], axes["match"], axes["bars"]
    loss.plot(*_points(train, "loss"), color="C0", alpha=0.4, label=f"training, label smoothing {label_smoothing:g}")
    entropy = smoothed_entropy(label_smoothing, result["vocabulary_size"])
    label = f"entropy of the smoothed targets, {entropy:.2f}"
    loss.axhline(entropy, color="C0", linestyle=(0, (1.5, 1.5)), linewidth=1, label=label)
    loss.plot(
        *_points(validation, "val_loss"), color="C0", marker="o", markersize=3, label="validation, no label smoothing"
    )
    loss.set_ylabel("loss (nats per character)")
    loss.set_ylim(0)
    loss.legend(frameon=False)
    match.plot(*_points(validation, "exact_match"), color="C2", marker="o", markersize=3)
    match.set_ylabel("exact match, validation")
    match.set_xlabel("target characters trained on")
    match.set_ylim(-0.02, 1.05)
    match.yaxis.set_major_formatter(PercentFormatter(1))
    for axis in (loss, match):
        axis.set_xlim(0)
        axis.xaxis.set_major_locator(MaxNLocator(5))
        axis.xaxis.set_major_formatter(FuncFormatter(report.thousands))
        plots.style_axes(axis)
    plot_formats(bars, result)
    plots.save(figure, path)


def plot_formats(axes, result: dict):
    """Plot a bar for each format, in another color for held-out ones, with a mark for the beam search.

    Args:
        axes: Matplotlib axes.
        result: Content of the run's result.json.
    """
    rows, beam = result["formats"][::-1], f"{result['num_beams']} beams"
    for held_out, label in ((False, "trained on"), (True, "held out")):
        positions = [n for n, row in enumerate(rows) if row["held_out"] == held_out]
        shares = [rows[n]["greedy"] for n in positions]
        axes.barh(positions, shares, height=0.7, color=f"C{1 if held_out else 0}", alpha=0.75, label=label)
    axes.plot([row["beam"] for row in rows], range(len(rows)), "|", color="0.15", label=beam)
    for position, row in enumerate(rows):
        axes.annotate(f"{row['greedy']:.1%}", (1.02, position), va="center", fontsize=9)
    axes.set_yticks(range(len(rows)), [row["example"] for row in rows], fontsize=9)
    axes.set_xlim(0, 1.14)
    axes.set_ylim(-0.6, len(rows) + 0.9)
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel("exact match on dates not trained on")
    axes.legend(frameon=False, loc="upper left", ncols=3)
    plots.style_axes(axes)


def attention_figure(text: str, translation: str, weights: np.ndarray):
    """Plot the cross-attention of each decoder block, averaged over its heads: source on x, target on y.

    Args:
        text: S characters.
        translation: What the model generates for it.
        weights: `[blocks, H, T, S]`.
    """
    figure, all_axes = plt.subplots(
        1, len(weights), figsize=(0.8 + 5.2 * len(weights), 3.6), layout="constrained", squeeze=False
    )
    means = weights.mean(axis=1)
    for number, (axes, mean) in enumerate(zip(all_axes[0], means, strict=True)):
        image = axes.imshow(mean, cmap="Blues", vmin=0, vmax=means.max(), aspect="auto")
        axes.set_xticks(range(len(text)), text.replace(" ", "␣"), family="monospace")
        axes.set_yticks(range(len(mean)), [*translation, "end"][: len(mean)], family="monospace")
        axes.set_title(f"decoder block {number + 1}, mean of {weights.shape[1]} heads", fontsize=10)
    figure.colorbar(image, ax=all_axes, fraction=0.03, label="attention weight")
    return figure


def _points(lines, key):
    return [line["tokens"] for line in lines], [line[key] for line in lines]


def final_message(folder: pathlib.Path, result: dict) -> str:
    """Format the message at the end of the experiment.

    Args:
        folder: Folder of the experiment.
        result: Content of the run's result.json.
    """
    files = {"Curves": "date_translation.png", "Attention": "cross_attention.png", "Report": "date_translation.md"}
    paths = "\n".join(f"{name + ':':11}{folder / file}" for name, file in files.items())
    parts = [formats(result), COLUMN_NOTES, mistakes(result), summary(result), paths]
    return "\n" + "\n\n".join(parts) + f"\n{report.tensorboard_hint(folder)}"
