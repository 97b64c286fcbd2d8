"""What `experiments.shakespeare` leaves beside its runs: shakespeare.json, shakespeare.md, shakespeare.png."""

import statistics

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter

from experiments import pictures
from experiments.report import aligned, indented, thousands, to_look
from keras_seq.atomic_files import write_json, write_text
from keras_seq.training import read_metrics
from keras_seq.training.metrics_logger import LOSS_KEYS

NANOGPT = 1.4697  # nats per character, its README: 10.65 million parameters, an A100, the best of its evaluations


def write(folder, settings, corpus, rows):
    """Writes the three files into `folder`."""
    write_json(folder / "shakespeare.json", [{k: v for k, v in row.items() if k != "sample"} for row in rows])
    parts = [f"# {corpus}: the best small model", table(settings, rows), notes(settings, rows)]
    parts += ["![Validation loss over characters seen](shakespeare.png)"]
    parts += [f"## A sample of {row['model']}, seed {row['seed']}\n\n{indented(row['sample'])}" for row in rows]
    write_text(folder / "shakespeare.md", "\n\n".join(parts) + "\n")
    draw(folder, settings, rows)


def table(settings, rows) -> str:
    """A Markdown table, with a mean where there are several seeds."""
    cold = f"cold@{settings.context}"
    lines = [["model", "seed", "parameters", "characters", "seconds", "training", "members", cold, "crops", "warm"]]
    for row in rows:
        lines.append(
            [
                row["model"],
                str(row["seed"]),
                f"{row['parameters']:,}",
                f"{row['train_tokens']:,}",
                f"{row['train_seconds']:.0f}",
                f"{row['train_loss_per_character']:.4f}",
                f"{statistics.mean(row['member_val_loss_per_character']):.4f}",
                *(f"{row[f'{kind}_nats_per_character']:.4f}" for kind in ("cold", "crops", "warm")),
            ]
        )
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == model]
        if len(mine) > 1:
            cells = []
            for kind in ("cold", "crops", "warm"):
                values = [row[f"{kind}_nats_per_character"] for row in mine]
                cells.append(f"{statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}")
            lines.append([model, "mean", "", "", "", "", "", *cells])
    return aligned(lines)


def notes(settings, rows) -> str:
    """What the columns mean, and what they may be compared with."""
    scored = "the last tenth of the training split" if settings.tune else "the whole validation split"
    errors = ", ".join(f"{error:.4f}" for error in sorted({row["crops_standard_error"] for row in rows}))
    compared = (
        ""
        if settings.tune or settings.corpus != "shakespeare"
        else f" nanoGPT's README reports {NANOGPT} so, with 10.65 million parameters on an A100."
    )
    return (
        f"Nats per character of {scored}, by the last weights. A model is the mean of {settings.members} members; "
        f"parameters, characters and seconds of training are those of all of them. training: of the last batches, with "
        f"dropout. members: what they score apart, cold@{settings.context}, on average. cold@{settings.context}: every "
        f"window of {settings.context} characters on its own. crops: random crops of {settings.context} characters, "
        f"each from nothing, as nanoGPT estimates its loss (standard error {errors}).{compared} warm: the text from "
        f"start to end."
    )


def draw(folder, settings, rows):
    """shakespeare.png: training and scores of the members, the mean's score, nanoGPT's figure as a line."""
    figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    models = list(dict.fromkeys(row["model"] for row in rows))
    highest = 0.0
    for row in rows:
        colour = f"C{models.index(row['model'])}"
        for member in range(settings.members):
            path = folder / f"{row['model']}-seed{row['seed']}-member{member}" / "metrics.jsonl"
            lines = read_metrics(path)
            for split, style in (("train", {"alpha": 0.2}), ("validation", {"marker": "o", "markersize": 3})):
                points = [(line["tokens"], line[LOSS_KEYS[split]]) for line in lines if line["split"] == split]
                axes.plot(*zip(*points, strict=True), color=colour, linewidth=1, **style)
                if split == "validation":
                    highest = max(highest, points[0][1])
        each = row["train_tokens"] / settings.members
        label = f"{row['model']}, mean of {settings.members}: {row['parameters'] / 1e6:.2f} M parameters"
        label = None if row["seed"] else label
        axes.plot(each, row["val_loss_per_character"], "*", color=colour, markersize=12, label=label)
    if settings.corpus == "shakespeare" and not settings.tune:
        axes.axhline(NANOGPT, color="0.4", linestyle="--", linewidth=1)
        axes.annotate(
            f"nanoGPT, 10.65 M parameters, A100: {NANOGPT}",
            (0, NANOGPT),
            (4, 4),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            fontsize=9,
            color="0.3",
        )
    lowest = axes.get_ylim()[0]
    axes.set_ylim(lowest, max(highest + 0.05, lowest + 0.3))
    axes.xaxis.set_major_formatter(FuncFormatter(thousands))
    axes.set_xlabel("characters seen by each member")
    axes.set_ylabel("nats per character")
    axes.set_title(f"Points: a member, cold@{settings.context}. Faint: its training. Star: their mean", fontsize=10)
    axes.legend(frameon=False)
    pictures.plain(axes)
    pictures.save(figure, folder / "shakespeare.png")


def closing(folder, settings, rows) -> str:
    """What the terminal shows at the end."""
    samples = [f"{row['model']} (seed {row['seed']}) writes:\n{indented(row['sample'])}" for row in rows[:1]]
    files = f"Curves:  {folder / 'shakespeare.png'}\nReport:  {folder / 'shakespeare.md'}"
    return "\n" + "\n\n".join([table(settings, rows), notes(settings, rows), *samples, files]) + f"\n{to_look(folder)}"
