"""Write the report of `experiments.shakespeare`: shakespeare.json, shakespeare.md and shakespeare.png."""

import statistics

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter

from experiments.frame import plots
from experiments.frame.report import indented, markdown_table, plus_minus, tensorboard_hint, thousands
from keras_seq.atomic_files import write_json, write_text
from keras_seq.training import read_metrics
from keras_seq.training.metrics_logger import LOSS_KEYS

NANO_GPT_LOSS = 1.4697  # nats per character, from nanoGPT's README: 10.65 million parameters, A100, best validation
LOSS_NAMES = (
    "val_loss_per_character",
    "val_random_windows_loss_per_character",
    "val_loss_per_character_streaming",
)


def write_report(folder, config, corpus, rows):
    """Write shakespeare.json, shakespeare.md and shakespeare.png.

    Args:
        folder: Folder of the files.
        config: Options of the experiment.
        corpus: Name of the corpus.
        rows: One dict per ensemble.
    """
    write_json(folder / "shakespeare.json", [{k: v for k, v in row.items() if k != "sample"} for row in rows])
    parts = [f"# {corpus}: the best small model", table(config, rows), column_notes(config, rows)]
    parts += ["![Validation loss over training characters](shakespeare.png)"]
    parts += [f"## Sample of {row['model']}, seed {row['seed']}\n\n{indented(row['sample'])}" for row in rows]
    write_text(folder / "shakespeare.md", "\n\n".join(parts) + "\n")
    plot(folder, config, rows)


def table(config, rows) -> str:
    """Format one line per ensemble, and the mean where a model has several seeds.

    Args:
        config: Options of the experiment.
        rows: One dict per ensemble.
    """
    header = ["model", "seed", "parameters", "train tokens", "train seconds", "train loss", "members' val_loss"]
    lines = [[*header, f"val_loss@{config.context_length}", "val_loss, random windows", "val_loss_streaming"]]
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
                *(f"{row[name]:.4f}" for name in LOSS_NAMES),
            ]
        )
    for model in dict.fromkeys(row["model"] for row in rows):
        model_rows = [row for row in rows if row["model"] == model]
        if len(model_rows) > 1:
            means = [plus_minus([row[name] for row in model_rows], 4) for name in LOSS_NAMES]
            lines.append([model, "mean", "", "", "", "", "", *means])
    return markdown_table(lines)


def column_notes(config, rows) -> str:
    """Explain the columns of the table, and with what they compare.

    Args:
        config: Options of the experiment.
        rows: One dict per ensemble.
    """
    dev = config.score_on_dev_split
    split = "the last tenth of the training split" if dev else "the whole validation split"
    errors = ", ".join(f"{error:.4f}" for error in sorted({row["val_random_windows_standard_error"] for row in rows}))
    comparison = (
        ""
        if dev or config.corpus != "shakespeare"
        else f" nanoGPT's README reports {NANO_GPT_LOSS} by this estimate, with 10.65 million parameters on an A100."
    )
    length = config.context_length
    return (
        f"Losses are in nats per character of {split}, with the last weights. A model is an ensemble of "
        f"{config.num_members} members; parameters, train tokens and seconds are sums over them. train loss: that of "
        f"the last batches, with dropout. members' val_loss: mean of the val_loss@{length} of the single members. "
        f"val_loss@{length}: every disjoint window of {length} characters, each without preceding context. val_loss, "
        f"random windows: random windows of {length} characters, as nanoGPT estimates its loss (standard error "
        f"{errors}).{comparison} val_loss_streaming: the text from start to end."
    )


def plot(folder, config, rows):
    """Plot shakespeare.png: losses of the members, the ensemble's val_loss, nanoGPT's loss as a line.

    Args:
        folder: Folder of the runs and of the plot.
        config: Options of the experiment.
        rows: One dict per ensemble.
    """
    figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    models = list(dict.fromkeys(row["model"] for row in rows))
    highest = 0.0
    for row in rows:
        color = f"C{models.index(row['model'])}"
        for member in range(config.num_members):
            path = folder / f"{row['model']}-seed{row['seed']}-member{member}" / "metrics.jsonl"
            lines = read_metrics(path)
            for split, style in (("train", {"alpha": 0.2}), ("validation", {"marker": "o", "markersize": 3})):
                points = [(line["tokens"], line[LOSS_KEYS[split]]) for line in lines if line["split"] == split]
                axes.plot(*zip(*points, strict=True), color=color, linewidth=1, **style)
                if split == "validation":
                    highest = max(highest, points[0][1])
        member_tokens = row["train_tokens"] / config.num_members
        label = f"{row['model']}, ensemble of {config.num_members}: {row['parameters'] / 1e6:.2f} M parameters"
        label = None if row["seed"] else label
        axes.plot(member_tokens, row["val_loss_per_character"], "*", color=color, markersize=12, label=label)
    if config.corpus == "shakespeare" and not config.score_on_dev_split:
        axes.axhline(NANO_GPT_LOSS, color="0.4", linestyle="--", linewidth=1)
        axes.annotate(
            f"nanoGPT, 10.65 M parameters, A100: {NANO_GPT_LOSS}",
            (0, NANO_GPT_LOSS),
            (4, 4),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            fontsize=9,
            color="0.3",
        )
    lowest = axes.get_ylim()[0]
    axes.set_ylim(lowest, max(highest + 0.05, lowest + 0.3))
    axes.xaxis.set_major_formatter(FuncFormatter(thousands))
    axes.set_xlabel("training characters of each member")
    axes.set_ylabel("nats per character")
    title = (
        f"Points: val_loss@{config.context_length} of a member. Faint: its train loss. Star: the ensemble's val_loss"
    )
    axes.set_title(title, fontsize=10)
    axes.legend(frameon=False)
    plots.style_axes(axes)
    plots.save(figure, folder / "shakespeare.png")


def final_message(folder, config, rows) -> str:
    """Return the text that the terminal shows at the end.

    Args:
        folder: Folder of the report.
        config: Options of the experiment.
        rows: One dict per ensemble.
    """
    samples = [f"Sample of {row['model']}, seed {row['seed']}:\n{indented(row['sample'])}" for row in rows[:1]]
    files = f"Plot:   {folder / 'shakespeare.png'}\nReport: {folder / 'shakespeare.md'}"
    parts = [table(config, rows), column_notes(config, rows), *samples, files]
    return "\n" + "\n\n".join(parts) + f"\n{tensorboard_hint(folder)}"
