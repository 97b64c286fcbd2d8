"""Report of `experiments.loss_by_position`: loss_by_position.json, .md and .png, and the final message."""

import pathlib

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from experiments.frame import plots, report
from experiments.loss_by_position.scores import mean_and_error, slope_weights
from keras_seq.atomic_files import write_json, write_text

COLORS = {"lstm": "C0", "transformer": "C1"}
TITLES = {"lstm": "LSTM", "transformer": "Transformer"}
COLUMN_NOTES = (
    "Losses are in nats per character of the validation split. T: the length of the training windows. val_loss@T: over "
    "disjoint windows of T characters, each from the zero state or the empty cache. Columns of ranges: the loss after "
    "that many characters of past, from overlapping windows; all columns and all models are scored on the same "
    "characters. *: more past than in training; a Transformer has no such value, since its context length is T. falls "
    "by: the loss in the first range minus that in the last one within T; per doubling: the slope of a least-squares "
    "line through these ranges. ±: a standard error over blocks of text; the variance between seeds is not in it."
)


def octave_sums(row: dict, weights) -> tuple[np.ndarray, np.ndarray]:
    """Sum the weighted octave losses of a row in each block of text.

    Args:
        row: Result of a run.
        weights: Weights of the first octaves.

    Returns:
        The sums and the numbers of characters, `[B]` each.
    """
    sums = np.array(row["octaves"]["sums"])[:, : len(weights)]
    return sums @ np.asarray(weights, "float64"), np.array(row["octaves"]["counts"])


def num_trained_octaves(row: dict) -> int:
    """Return the number of octaves within the training length of a row's model."""
    return int(np.log2(row["val_sequence_length"] / row["octaves"]["first"]))


def fall_weights(num_octaves: int) -> np.ndarray:
    """Return the weights of the octaves in the fall of the loss from the first one to the last."""
    return np.eye(num_octaves)[0] - np.eye(num_octaves)[-1]


def ranges(rows: list[dict]) -> list[str]:
    """Return the labels of the octaves: 32-64, ..."""
    first = rows[0]["octaves"]["first"]
    num_ranges = max(len(row["octaves"]["sums"][0]) for row in rows)
    return [f"{first * 2**k}-{first * 2 ** (k + 1)}" for k in range(num_ranges)]


def table(rows: list[dict]) -> str:
    """Format the rows as a Markdown table."""
    names = ranges(rows)
    lines = [["model", "T", "parameters", "train seconds", "val_loss@T", *names, "falls by", "per doubling"]]
    for row in rows:
        num_octaves, num_trained = len(row["octaves"]["sums"][0]), num_trained_octaves(row)
        cells = []
        for k in range(len(names)):
            if k < num_octaves:
                mean, _ = mean_and_error(*octave_sums(row, np.eye(num_octaves)[k]))
                cells.append(f"{mean:.3f}{'' if k < num_trained else '*'}")
            else:
                cells.append("-")
        changes = "--"
        if num_trained > 1:
            weight_sets = (fall_weights(num_trained), -slope_weights(num_trained))
            changes = [format_estimate(*octave_sums(row, weights)) for weights in weight_sets]
        size = [str(row["val_sequence_length"]), f"{row['parameters']:,}", f"{row['train_seconds']:.0f}"]
        lines.append([row["model"], *size, f"{row['val_loss_per_character']:.3f}", *cells, *changes])
    return report.markdown_table(lines)


def format_estimate(sums, counts) -> str:
    """Format a mean and its standard error.

    Args:
        sums: Sum of each block of text, `[B]`.
        counts: Number of characters in each block, `[B]`.
    """
    mean, error = mean_and_error(sums, counts)
    return f"{round(mean, 4) + 0.0:.4f} ± {error:.4f}"  # no -0.0000


def conclusion(rows: list[dict]) -> str:
    """Format the conclusion from the rows of the longest windows."""
    max_length = max(row["val_sequence_length"] for row in rows)
    longest_rows = {row["model"]: row for row in rows if row["val_sequence_length"] == max_length}
    names = ranges(rows)
    num_octaves = num_trained_octaves(rows[-1])
    last_doubling = np.eye(num_octaves)[-2] - np.eye(num_octaves)[-1]
    sentences = [f"Trained and scored on windows of {max_length} characters; the same characters after a growing past:"]
    for name, row in longest_rows.items():
        weight_sets = (fall_weights(num_octaves), -slope_weights(num_octaves))
        total, slope = (format_estimate(*octave_sums(row, weights)) for weights in weight_sets)
        gain = octave_sums(row, last_doubling)
        sentences.append(
            f"- {TITLES[name]}: loss falls by {total} from {names[0]} to {names[num_octaves - 1]}, {slope} per "
            f"doubling; in the last doubling by {format_estimate(*gain)}{significance_note(*mean_and_error(*gain))}."
        )
    for label, weights in (("total fall", fall_weights(num_octaves)), ("fall in the last doubling", last_doubling)):
        transformer_sums, counts = octave_sums(longest_rows["transformer"], weights)
        lstm_sums, _ = octave_sums(longest_rows["lstm"], weights)
        sentences.append(
            f"- The Transformer's {label} minus the LSTM's, paired by character: "
            f"{format_estimate(transformer_sums - lstm_sums, counts)}."
        )
    return "\n".join(sentences)


def significance_note(mean: float, error: float) -> str:
    """Return a note if a gain is less than two standard errors, else an empty string.

    Args:
        mean: The gain.
        error: Its standard error.
    """
    return ", not significant (less than two standard errors)" if abs(mean) < 2 * error else ""


def write_report(folder: pathlib.Path, corpus: str, rows: list[dict]):
    """Write loss_by_position.json, loss_by_position.md and loss_by_position.png.

    Args:
        folder: Folder of the experiment.
        corpus: Name of the corpus.
        rows: Results of the runs.
    """
    write_json(folder / "loss_by_position.json", rows)
    image = "![Left: loss by position. Right: loss relative to the first range](loss_by_position.png)"
    parts = [f"# {corpus}: loss by position", table(rows), COLUMN_NOTES, conclusion(rows), image]
    write_text(folder / "loss_by_position.md", "\n\n".join(parts) + "\n")
    plot(folder, rows)


def plot(folder: pathlib.Path, rows: list[dict]):
    """Plot the loss by position on the left, and the loss in each octave relative to the first on the right.

    Args:
        folder: Folder of the experiment.
        rows: Results of the runs.
    """
    figure, (curves, gains) = plt.subplots(1, 2, figsize=(12, 5.2), width_ratios=(6, 5), layout="constrained")
    sequence_lengths = sorted({row["val_sequence_length"] for row in rows})
    alphas = {length: 0.35 + 0.65 * n / (len(sequence_lengths) - 1) for n, length in enumerate(sequence_lengths)}
    for row in rows:
        style = {"color": COLORS[row["model"]], "alpha": alphas[row["val_sequence_length"]], "linewidth": 1.7}
        plot_curve(curves, row, style, band=row["val_sequence_length"] == sequence_lengths[-1])
        plot_gain(gains, row, style)
    curves.set_xscale("log", base=2)
    curves.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    curves.xaxis.set_minor_locator(NullLocator())
    curves.set_xlabel("position: characters of past")
    curves.set_ylabel("loss (nats per character)")
    gains.set_xticks(range(len(ranges(rows))), ranges(rows))
    gains.set_xlabel("position: characters of past")
    gains.set_ylabel(f"loss minus that at {ranges(rows)[0]}, same characters (nats)")
    for axes in (curves, gains):
        plots.style_axes(axes)
    gains.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    families = [Line2D([], [], color=COLORS[name], linewidth=2.2, label=TITLES[name]) for name in COLORS]
    lengths = [
        Line2D([], [], color="0.2", alpha=alphas[length], linewidth=2, label=f"T = {length}")
        for length in sequence_lengths
    ]
    beyond = Line2D([], [], color="0.2", linewidth=1.5, linestyle="--", label="LSTM, beyond T")
    curves.legend(handles=[*families, *lengths, beyond], frameon=False, loc="upper right", fontsize=9)
    plots.save(figure, folder / "loss_by_position.png")


def plot_curve(axes, row: dict, style: dict, band: bool):
    """Plot the loss of a row in bins of positions, dashed beyond its training length.

    Args:
        axes: Matplotlib axes.
        row: Result of a run.
        style: Style of the line.
        band: Whether to shade one standard error.
    """
    bins = row["by_position"]
    low, high = np.array(bins["edges"][:-1]) + 1, np.array(bins["edges"][1:])
    x, y, error = np.sqrt(low * high), np.array(bins["losses"]), np.array(bins["standard_errors"])
    inside = high <= row["val_sequence_length"]
    axes.plot(x[inside], y[inside], **style)
    if not inside.all():
        beyond = slice(int(inside.sum()) - 1, None)
        axes.plot(x[beyond], y[beyond], **style, linestyle="--")
    if band:
        axes.fill_between(x, y - error, y + error, color=style["color"], alpha=0.15, linewidth=0)


def plot_gain(axes, row: dict, style: dict):
    """Plot the loss of a row in each octave minus that in the first, with its standard error.

    Args:
        axes: Matplotlib axes.
        row: Result of a run.
        style: Style of the line.
    """
    num_octaves, num_trained = len(row["octaves"]["sums"][0]), num_trained_octaves(row)
    x, weights = np.arange(num_octaves), np.eye(num_octaves)
    estimates = [mean_and_error(*octave_sums(row, weights[k] - weights[0])) for k in range(num_octaves)]
    y, error = (np.array(column) for column in zip(*estimates, strict=True))
    marks = {"marker": "o", "markersize": 4, "capsize": 2.5, "elinewidth": 1}
    if num_trained > 1:
        axes.errorbar(x[:num_trained], y[:num_trained], error[:num_trained], **style, **marks)
    if num_octaves > num_trained:
        beyond = slice(num_trained - 1, None)
        axes.errorbar(x[beyond], y[beyond], error[beyond], **style, **marks, linestyle="--")


def final_message(folder: pathlib.Path, rows: list[dict]) -> str:
    """Format the message at the end of the experiment.

    Args:
        folder: Folder of the experiment.
        rows: Results of the runs.
    """
    files = f"Curves:  {folder / 'loss_by_position.png'}\nReport:  {folder / 'loss_by_position.md'}"
    return (
        "\n"
        + "\n\n".join([table(rows), COLUMN_NOTES, conclusion(rows), files])
        + f"\n{report.tensorboard_hint(folder)}"
    )
