"""What the excess losses say: which model is closest to each entropy floor, and which ones are impossibly good."""

import math
from collections.abc import Sequence

MAX_STANDARD_ERRORS = 4  # below the floor, by chance


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
    sentences = leaks(rows) or [
        f"No model is below the entropy floor by more than {MAX_STANDARD_ERRORS} standard errors."
    ]
    causal = [row for row in rows if row["run"] and not is_leak(row)]
    for corpus in dict.fromkeys(row["corpus"] for row in causal):
        best = min((row for row in causal if row["corpus"] == corpus), key=relative_excess)
        excess, error = relative_excess(best)
        sentences.append(f"Closest on {corpus}: {best['model']}, {excess:.2%} ± {error:.2%} above the floor.")
    return " ".join([*sentences, "± is the standard error over the validation tokens; one seed each."])
