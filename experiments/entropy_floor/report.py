"""Report of `experiments.entropy_floor`, with entropy_floor.png."""

import math
import pathlib
from collections.abc import Sequence

from experiments.entropy_floor.plots import plot
from experiments.frame.report import Report, without_texts
from experiments.frame.tables import Table

MAX_STANDARD_ERRORS = 4  # below the floor, by chance
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


def is_leak(row: dict) -> bool:
    """Return whether the loss is below the floor by more than chance."""
    return row["excess_loss"] < -MAX_STANDARD_ERRORS * row["standard_error"]


def leaks(rows: Sequence[dict]) -> list[str]:
    """Return a sentence for each model that is below its floor by more than chance."""
    return [
        f"{row['model']} on {row['corpus']} is {-row['excess_loss']:.4f} nats per token below the entropy floor, by "
        f"{-row['excess_loss'] / row['standard_error'] if row['standard_error'] else math.inf:.0f} standard errors: "
        "it sees tokens that it has to predict, or was trained on the validation text."
        for row in filter(is_leak, rows)
    ]


def relative_excess(row: dict) -> tuple[float, float]:
    """Return the excess loss and its standard error, relative to the entropy floor."""
    return row["excess_loss"] / row["source_loss"], row["standard_error"] / row["source_loss"]


def verdict(rows: Sequence[dict]) -> str:
    """Name the models that leak, or say that there are none, and the closest model on each text."""
    none = f"No model is below the entropy floor by more than {MAX_STANDARD_ERRORS} standard errors."
    sentences = leaks(rows) or [none]
    causal = [row for row in rows if row["run"] and not is_leak(row)]
    for corpus in dict.fromkeys(row["corpus"] for row in causal):
        best = min((row for row in causal if row["corpus"] == corpus), key=relative_excess)
        excess, error = relative_excess(best)
        sentences.append(f"Closest on {corpus}: {best['model']}, {excess:.2%} ± {error:.2%} above the floor.")
    return " ".join([*sentences, "± is the standard error over the validation tokens; one seed each."])
