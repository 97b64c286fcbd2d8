"""Report of `experiments.date_translation`, with date_translation.png and cross_attention.png."""

import pathlib

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.date_translation.findings import smoothed_entropy, verdict
from experiments.date_translation.scores import EXAMPLE_TEXT, Translator
from experiments.frame import plots, task_plots
from experiments.frame.report import Report, without_texts
from experiments.frame.tables import Table
from keras_seq.data.synthetic import dates
from keras_seq.tracking import Summaries
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
    match.set(ylabel="exact match, validation")
    loss.legend()
    for axis in (loss, match):
        axis.set(xlabel="target characters trained on", xlim=(0, None))
        axis.xaxis.set_major_locator(MaxNLocator(5))
    groups = row["groups"]
    series = {
        name: [group[key] for group in groups]
        for name, key in (("greedy", "greedy"), (f"{row['num_beams']} beams", "beam"))
    }
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


def attention_image(translate: Translator) -> Summaries:
    """Return the picture of the cross-attention for TensorBoard."""
    return Summaries({}, images={"cross_attention": plots.pixels(attention_figure(translate))})
