"""What the exact matches of date translation say, over the formats trained on and over those held out."""

from collections.abc import Sequence

import numpy as np

from experiments.frame.tables import percent_interval


def exact_match(groups: Sequence[dict], search: str, trained: bool) -> tuple[float, int]:
    """Return the exact match of a search in the formats trained on, or in those held out, and the number of texts."""
    parts = [group for group in groups if group["trained"] == trained]
    counts = [group["examples"] for group in parts]
    return float(np.average([group[search] for group in parts], weights=counts)), sum(counts)


def verdict(row: dict) -> str:
    """Say how many dates are translated exactly, and what the beam search changes."""
    exact, changes = [], []
    for kind, trained in (("formats trained on", True), ("formats held out", False)):
        (greedy, texts), (beam, _) = (exact_match(row["groups"], search, trained) for search in ("greedy", "beam"))
        exact.append(f"{percent_interval(greedy, texts)} of {texts:,} in {kind}")
        changes.append(f"{100 * (beam - greedy):+.1f}")
    beams = f"{row['num_beams']} beams change that by {' and '.join(changes)} percentage points"
    return f"Exact match by greedy search, of dates not trained on: {', '.join(exact)}. {beams}. One seed."


def smoothed_entropy(label_smoothing: float, vocabulary_size: int) -> float:
    """Return the entropy of a smoothed target in nats, a lower bound of the training loss."""
    p = np.full(vocabulary_size, label_smoothing / vocabulary_size)
    p[0] += 1 - label_smoothing
    return float(-(p[p > 0] * np.log(p[p > 0])).sum())
