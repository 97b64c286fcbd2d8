"""What a comparison leaves beside its runs: compare.json, compare.md, loss_curves.png, and what it says at the end."""

import json
import math
import os
import pathlib
import statistics
import sys

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from experiments import pictures
from keras_seq.training import write_json, write_text

COLUMNS = {
    "model": lambda row: row["model"],
    "seed": lambda row: str(row["seed"]),
    "parameters": lambda row: f"{row['parameters']:,}",
    "training tokens": lambda row: f"{row['training_tokens']:,}",
    "seconds": lambda row: f"{row['training_seconds']:.0f}",
    "tokens/s": lambda row: f"{row['tokens_per_second']:,.0f}",
    "training nats": lambda row: f"{row['training_nats_per_character']:.3f}",
    "cold nats": lambda row: f"{row['cold_nats_per_character']:.3f}",
    "cold bits": lambda row: f"{row['bits_per_character']:.3f}",
    "warm nats": lambda row: f"{row['warm_nats_per_character']:.3f}",
    "warm bits": lambda row: f"{row['warm_bits_per_character']:.3f}",
}
LEFT = {"model", "dates in", "format", "for example", "text"}
STYLES = {  # of the curves, by split and key
    ("train", "nats_per_token"): {"alpha": 0.35, "linewidth": 1.2},
    ("validation", "nats_per_token"): {"linewidth": 1.8, "marker": "o", "markersize": 3},
    ("validation", "warm_nats_per_token"): {"linewidth": 1.6, "linestyle": (0, (1.5, 1.2))},
}
CLOSEST = 1.05  # parameter counts further apart than this are pointed out


def write(folder: pathlib.Path, corpus: str, rows: list[dict]):
    """Writes the three files into `folder`."""
    write_json(folder / "compare.json", [{k: v for k, v in row.items() if k != "sample"} for row in rows])
    parts = [f"# {corpus}: {', '.join(dict.fromkeys(row['model'] for row in rows))}", table(rows), notes(rows)]
    if any(row["seed"] for row in rows):
        parts.insert(2, spread(rows))
    parts += ["![Training and validation loss over tokens seen](loss_curves.png)"]
    parts += [f"## A sample of {row['model']}, seed {row['seed']}\n\n{indented(row['sample'])}" for row in rows]
    write_text(folder / "compare.md", "\n\n".join(parts) + "\n")
    draw(folder, rows)


def table(rows) -> str:
    """A Markdown table, aligned so that it reads as plain text too."""
    return aligned([list(COLUMNS), *[[show(row) for show in COLUMNS.values()] for row in rows]])


def aligned(lines) -> str:
    """A Markdown table from its cells, the header first."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = [name in LEFT for name in lines[0]]
    rule = ["-" * width if is_left else "-" * (width - 1) + ":" for width, is_left in zip(widths, left, strict=True)]

    def line(cells):
        padded = [c.ljust(w) if is_left else c.rjust(w) for c, w, is_left in zip(cells, widths, left, strict=True)]
        return f"| {' | '.join(padded)} |"

    return "\n".join(map(line, [lines[0], rule, *lines[1:]]))


def spread(rows) -> str:
    """Mean and standard deviation over the seeds of each model."""
    lines = [["model", "seeds", "cold nats", "warm nats", "seconds"]]
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == model]
        cells = [model, str(len(mine))]
        for name, digits in (("cold_nats_per_character", 3), ("warm_nats_per_character", 3), ("training_seconds", 0)):
            values = [row[name] for row in mine]
            deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.{digits}f}{deviation}")
        lines.append(cells)
    return aligned(lines)


def sizes(counts) -> str:
    """Whether models with these numbers of parameters are of one size."""
    ratio = max(counts) / min(counts)
    size = f"The largest model has {ratio:.2f} times the parameters of the smallest"
    return f"{size}{'.' if ratio <= CLOSEST else ': more than the 5 % that count as equal here.'}"


def notes(rows) -> str:
    """What the columns mean, and whether the models are of one size."""
    contexts = ", ".join(str(c) for c in sorted({row["cold_context"] for row in rows}))
    return (
        "Nats and bits are per character of the whole validation split. "
        f"cold: every window of {contexts} characters on its own, from the zero state. "
        "warm: the text from start to end, recurrent state carried; a Transformer's window moves by half its context. "
        + sizes([row["parameters"] for row in rows])
    )


def draw(folder, rows):
    """loss_curves.png: on the left the losses over tokens, a colour a model; on the right where each model ends."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    colours = {model: f"C{n % 10}" for n, model in enumerate(models)}
    height = max(4.8, 1.6 + 0.4 * len(models))
    figure, (curves, ends) = plt.subplots(1, 2, figsize=(11, height), width_ratios=(5, 3), layout="constrained")
    draw_curves(curves, folder, rows, colours)
    draw_ends(ends, rows, colours)
    pictures.plain(curves)
    pictures.plain(ends)
    pictures.save(figure, folder / "loss_curves.png")


def draw_curves(axes, folder, rows, colours):
    """Training faint, cold validation strong, warm validation dotted."""
    highest = 0.0
    for row in rows:
        path = folder / f"{row['model']}-seed{row['seed']}" / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for (split, key), style in STYLES.items():
            points = [(line["tokens"], line[key]) for line in lines if line["split"] == split]
            axes.plot(*zip(*points, strict=True), color=colours[row["model"]], **style)
            if split == "validation":
                highest = max(highest, points[0][1])
    lowest = axes.get_ylim()[0]
    axes.set_ylim(lowest, max(highest + 0.1, lowest + 0.5))
    axes.xaxis.set_major_formatter(FuncFormatter(thousands))
    axes.set_xlabel("tokens seen (characters)")
    axes.set_ylabel("nats per character")
    handles = [Line2D([], [], color=colour, linewidth=2.2, label=model) for model, colour in colours.items()]
    grey = [
        Line2D([], [], color="0.3", label=label, **style)
        for label, style in zip(("training", "cold validation", "warm validation"), STYLES.values(), strict=True)
    ]
    axes.add_artist(axes.legend(handles=handles, frameon=False, loc="upper right"))
    axes.legend(handles=grey, frameon=False, loc="upper center")


def draw_ends(axes, rows, colours):
    """The final scores, the best model on top: a dot a seed, the mean of the cold ones as a number."""
    cold = {model: [r["cold_nats_per_character"] for r in rows if r["model"] == model] for model in colours}
    warm = {model: [r["warm_nats_per_character"] for r in rows if r["model"] == model] for model in colours}
    order = sorted(colours, key=lambda model: statistics.mean(cold[model]), reverse=True)
    for y, model in enumerate(order):
        axes.plot(cold[model], [y] * len(cold[model]), "o", color=colours[model], markersize=7)
        axes.plot(warm[model], [y] * len(warm[model]), "o", color=colours[model], markersize=7, fillstyle="none")
        mean = statistics.mean(cold[model])
        axes.annotate(f"{mean:.3f}", (mean, y), (0, 8), textcoords="offset points", ha="center", fontsize=9)
    axes.set_yticks(range(len(order)), order)
    axes.set_ylim(-0.6, len(order) - 0.2)
    axes.margins(x=0.12)
    axes.set_xlabel("nats per character at the end")
    marks = [
        Line2D([], [], color="0.3", marker="o", linestyle="", markersize=7, fillstyle=fill, label=label)
        for fill, label in (("full", "cold"), ("none", "warm"))
    ]
    axes.legend(handles=marks, frameon=False, loc="upper right")


def thousands(value, position=None) -> str:
    """1,500,000 as 1.5 M."""
    if value == 0:
        return "0"
    power = min(2, int(math.log10(abs(value)) // 3))
    return f"{value / 1000**power:g}{('', ' k', ' M')[power]}"


def indented(text) -> str:
    """The text as a Markdown block that keeps its spaces."""
    return "\n".join("    " + line for line in text.splitlines())


def closing(folder: pathlib.Path, rows) -> str:
    """What the terminal shows at the end."""
    samples = [
        f"{row['model']} (seed {row['seed']}) writes:\n{indented(row['sample'])}" for row in rows if not row["seed"]
    ]
    parts = [table(rows)]
    if any(row["seed"] for row in rows):
        parts.append(spread(rows))
    parts += [notes(rows), *samples, f"Curves:  {folder / 'loss_curves.png'}\nReport:  {folder / 'compare.md'}"]
    return "\n" + "\n\n".join(parts) + f"\n{to_look(folder)}"


def to_look(folder) -> str:
    """How to open the runs in TensorBoard."""
    beside = pathlib.Path(sys.executable).with_name("tensorboard")
    command = os.path.relpath(beside) if beside.exists() else "tensorboard"
    return f"To look at the runs in TensorBoard:\n    {command} --logdir {folder}"
