"""What the losses of sequence reversal say: is each model causal, and how many sequences does it reverse?

The letters of the first half are independent and uniform over A letters, so the expected loss of a causal model is at
least log A nats per letter.
"""

import math
from collections.abc import Sequence

from experiments.frame.tables import percent_interval

TOLERANCE = 0.02  # relative, of the first half loss around log A


def causality(row: dict) -> tuple[bool, str]:
    """Return whether the first half loss is that of a causal model, as low as it can be, and a sentence about it."""
    entropy, loss = row["entropy"], row["first_half_loss"]
    measured = f"its first half loss is {loss:.3f} nats per letter"
    bound = f"log {round(math.exp(entropy))} = {entropy:.3f}"
    if loss < (1 - TOLERANCE) * entropy:
        return False, f"The {row['model']} is not causal, it sees future tokens: {measured}; the minimum is {bound}."
    if loss > (1 + TOLERANCE) * entropy:
        return False, f"The {row['model']} has not learned that letters are equally likely: {measured}, above {bound}."
    return True, f"The {row['model']} is causal: {measured}; the minimum without seeing future tokens is {bound}."


def failures(rows: Sequence[dict]) -> list[str]:
    """Return the sentences about the models that do not pass the check."""
    return [sentence for is_passed, sentence in map(causality, rows) if not is_passed]


def verdict(rows: Sequence[dict]) -> str:
    """Say of each model whether it is causal, and how many whole sequences it reverses."""
    count = sum(part["examples"] for part in rows[0]["groups"] if part["trained"])
    correct = [f"{row['model']} {percent_interval(row['sequence_accuracy'], count)}" for row in rows]
    ends = f"Whole sequences reversed, of {count:,} of the training lengths: {', '.join(correct)}; one seed each."
    return " ".join([*(causality(row)[1] for row in rows), ends])
