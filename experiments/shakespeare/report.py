"""Report of `experiments.shakespeare`, with shakespeare.png."""

import pathlib
from collections.abc import Sequence

from experiments.frame import plots
from experiments.frame.report import Report, without_texts
from experiments.frame.tables import Table, plus_minus
from experiments.shakespeare.findings import NANO_GPT_LOSS, by_model, is_nano_gpts_text, verdict
from experiments.shakespeare.settings import ShakespeareConfig

NOTES = (
    "Losses are in nats per character of {split}, with the last weights. A model is an ensemble of {members} members; "
    "parameters, train tokens and seconds are sums over them. train loss: that of the last batches, with dropout. "
    "members' val_loss: mean of the val_loss@{length} of the single members. val_loss@{length}: every disjoint window "
    "of {length} characters, each without preceding context. val_loss, random windows: random windows of {length} "
    "characters, as nanoGPT estimates its loss. val_loss_streaming: the text from start to end."
)
IMAGE = "![Validation loss over training characters](shakespeare.png)"


def shakespeare_report(folder: pathlib.Path, config: ShakespeareConfig, corpus: str, rows: Sequence[dict]) -> Report:
    """Plot the runs and return the report."""
    plot(folder, config, rows)
    split = "the last tenth of the training split" if config.score_on_dev_split else "the whole validation split"
    return Report(
        f"The best small model on {corpus}",
        verdict(config, rows),
        table(config.context_length, rows),
        ("model", "seed", "parameters", f"val_loss@{config.context_length}", "val_loss, random windows"),
        without_texts(rows),
        NOTES.format(split=split, members=config.num_members, length=config.context_length),
        [IMAGE],
        {f"Sample of {row['run']}": row["sample"] for row in rows},
        runs=[folder / row["run"] for row in rows],
    )


def table(length: int, rows: Sequence[dict]) -> Table:
    """Return a line for each ensemble, then the mean of each model that has several seeds."""
    means = {
        "train seconds": ("train_seconds", 0),
        "train loss": ("train_loss", 4),
        "members' val_loss": ("members_val_loss", 4),
        f"val_loss@{length}": ("val_loss", 4),
        "val_loss, random windows": ("val_random_windows_loss", 4),
        "val_loss_streaming": ("val_loss_streaming", 4),
    }
    columns = {
        "model": lambda seeds: seeds[0]["model"],
        "seed": lambda seeds: str(seeds[0]["seed"]) if len(seeds) == 1 else "mean",
        "parameters": lambda seeds: f"{seeds[0]['parameters']:,}",
        "train tokens": lambda seeds: f"{seeds[0]['train_tokens']:,}",
        **{name: lambda seeds, m=m: plus_minus([row[m[0]] for row in seeds], m[1]) for name, m in means.items()},
    }
    return Table.of([*([row] for row in rows), *(seeds for seeds in by_model(rows) if len(seeds) > 1)], columns)


def plot(folder: pathlib.Path, config: ShakespeareConfig, rows: Sequence[dict]):
    """Write shakespeare.png: curves of the members, the ensembles' val_loss, and nanoGPT's loss as a line."""
    figure, axes = plots.subplots(figsize=(8, 4.8))
    colors, highest = plots.colors([row["model"] for row in rows]), 0.0
    first = folder / f"{rows[0]['run']}-member0"
    styles = {
        "train loss of a member": {"alpha": 0.3, "linewidth": 1},
        f"val_loss@{config.context_length}{plots.sample_note(first)} of a member": {"marker": "o", "linewidth": 1},
        f"val_loss@{config.context_length} of the ensemble": {"marker": "*", "linestyle": "", "markersize": 12},
    }
    train, validation, star = styles.values()
    for row in rows:
        color = colors[row["model"]]
        for run in sorted(folder.glob(f"{row['run']}-member*")):
            axes.plot(*plots.curve(run, "loss", "train"), color=color, **train)
            tokens, losses = plots.curve(run)
            axes.plot(tokens, losses, color=color, **validation)
            highest = max(highest, losses[0])
        axes.plot(tokens[-1], row["val_loss"], color=color, **star)
    if is_nano_gpts_text(config):
        styles[f"nanoGPT, 10.65 M parameters: {NANO_GPT_LOSS}"] = line = {"linestyle": "--", "linewidth": 1}
        axes.axhline(NANO_GPT_LOSS, color="0.3", **line)
    lowest = axes.get_ylim()[0]
    axes.set(ylim=(lowest, max(highest + 0.05, lowest + 0.3)), ylabel="nats per character")
    plots.token_axis(axes, "training characters of each member")
    plots.legend(axes, colors, styles)
    plots.save(figure, folder / "shakespeare.png")
