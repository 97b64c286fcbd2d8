"""Report of `experiments.entropy_floor`: entropy_floor.json, .md and .png, and the final message."""

import pathlib

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from experiments.entropy_floor.scores import MAX_STANDARD_ERRORS, ExcessLoss
from experiments.frame import plots, report
from keras_seq.atomic_files import write_json, write_text
from keras_seq.training import read_metrics

COLUMNS = {
    "text": lambda row: row["corpus"],
    "model": lambda row: row["model"],
    "parameters": lambda row: f"{row['parameters']:,}" if row["run"] else "-",
    "train seconds": lambda row: f"{row['train_seconds']:.0f}" if row["run"] else "-",
    "val_loss": lambda row: f"{row['val_loss']:.4f}" if row["run"] else "-",
    "val_loss_streaming": lambda row: f"{row['val_loss_streaming']:.4f}",
    "entropy floor": lambda row: f"{row['source_loss']:.4f}",
    "entropy rate": lambda row: f"{row['entropy_rate']:.4f}",
    "excess loss": lambda row: f"{row['excess_loss'] / row['source_loss']:.2%}",
    "±": lambda row: f"{row['standard_error'] / row['source_loss']:.2%}",
}
COLUMN_NOTES = (
    "Losses are in nats per token of the validation text. val_loss: disjoint windows of the training length, each from "
    "the zero state. val_loss_streaming: the text from start to end, with carried state; a Transformer's window moves "
    "by half its context length. entropy floor: the loss of the source on the same text; the entropy rate is its limit "
    "for long texts. excess loss: of val_loss_streaming over the entropy floor, relative to the floor, with its "
    "standard error. The n-gram models are interpolated Kneser-Ney models of the same training text, of the order of "
    "the chain, or of the order that is best on the last tenth of the training text."
)
GRAY = {"color": "0.3", "linewidth": 1.2}


def table(rows: list[dict]) -> str:
    """Format the rows as a Markdown table."""
    return report.markdown_table([list(COLUMNS), *[[show(row) for show in COLUMNS.values()] for row in rows]])


def leak_messages(rows: list[dict]) -> list[str]:
    """Return a message for each model that is below the entropy floor by more than chance."""
    losses = [(row, ExcessLoss(row["excess_loss"], row["standard_error"])) for row in rows]
    return [loss.message(row["model"], row["corpus"]) for row, loss in losses if loss.is_leak]


def verdicts(rows: list[dict]) -> str:
    """Format the leaks, if any, and the best model on each text, as lines."""
    lines = leak_messages(rows) or [
        f"No model is below the entropy floor by more than {MAX_STANDARD_ERRORS} standard errors."
    ]
    for corpus in dict.fromkeys(row["corpus"] for row in rows):
        best = min((row for row in rows if row["corpus"] == corpus and row["run"]), key=lambda row: row["excess_loss"])
        excess = best["excess_loss"] / best["source_loss"]
        lines.append(f"Best on {corpus}: {best['model']}, {excess:.2%} above the entropy floor.")
    return "\n".join(lines)


def write_report(folder: pathlib.Path, rows: list[dict]):
    """Write entropy_floor.json, entropy_floor.md and entropy_floor.png.

    Args:
        folder: Folder of the experiment.
        rows: The baselines and the results of the runs.
    """
    write_json(folder / "entropy_floor.json", [{k: v for k, v in row.items() if k != "sample"} for row in rows])
    parts = ["# Models and the entropy floor", table(rows), COLUMN_NOTES]
    parts += [f"- {line}" for line in verdicts(rows).splitlines()]
    parts += ["![Loss during training, and its excess over the entropy floor](entropy_floor.png)"]
    for row in rows:
        if row["run"]:
            parts.append(f"## Sample of {row['model']} on {row['corpus']}\n\n{report.indented(row['sample'])}")
    write_text(folder / "entropy_floor.md", "\n\n".join(parts) + "\n")
    plot(folder, rows)


def plot(folder: pathlib.Path, rows: list[dict]):
    """Plot a column for each text: losses and entropy floor above, excess loss below.

    Args:
        folder: Folder of the experiment.
        rows: The baselines and the results of the runs.
    """
    corpora = list(dict.fromkeys(row["corpus"] for row in rows))
    models = list(dict.fromkeys(row["model"] for row in rows if row["run"]))
    colors = {model: f"C{n % 10}" for n, model in enumerate(models)}
    figure, axes = plt.subplots(
        2, len(corpora), figsize=(2 + 5 * len(corpora), 7), layout="constrained", squeeze=False, sharex="col"
    )
    for (loss_axes, excess_axes), corpus in zip(axes.T, corpora, strict=True):
        corpus_rows = [row for row in rows if row["corpus"] == corpus]
        plot_corpus(loss_axes, excess_axes, folder, corpus_rows, colors)
        loss_axes.set_title(corpus)
        excess_axes.set_xlabel("train tokens")
        for panel in (loss_axes, excess_axes):
            plots.style_axes(panel)
    axes[0, 0].set_ylabel("loss (nats per token)")
    axes[1, 0].set_ylabel("excess loss")
    lines = [Line2D([], [], color=color, linewidth=2.2, label=model) for model, color in colors.items()]
    styles = {"training loss": {"alpha": 0.35}, "val_loss_streaming": {"marker": "o", "markersize": 3}}
    lines += [Line2D([], [], color="0.3", label=label, **style) for label, style in styles.items()]
    axes[0, 0].legend(handles=lines, frameon=False, loc="upper right", ncols=2, fontsize=9)
    plots.save(figure, folder / "entropy_floor.png")


def plot_corpus(loss_axes, excess_axes, folder: pathlib.Path, rows: list[dict], colors: dict):
    """Plot the curves of one text, with its entropy floor and n-gram baseline.

    Args:
        loss_axes: Axes for the losses.
        excess_axes: Axes for the excess loss relative to the entropy floor.
        folder: Folder of the experiment.
        rows: Rows of this text.
        colors: Color of each model.
    """
    floor, highest = rows[0]["source_loss"], 0.0
    for row in rows:
        if row["run"] is None:
            for axes, level in ((loss_axes, row["val_loss_streaming"]), (excess_axes, row["excess_loss"] / floor)):
                axes.axhline(level, linestyle=":", **GRAY)
                label_level(axes, level, row["model"])
            highest = max(highest, row["val_loss_streaming"])
            continue
        run, color = folder / row["run"], colors[row["model"]]
        points = [(line["tokens"], line["loss"]) for line in read_metrics(run, "train")]
        loss_axes.plot(*zip(*points, strict=True), color=color, alpha=0.35, linewidth=1.2)
        validations = read_metrics(run, "validation")
        tokens = [line["tokens"] for line in validations]
        losses = [line["val_loss_streaming"] for line in validations]
        highest = max(highest, losses[0], points[len(points) // 8][1])
        loss_axes.plot(tokens, losses, color=color, linewidth=1.8, marker="o", markersize=3)
        shares = [line["excess_loss"] / floor for line in validations]
        excess_axes.plot(tokens, shares, color=color, linewidth=1.8, marker="o", markersize=3)
        style = {"textcoords": "offset points", "va": "center", "ha": "left", "fontsize": 9, "color": color}
        excess_axes.annotate(f"{shares[-1]:.2%}", (tokens[-1], shares[-1]), (6, 0), **style)
        excess_axes.set_xlim(0, tokens[-1] * 1.13)  # shared by both axes
    rate = rows[0]["entropy_rate"]
    loss_axes.axhline(floor, **GRAY)
    loss_axes.axhline(rate, linestyle="--", **GRAY)
    label = f"entropy floor of this text {floor:.4f}; entropy rate (dashed) {rate:.4f}"
    label_level(loss_axes, min(floor, rate), label, va="top")
    height = highest - floor
    loss_axes.set_ylim(min(floor, rate) - 0.14 * height, highest + 0.1 * height)
    if min(row["excess_loss"] for row in rows) > 0:
        excess_axes.set_yscale("log")
        excess_axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        excess_axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        excess_axes.axhline(0, **GRAY)
    excess_axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    excess_axes.xaxis.set_major_formatter(FuncFormatter(report.thousands))


def label_level(axes, level: float, label: str, va: str = "bottom"):
    """Label a horizontal line at its left end.

    Args:
        axes: Matplotlib axes.
        level: y of the line.
        label: Text of the label.
        va: "bottom" to write above the line, "top" to write below it.
    """
    style = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "ha": "left", "va": va}
    axes.annotate(label, (0.01, level), (0, 2 if va == "bottom" else -2), fontsize=9, color="0.3", **style)


def final_message(folder: pathlib.Path, rows: list[dict]) -> str:
    """Format the message at the end of the experiment.

    Args:
        folder: Folder of the experiment.
        rows: The baselines and the results of the runs.
    """
    files = f"Curves:  {folder / 'entropy_floor.png'}\nReport:  {folder / 'entropy_floor.md'}"
    return (
        "\n" + "\n\n".join([table(rows), COLUMN_NOTES, verdicts(rows), files]) + f"\n{report.tensorboard_hint(folder)}"
    )
