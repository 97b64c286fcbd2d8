"""What `experiments.floors` leaves beside its runs, floors.json, floors.md and floors.png, and says at the end."""

import pathlib

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from experiments import pictures, report
from experiments.floors_scores import TOO_FAR, Gap
from keras_seq.atomic_files import write_json, write_text
from keras_seq.training import read_metrics

COLUMNS = {
    "text": lambda row: row["corpus"],
    "model": lambda row: row["model"],
    "parameters": lambda row: f"{row['parameters']:,}" if row["run"] else "-",
    "seconds": lambda row: f"{row['train_seconds']:.0f}" if row["run"] else "-",
    "cold nats": lambda row: f"{row['val_loss']:.4f}" if row["run"] else "-",
    "warm nats": lambda row: f"{row['val_loss_streaming']:.4f}",
    "floor": lambda row: f"{row['source_loss']:.4f}",
    "entropy rate": lambda row: f"{row['entropy_rate']:.4f}",
    "excess_loss": lambda row: f"{row['excess_loss'] / row['source_loss']:.2%}",
    "±": lambda row: f"{row['standard_error'] / row['source_loss']:.2%}",
}
NOTES = (
    "Nats per id of the validation text. cold: every window of a context on its own, from the zero state. warm: the "
    "text from start to end, recurrent state carried; a Transformer's window moves by half its context. floor: the "
    "source's own loss on this very text, each id given all before it; the entropy rate is that of an endless one. "
    "above: how far the warm loss is above the floor, as a part of it, and its standard error. The n-grams are "
    "interpolated Kneser-Ney over the same training text: of the order of the chain, or of what is best on the last "
    "tenth of the training text."
)
GREY = {"color": "0.3", "linewidth": 1.2}


def table(rows) -> str:
    """A Markdown table, aligned so that it reads as plain text too."""
    return report.aligned([list(COLUMNS), *[[show(row) for show in COLUMNS.values()] for row in rows]])


def leaks(rows) -> list[str]:
    """A sentence for each model that is below the floor by more than chance."""
    gaps = [(row, Gap(row["excess_loss"], row["standard_error"])) for row in rows]
    return [gap.sentence(row["model"], row["corpus"]) for row, gap in gaps if gap.leaks]


def verdicts(rows) -> str:
    """Whether a model leaks, and the best one on each text."""
    lines = leaks(rows) or [f"No model is below the floor by more than {TOO_FAR} standard errors."]
    for corpus in dict.fromkeys(row["corpus"] for row in rows):
        best = min((row for row in rows if row["corpus"] == corpus and row["run"]), key=lambda row: row["excess_loss"])
        above = best["excess_loss"] / best["source_loss"]
        lines.append(f"Best on {corpus}: {best['model']}, {above:.2%} above the floor.")
    return "\n".join(lines)


def write(folder: pathlib.Path, rows):
    """Writes the three files into `folder`."""
    write_json(folder / "floors.json", [{k: v for k, v in row.items() if k != "sample"} for row in rows])
    parts = ["# How close models come to what is possible", table(rows), NOTES]
    parts += [f"- {line}" for line in verdicts(rows).splitlines()]
    parts += ["![Loss over training, and how far it is above the floor](floors.png)"]
    for row in rows:
        if row["run"]:
            parts.append(f"## {row['model']} writes {row['corpus']}\n\n{report.indented(row['sample'])}")
    write_text(folder / "floors.md", "\n\n".join(parts) + "\n")
    draw(folder, rows)


def draw(folder, rows):
    """floors.png: a column a text; above the losses over training and the floor, below the distance between them."""
    corpora = list(dict.fromkeys(row["corpus"] for row in rows))
    models = list(dict.fromkeys(row["model"] for row in rows if row["run"]))
    colours = {model: f"C{n % 10}" for n, model in enumerate(models)}
    figure, axes = plt.subplots(
        2, len(corpora), figsize=(2 + 5 * len(corpora), 7), layout="constrained", squeeze=False, sharex="col"
    )
    for (losses, above), corpus in zip(axes.T, corpora, strict=True):
        mine = [row for row in rows if row["corpus"] == corpus]
        draw_corpus(losses, above, folder, mine, colours)
        losses.set_title(corpus)
        above.set_xlabel("ids seen")
        for each in (losses, above):
            pictures.plain(each)
    axes[0, 0].set_ylabel("nats per id")
    axes[1, 0].set_ylabel("above the floor")
    lines = [Line2D([], [], color=colour, linewidth=2.2, label=model) for model, colour in colours.items()]
    styles = {"training": {"alpha": 0.35}, "warm validation": {"marker": "o", "markersize": 3}}
    lines += [Line2D([], [], color="0.3", label=label, **style) for label, style in styles.items()]
    axes[0, 0].legend(handles=lines, frameon=False, loc="upper right", ncols=2, fontsize=9)
    pictures.save(figure, folder / "floors.png")


def draw_corpus(losses, above, folder, rows, colours):
    """The curves of one text, with its floor and its n-grams."""
    floor, highest = rows[0]["source_loss"], 0.0
    for row in rows:
        if row["run"] is None:
            for axes, level in ((losses, row["val_loss_streaming"]), (above, row["excess_loss"] / floor)):
                axes.axhline(level, linestyle=":", **GREY)
                named(axes, level, row["model"])
            highest = max(highest, row["val_loss_streaming"])
            continue
        path, colour = folder / row["run"] / "metrics.jsonl", colours[row["model"]]
        lines = read_metrics(path)
        points = [(line["tokens"], line["loss"]) for line in lines if line["split"] == "train"]
        losses.plot(*zip(*points, strict=True), color=colour, alpha=0.35, linewidth=1.2)
        seen = [line for line in lines if line["split"] == "validation"]
        tokens, warm = [line["tokens"] for line in seen], [line["val_loss_streaming"] for line in seen]
        highest = max(highest, warm[0], points[len(points) // 8][1])
        losses.plot(tokens, warm, color=colour, linewidth=1.8, marker="o", markersize=3)
        shares = [line["excess_loss"] / floor for line in seen]
        above.plot(tokens, shares, color=colour, linewidth=1.8, marker="o", markersize=3)
        place = {"textcoords": "offset points", "va": "center", "ha": "left", "fontsize": 9, "color": colour}
        above.annotate(f"{shares[-1]:.2%}", (tokens[-1], shares[-1]), (6, 0), **place)
        above.set_xlim(0, tokens[-1] * 1.13)  # both axes: they share it
    rate = rows[0]["entropy_rate"]
    losses.axhline(floor, **GREY)
    losses.axhline(rate, linestyle="--", **GREY)
    named(losses, min(floor, rate), f"floor of this text {floor:.4f}; entropy rate (dashed) {rate:.4f}", va="top")
    room = highest - floor
    losses.set_ylim(min(floor, rate) - 0.14 * room, highest + 0.1 * room)
    if min(row["excess_loss"] for row in rows) > 0:
        above.set_yscale("log")
        above.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        above.yaxis.set_minor_formatter(NullFormatter())
    else:
        above.axhline(0, **GREY)
    above.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    above.xaxis.set_major_formatter(FuncFormatter(report.thousands))


def named(axes, level, name, va="bottom"):
    """The name of a horizontal line, at its left end, above or below it."""
    place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "ha": "left", "va": va}
    axes.annotate(name, (0.01, level), (0, 2 if va == "bottom" else -2), fontsize=9, color="0.3", **place)


def closing(folder: pathlib.Path, rows) -> str:
    """What the terminal shows at the end."""
    files = f"Curves:  {folder / 'floors.png'}\nReport:  {folder / 'floors.md'}"
    return "\n" + "\n\n".join([table(rows), NOTES, verdicts(rows), files]) + f"\n{report.to_look(folder)}"
