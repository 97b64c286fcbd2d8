"""What a comparison leaves beside its runs: compare.json, compare.md, loss_curves.png, and what it says at the end."""

import json
import math
import os
import pathlib
import statistics
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter

from keras_seq.training import replacing, write_json, write_text

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
LEFT = {"model"}
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
    """loss_curves.png: a colour a model, training faint, validation strong."""
    figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    colours = {model: f"C{n}" for n, model in enumerate(dict.fromkeys(row["model"] for row in rows))}
    labelled = set()
    highest = 0.0
    for row in rows:
        path = folder / f"{row['model']}-seed{row['seed']}" / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for split, key, style in (
            ("train", "nats_per_token", {"alpha": 0.35, "linewidth": 1.2}),
            ("validation", "nats_per_token", {"linewidth": 2.2, "marker": "o", "markersize": 3.5}),
            ("validation", "warm_nats_per_token", {"linewidth": 1.6, "linestyle": (0, (1.5, 1.2))}),
        ):
            points = [(line["tokens"], line[key]) for line in lines if line["split"] == split]
            what = "training" if split == "train" else "warm validation" if "warm" in key else "cold validation"
            label = f"{row['model']}, {what}"
            axes.plot(
                *zip(*points, strict=True),
                color=colours[row["model"]],
                label=None if label in labelled else label,
                **style,
            )
            labelled.add(label)
            if split == "validation":
                highest = max(highest, points[0][1])
    lowest = axes.get_ylim()[0]
    axes.set_ylim(lowest, max(highest + 0.4, lowest + 0.5))
    axes.xaxis.set_major_formatter(FuncFormatter(thousands))
    axes.set_xlabel("tokens seen (characters)")
    axes.set_ylabel("nats per character")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=len(colours))
    with replacing(folder / "loss_curves.png") as temporary:
        figure.savefig(temporary, dpi=130)
    plt.close(figure)


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
    beside = pathlib.Path(sys.executable).with_name("tensorboard")
    command = os.path.relpath(beside) if beside.exists() else "tensorboard"
    parts = [table(rows)]
    if any(row["seed"] for row in rows):
        parts.append(spread(rows))
    parts += [notes(rows), *samples, f"Curves:  {folder / 'loss_curves.png'}\nReport:  {folder / 'compare.md'}"]
    return "\n" + "\n\n".join(parts) + f"\nTo look at the runs in TensorBoard:\n    {command} --logdir {folder}"
