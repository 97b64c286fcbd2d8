"""Report of `experiments.finetune`, with finetune.png."""

import pathlib
from collections.abc import Sequence

from experiments.finetune.findings import by_method, verdict
from experiments.frame import plots
from experiments.frame.report import Report, without_texts
from experiments.frame.tables import Table

COLUMNS = {
    "method": lambda row: row["method"],
    "seed": lambda row: str(row["seed"]),
    "trained weights": lambda row: f"{row['trainable_parameters']:,}",
    "of all": lambda row: f"{row['trainable_parameters'] / row['base_parameters']:.1%}",
    "train seconds": lambda row: f"{row['train_seconds']:.0f}",
    "train loss": lambda row: f"{row['train_loss']:.3f}",
    "val_loss": lambda row: f"{row['val_loss']:.3f}",
    "val bits/char": lambda row: f"{row['val_bits_per_character']:.3f}",
}
NOTES = (
    "Losses in nats per token, on disjoint windows of the validation split, each from the zero state or the empty "
    "cache. All runs have the same batches, tokens and learning rates. lora: adapters.safetensors in the run's folder "
    "holds what it trained, model.keras the sums with the base. `of all`: relative to the weights of the base."
)
IMAGE = "![Validation loss over training tokens](finetune.png)"


def finetune_report(title: str, folder: pathlib.Path, rows: Sequence[dict]) -> Report:
    """Plot the runs and return the report."""
    plot(folder, rows)
    return Report(
        title,
        verdict(rows),
        Table.of(rows, COLUMNS),
        ("method", "seed", "trained weights", "of all", "val_loss", "val bits/char"),
        without_texts(rows),
        NOTES,
        [IMAGE],
        {f"Sample of {row['run']}": row["sample"] for row in rows},
        runs=[folder / row["run"] for row in rows],
    )


def plot(folder: pathlib.Path, rows: Sequence[dict]):
    """Write finetune.png: validation loss over training tokens."""
    figure, axes = plots.subplots(figsize=(8, 4.8))
    colors = plots.colors([*by_method(rows)])
    for row in rows:
        axes.plot(*plots.curve(folder / row["run"]), color=colors[row["method"]], marker="o")
    plots.token_axis(axes)
    axes.set_ylabel(f"validation loss{plots.sample_note(folder / rows[0]['run'])} (nats per token)")
    plots.legend(axes, colors)
    plots.save(figure, folder / "finetune.png")
