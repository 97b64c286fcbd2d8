"""What `experiments.dates` leaves beside its run: dates.json, dates.md, dates.png, cross_attention.png; and says."""

import pathlib

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from experiments import pictures, report
from keras_seq.atomic_files import write_json, write_text
from keras_seq.training import read_metrics

NOTES = (
    "Exact match: the share of dates whose ten characters are all right. No date here was trained on, in any format; "
    "the formats held out were not trained on with any date. Validation is other dates again, in the formats seen."
)
MISTAKES = 12  # told in the report


def write(folder: pathlib.Path, run: str, result: dict, smoothing: float):
    """Writes dates.json, dates.md and dates.png into `folder`."""
    write_json(folder / "dates.json", result)
    parts = ["# Dates to ISO 8601", summary(result), formats(result), NOTES, mistakes(result)]
    parts += ["![Loss and exact match over training; exact match by format](dates.png)"]
    parts += ["![Where the decoder looks while it writes a date](cross_attention.png)"]
    write_text(folder / "dates.md", "\n\n".join(parts) + "\n")
    draw(folder / "dates.png", folder / run / "metrics.jsonl", result, smoothing)


def totals(formats) -> dict:
    """Exact match over all texts in the formats trained on, and over all in those held out."""
    found = {}
    for name, held_out in (("formats trained on", False), ("formats held out", True)):
        rows = [row for row in formats if row["held_out"] == held_out]
        texts = sum(row["texts"] for row in rows)
        shares = {way: sum(row[way] * row["texts"] for row in rows) / texts for way in ("greedy", "beam")}
        found[name] = {"texts": texts, **shares}
    return found


def summary(result) -> str:
    """A Markdown table of the whole."""
    lines = [["dates in", "texts", "greedy", f"beam of {result['beam_width']}"]]
    for name, figures in result["exact_match"].items():
        lines.append([name, f"{figures['texts']:,}", f"{figures['greedy']:.2%}", f"{figures['beam']:.2%}"])
    sizes = (
        f"{result['parameters']:,} parameters, {result['train_seconds']:.0f} seconds of training, "
        f"{result['val_loss']:.4f} nats per character on validation, of which "
        f"{result['validation_exact_match']:.2%} are an exact match (greedy)."
    )
    return report.aligned(lines) + "\n\n" + sizes


def formats(result) -> str:
    """A Markdown table, a line a format."""
    lines = [["format", "for example", "trained on", "greedy", f"beam of {result['beam_width']}"]]
    for row in result["formats"]:
        shares = [f"{row[name]:.1%}" for name in ("greedy", "beam")]
        lines.append([row["format"], row["example"], "no" if row["held_out"] else "yes", *shares])
    return report.aligned(lines)


def mistakes(result) -> str:
    """The first mistakes of greedy search, or that there are none."""
    wrong = result["mistakes"]
    if not wrong:
        return "Greedy search made no mistake."
    lines = [["text", "is", "greedy wrote", f"a beam of {result['beam_width']} wrote"]]
    lines += [[w["text"], w["iso"], w["greedy"], w["beam"]] for w in wrong[:MISTAKES]]
    return f"The first of {len(wrong)} mistakes of greedy search:\n\n{report.aligned(lines)}"


def floor(smoothing, size) -> float:
    """The least cross-entropy there is of a target smoothed over `size` ids: its own entropy, in nats."""
    p = np.full(size, smoothing / size)
    p[0] += 1 - smoothing
    return float(-(p[p > 0] * np.log(p[p > 0])).sum())


def draw(path, metrics: pathlib.Path, result, smoothing):
    """dates.png: loss and exact match over training on the left, a bar a format on the right."""
    lines = read_metrics(metrics)
    train, validation = ([line for line in lines if line["split"] == split] for split in ("train", "validation"))
    figure, axes = plt.subplot_mosaic(
        [["loss", "bars"], ["match", "bars"]], figsize=(12, 6.4), width_ratios=(5, 6), layout="constrained"
    )
    loss, match, bars = axes["loss"], axes["match"], axes["bars"]
    loss.plot(*_points(train, "loss"), color="C0", alpha=0.4, label=f"training, smoothed by {smoothing:g}")
    least = floor(smoothing, result["vocabulary_size"])
    loss.axhline(least, color="C0", linestyle=(0, (1.5, 1.5)), linewidth=1, label=f"the least of it, {least:.2f}")
    loss.plot(*_points(validation, "val_loss"), color="C0", marker="o", markersize=3, label="validation, plain")
    loss.set_ylabel("nats per character")
    loss.set_ylim(0)
    loss.legend(frameon=False)
    match.plot(*_points(validation, "exact_match"), color="C2", marker="o", markersize=3)
    match.set_ylabel("exact match, validation")
    match.set_xlabel("characters written in training")
    match.set_ylim(-0.02, 1.05)
    match.yaxis.set_major_formatter(PercentFormatter(1))
    for axis in (loss, match):
        axis.set_xlim(0)
        axis.xaxis.set_major_locator(MaxNLocator(5))
        axis.xaxis.set_major_formatter(FuncFormatter(report.thousands))
        pictures.plain(axis)
    draw_formats(bars, result)
    pictures.save(figure, path)


def draw_formats(axes, result):
    """A bar for each format, those held out in another colour; the end of the beam search as a mark."""
    rows, beam = result["formats"][::-1], f"beam of {result['beam_width']}"
    for held_out, label in ((False, "trained on"), (True, "held out")):
        places = [n for n, row in enumerate(rows) if row["held_out"] == held_out]
        shares = [rows[n]["greedy"] for n in places]
        axes.barh(places, shares, height=0.7, color=f"C{1 if held_out else 0}", alpha=0.75, label=label)
    axes.plot([row["beam"] for row in rows], range(len(rows)), "|", color="0.15", label=beam)
    for place, row in enumerate(rows):
        axes.annotate(f"{row['greedy']:.1%}", (1.02, place), va="center", fontsize=9)
    axes.set_yticks(range(len(rows)), [row["example"] for row in rows], fontsize=9)
    axes.set_xlim(0, 1.14)
    axes.set_ylim(-0.6, len(rows) + 0.9)
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel("exact match on dates never trained on")
    axes.legend(frameon=False, loc="upper left", ncols=3)
    pictures.plain(axes)


def attention_figure(text, written, weights):
    """A picture for each block of the decoder, heads averaged: what was read on x, what is written on y.

    Args:
        text: S characters.
        written: what the model writes.
        weights: `[blocks, H, T, S]`.
    """
    figure, all_axes = plt.subplots(
        1, len(weights), figsize=(0.8 + 5.2 * len(weights), 3.6), layout="constrained", squeeze=False
    )
    means = weights.mean(axis=1)
    for number, (axes, mean) in enumerate(zip(all_axes[0], means, strict=True)):
        image = axes.imshow(mean, cmap="Blues", vmin=0, vmax=means.max(), aspect="auto")
        axes.set_xticks(range(len(text)), text.replace(" ", "␣"), family="monospace")
        axes.set_yticks(range(len(mean)), [*written, "end"][: len(mean)], family="monospace")
        axes.set_title(f"block {number + 1} of the decoder, mean of {weights.shape[1]} heads", fontsize=10)
    figure.colorbar(image, ax=all_axes, fraction=0.03, label="weight")
    return figure


def _points(lines, key):
    return [line["tokens"] for line in lines], [line[key] for line in lines]


def closing(folder: pathlib.Path, result) -> str:
    """What the terminal shows at the end."""
    files = {"Curves": "dates.png", "Attention": "cross_attention.png", "Report": "dates.md"}
    where = "\n".join(f"{name + ':':11}{folder / file}" for name, file in files.items())
    parts = [formats(result), NOTES, mistakes(result), summary(result), where]
    return "\n" + "\n\n".join(parts) + f"\n{report.to_look(folder)}"
