"""Report of `experiments.entropy_floor`, with entropy_floor.png."""

import pathlib
from collections.abc import Sequence

from experiments.entropy_floor.findings import leaks, relative_excess, verdict
from experiments.entropy_floor.plots import plot
from experiments.frame.report import Report, without_texts
from experiments.frame.tables import Table

COLUMNS = {
    "text": lambda row: row["corpus"],
    "model": lambda row: row["model"],
    "parameters": lambda row: f"{row['parameters']:,}" if row["run"] else "-",
    "train seconds": lambda row: f"{row['train_seconds']:.0f}" if row["run"] else "-",
    "val_loss": lambda row: f"{row['val_loss']:.4f}" if row["run"] else "-",
    "val_loss_streaming": lambda row: f"{row['val_loss_streaming']:.4f}",
    "entropy floor": lambda row: f"{row['source_loss']:.4f}",
    "entropy rate": lambda row: f"{row['entropy_rate']:.4f}",
    "excess loss": lambda row: f"{relative_excess(row)[0]:.2%}",
    "±": lambda row: f"{relative_excess(row)[1]:.2%}",
}
NOTES = (
    "Losses are in nats per token of the validation text. val_loss: disjoint windows of the training length, each from "
    "the zero state. val_loss_streaming: the text from start to end, with carried state; a Transformer's window moves "
    "by half its context length. entropy floor: the loss of the source on the same text; the entropy rate is its limit "
    "for long texts. excess loss: of val_loss_streaming over the entropy floor, relative to the floor, with its "
    "standard error. The n-gram models are interpolated Kneser-Ney models of the same training text, of the order of "
    "the chain, or of the order that is best on the last tenth of the training text."
)
IMAGE = "![Loss during training, and its excess over the entropy floor](entropy_floor.png)"


def entropy_floor_report(folder: pathlib.Path, rows: Sequence[dict]) -> Report:
    """Plot the runs and return the report on them and on the n-gram baselines."""
    plot(folder, rows)
    return Report(
        "Models and the entropy floor",
        verdict(rows),
        Table.of(rows, COLUMNS),
        ("text", "model", "val_loss_streaming", "excess loss", "±"),
        without_texts(rows),
        NOTES,
        [IMAGE],
        {f"Sample of {row['model']} on {row['corpus']}": row["sample"] for row in rows if row["run"]},
        leaks(rows),
    )
