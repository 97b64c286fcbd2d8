"""Report of `experiments.date_translation`, with date_translation.png and cross_attention.png."""

import pathlib
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.date_translation.scores import EXAMPLE_TEXT, Translator
from experiments.frame import plots, task_plots
from experiments.frame.report import Report, without_texts
from experiments.frame.tables import Table, percent_interval
from keras_seq.data.synthetic import dates
from keras_seq.training import load_run

NOTES = (
    "Exact match: the fraction of dates whose ten characters are all correct. The test dates were not trained on in "
    "any format, and the held-out formats were not trained on with any date. The validation pairs are of other dates, "
    "in the formats trained on."
)
MAX_MISTAKES = 12


def dates_report(folder: pathlib.Path, row: dict, label_smoothing: float) -> Report:
    """Plot the run and the attention of its model, and return the report."""
    plot(folder, row, label_smoothing)
    model, _ = load_run(folder / row["run"])
    plots.save(attention_figure(Translator(model)), folder / "cross_attention.png")
    beams = f"{row['num_beams']} beams"
    columns = {
        "format": lambda group: group["group"],
        "example": lambda group: group["example"],
        "trained on": lambda group: "yes" if group["trained"] else "no",
        "greedy": lambda group: f"{group['greedy']:.1%}",
        beams: lambda group: f"{group['beam']:.1%}",
    }
    mistakes = [[each[key] for key in ("text", "iso", "greedy", "beam")] for each in row["mistakes"][:MAX_MISTAKES]]
    details = [
        f"{row['parameters']:,} parameters, {row['train_seconds']:.0f} seconds of training, val_loss "
        f"{row['val_loss']:.4f} nats per character, exact match on the validation pairs {row['exact_match']:.2%}.",
        f"Mistakes of greedy search (the first of {len(row['mistakes'])}):",
        Table(["text", "target", "greedy", beams], mistakes),
        "![Loss and exact match during training; exact match by format](date_translation.png)",
        "![Cross-attention of the decoder while it generates a date](cross_attention.png)",
    ]
    table, selected = Table.of(row["groups"], columns), ("example", "trained on", "greedy", beams)
    return Report("Dates to ISO 8601", verdict(row), table, selected, without_texts([row]), NOTES, details)


def exact_match(groups: Sequence[dict], search: str, trained: bool) -> tuple[float, int]:
    """Return the exact match of a search in the formats trained on, or in those held out, and the number of texts."""
    parts = [group for group in groups if group["trained"] == trained]
    counts = [group["examples"] for group in parts]
    return float(np.average([group[search] for group in parts], weights=counts)), sum(counts)


def verdict(row: dict) -> str:
    """Say how many dates are translated exactly, and what the beam search changes."""
    exact, changes = [], []
    for kind, trained in (("formats trained on", True), ("formats held out", False)):
        (greedy, texts), (beam, _) = (exact_match(row["groups"], search, trained) for search in ("greedy", "beam"))
        exact.append(f"{percent_interval(greedy, texts)} of {texts:,} in {kind}")
        changes.append(f"{100 * (beam - greedy):+.1f}")
    beams = f"{row['num_beams']} beams change that by {' and '.join(changes)} percentage points"
    return f"Exact match by greedy search, of dates not trained on: {', '.join(exact)}. {beams}. One seed."


def smoothed_entropy(label_smoothing: float, vocabulary_size: int) -> float:
    """Return the entropy of a smoothed target in nats, a lower bound of the training loss."""
    p = np.full(vocabulary_size, label_smoothing / vocabulary_size)
    p[0] += 1 - label_smoothing
    return float(-(p[p > 0] * np.log(p[p > 0])).sum())


def plot(folder: pathlib.Path, row: dict, label_smoothing: float):
    """Write date_translation.png: loss and exact match during training, and the exact match of each format."""
    figure, axes = plots.subplot_mosaic([["loss", "bars"], ["match", "bars"]], figsize=(12, 7.5), width_ratios=(5, 6))
    loss, match, bars = axes["loss"], axes["match"], axes["bars"]
    entropy = smoothed_entropy(label_smoothing, dates.VOCABULARY_SIZE)
    smoothed = {"color": "C0", "alpha": 0.4, "label": f"training, label smoothing {label_smoothing:g}"}
    loss.plot(*plots.curve(folder / row["run"], "loss", "train"), **smoothed)
    loss.axhline(entropy, color="C0", linestyle=":", label=f"entropy of the smoothed targets, {entropy:.2f}")
    task_plots.curves(loss, folder, [row], {"val_loss": {"marker": "o", "label": "validation, no label smoothing"}})
    task_plots.curves(match, folder, [row], {"exact_match": {"marker": "o"}})
    task_plots.accuracy_axis(match)
    loss.set(ylabel="loss (nats per character)", ylim=(0, None))
    match.set_ylabel("exact match, validation")
    loss.legend()
    for axis in (loss, match):
        axis.set(xlabel="target characters trained on", xlim=(0, None))
        axis.xaxis.set_major_locator(MaxNLocator(5))
    groups, searches = row["groups"], {"greedy": "greedy", f"{row['num_beams']} beams": "beam"}
    series = {name: [group[key] for group in groups] for name, key in searches.items()}
    task_plots.bars(bars, [group["example"] for group in groups], series, plots.colors(series))
    for line, group in enumerate(groups):
        if not group["trained"]:
            bars.axhspan(line - 0.5, line + 0.5, color="0.9", zorder=0)
    bars.set_xlabel("exact match on dates not trained on (shaded: formats held out)")
    bars.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    plots.save(figure, folder / "date_translation.png")


def attention_figure(translate: Translator) -> Figure:
    """Draw the cross-attention of each decoder block, averaged over its heads: source on x, target on y."""
    translation, weights = translate.cross_attention()
    figure, all_axes = plots.subplots(1, len(weights), figsize=(0.8 + 5.2 * len(weights), 3.6), squeeze=False)
    means = weights.mean(axis=1)
    for number, (axes, mean) in enumerate(zip(all_axes[0], means, strict=True), start=1):
        image = axes.imshow(mean, cmap="Blues", vmin=0, vmax=means.max(), aspect="auto")
        axes.grid(visible=False)
        axes.set_xticks(range(len(EXAMPLE_TEXT)), EXAMPLE_TEXT.replace(" ", "␣"), family="monospace")
        axes.set_yticks(range(len(mean)), [*translation, "end"][: len(mean)], family="monospace")
        axes.set_title(f"decoder block {number}, mean of {weights.shape[1]} heads", fontsize=10)
    figure.colorbar(image, ax=all_axes, fraction=0.03, label="attention weight")
    return figure
