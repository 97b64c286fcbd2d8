"""What `experiments.positions` leaves beside its runs: positions.json, positions.md and positions.png."""

import pathlib

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from experiments import pictures, report
from experiments.positions_scores import mean_and_error, slope_weights
from keras_seq.atomic_files import write_json, write_text

COLOURS = {"lstm": "C0", "transformer": "C1"}
TITLES = {"lstm": "LSTM", "transformer": "Transformer"}
NOTES = (
    "Nats per character of the validation split. cold@T: every window of T characters on its own, from the zero state "
    "or the empty cache, T the context that the model was trained with. The columns of ranges: the loss behind so many "
    "characters of past, from windows that overlap; the characters are the same in all of them and for all models. *: "
    "behind more past than the model was trained with. A Transformer has no such figure: it holds its context and no "
    "more, for its attention was never trained on longer distances. falls: from the first of the ranges to the last "
    "that it was trained with; per doubling: by a least-squares line through them. ±: a standard error over "
    "blocks of text; what another seed would give is not in it."
)


def octave(row, weights) -> tuple[np.ndarray, np.ndarray]:
    """The weighted sum of a row's octaves in each block of text, and the characters of each block, `[B]` both."""
    sums = np.array(row["octaves"]["sums"])[:, : len(weights)]
    return sums @ np.asarray(weights, "float64"), np.array(row["octaves"]["counts"])


def trained(row) -> int:
    """The octaves within the context that the row's model was trained with."""
    return int(np.log2(row["val_sequence_length"] / row["octaves"]["first"]))


def fall(number) -> np.ndarray:
    """What a fall from the first of `number` octaves to the last takes of each."""
    return np.eye(number)[0] - np.eye(number)[-1]


def ranges(rows) -> list[str]:
    """The octaves as words: 32-64, ..."""
    first = rows[0]["octaves"]["first"]
    most = max(len(row["octaves"]["sums"][0]) for row in rows)
    return [f"{first * 2**k}-{first * 2 ** (k + 1)}" for k in range(most)]


def table(rows) -> str:
    """A line for each run, as a Markdown table that reads as plain text too."""
    names = ranges(rows)
    lines = [["model", "context", "parameters", "seconds", "cold@T", *names, "falls by", "per doubling"]]
    for row in rows:
        there, number = len(row["octaves"]["sums"][0]), trained(row)
        cells = []
        for k in range(len(names)):
            if k < there:
                mean, _ = mean_and_error(*octave(row, np.eye(there)[k]))
                cells.append(f"{mean:.3f}{'' if k < number else '*'}")
            else:
                cells.append("-")
        changes = "--"
        if number > 1:
            changes = [shown(*octave(row, weights)) for weights in (fall(number), -slope_weights(number))]
        size = [str(row["val_sequence_length"]), f"{row['parameters']:,}", f"{row['train_seconds']:.0f}"]
        lines.append([row["model"], *size, f"{row['val_loss_per_character']:.3f}", *cells, *changes])
    return report.aligned(lines)


def shown(sums, counts) -> str:
    """A mean and its standard error as words."""
    mean, error = mean_and_error(sums, counts)
    return f"{round(mean, 4) + 0.0:.4f} ± {error:.4f}"  # no -0.0000


def statement(rows) -> str:
    """What was found, in sentences made from the figures."""
    context = max(row["val_sequence_length"] for row in rows)
    longest = {row["model"]: row for row in rows if row["val_sequence_length"] == context}
    names = ranges(rows)
    number = trained(rows[-1])
    last = np.eye(number)[-2] - np.eye(number)[-1]
    sentences = [f"Trained and scored with {context} characters, the same characters behind more and more past:"]
    for name, row in longest.items():
        whole, slope = (shown(*octave(row, weights)) for weights in (fall(number), -slope_weights(number)))
        sentences.append(
            f"- {TITLES[name]}: loss falls by {whole} from {names[0]} to {names[number - 1]}, {slope} per doubling; "
            f"the last doubling is worth {shown(*octave(row, last))}{flat(*mean_and_error(*octave(row, last)))}."
        )
    for what, weights in (("whole fall", fall(number)), ("last doubling", last)):
        (of_transformer, counts), (of_lstm, _) = (octave(longest[name], weights) for name in ("transformer", "lstm"))
        sentences.append(
            f"- The Transformer's {what} less the LSTM's, character by character: "
            f"{shown(of_transformer - of_lstm, counts)}."
        )
    return "\n".join(sentences)


def flat(mean, error) -> str:
    """What two standard errors say of a gain."""
    return ", which is nothing within two standard errors" if abs(mean) < 2 * error else ""


def write(folder: pathlib.Path, corpus, rows):
    """Writes the three files into `folder`."""
    write_json(folder / "positions.json", rows)
    picture = "![Left: loss over the characters seen. Right: what more past is worth](positions.png)"
    parts = [f"# {corpus}: what is a longer past worth?", table(rows), NOTES, statement(rows), picture]
    write_text(folder / "positions.md", "\n\n".join(parts) + "\n")
    draw(folder, rows)


def draw(folder, rows):
    """positions.png: on the left the losses over the characters seen; on the right what more past is worth."""
    figure, (curves, gains) = plt.subplots(1, 2, figsize=(12, 5.2), width_ratios=(6, 5), layout="constrained")
    contexts = sorted({row["val_sequence_length"] for row in rows})
    shades = {context: 0.35 + 0.65 * n / (len(contexts) - 1) for n, context in enumerate(contexts)}
    for row in rows:
        style = {"color": COLOURS[row["model"]], "alpha": shades[row["val_sequence_length"]], "linewidth": 1.7}
        draw_curve(curves, row, style, band=row["val_sequence_length"] == contexts[-1])
        draw_gain(gains, row, style)
    curves.set_xscale("log", base=2)
    curves.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    curves.xaxis.set_minor_locator(NullLocator())
    curves.set_xlabel("characters seen of the window")
    curves.set_ylabel("nats per character")
    gains.set_xticks(range(len(ranges(rows))), ranges(rows))
    gains.set_xlabel("characters seen of the window")
    gains.set_ylabel(f"nats above those behind {ranges(rows)[0]}, the same characters")
    for axes in (curves, gains):
        pictures.plain(axes)
    gains.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    families = [Line2D([], [], color=COLOURS[name], linewidth=2.2, label=TITLES[name]) for name in COLOURS]
    grey = [
        Line2D([], [], color="0.2", alpha=shades[context], linewidth=2, label=f"trained with {context}")
        for context in contexts
    ]
    beyond = Line2D([], [], color="0.2", linewidth=1.5, linestyle="--", label="LSTM, beyond its training")
    curves.legend(handles=[*families, *grey, beyond], frameon=False, loc="upper right", fontsize=9)
    pictures.save(figure, folder / "positions.png")


def draw_curve(axes, row, style, band):
    """A row's loss in bins of positions; dashed behind more past than it was trained with."""
    bins = row["by_position"]
    low, high = np.array(bins["edges"][:-1]) + 1, np.array(bins["edges"][1:])
    x, y, error = np.sqrt(low * high), np.array(bins["nats"]), np.array(bins["errors"])
    inside = high <= row["val_sequence_length"]
    axes.plot(x[inside], y[inside], **style)
    if not inside.all():
        beyond = slice(int(inside.sum()) - 1, None)
        axes.plot(x[beyond], y[beyond], **style, linestyle="--")
    if band:
        axes.fill_between(x, y - error, y + error, color=style["color"], alpha=0.15, linewidth=0)


def draw_gain(axes, row, style):
    """A row's loss in each octave less that in the first, with its standard error."""
    there, number = len(row["octaves"]["sums"][0]), trained(row)
    x = np.arange(there)
    estimates = [mean_and_error(*octave(row, np.eye(there)[k] - np.eye(there)[0])) for k in range(there)]
    y, error = (np.array(column) for column in zip(*estimates, strict=True))
    marks = {"marker": "o", "markersize": 4, "capsize": 2.5, "elinewidth": 1}
    if number > 1:
        axes.errorbar(x[:number], y[:number], error[:number], **style, **marks)
    if there > number:
        beyond = slice(number - 1, None)
        axes.errorbar(x[beyond], y[beyond], error[beyond], **style, **marks, linestyle="--")


def closing(folder: pathlib.Path, rows) -> str:
    """What the terminal shows at the end."""
    files = f"Picture: {folder / 'positions.png'}\nReport:  {folder / 'positions.md'}"
    return "\n" + "\n\n".join([table(rows), NOTES, statement(rows), files]) + f"\n{report.to_look(folder)}"
