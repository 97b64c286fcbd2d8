"""Find what a longer past is worth to each model: differences between octaves, with their errors."""

from collections.abc import Sequence

import numpy as np

from experiments.loss_by_position.scores import Estimate


class RunResult:
    """The losses of one run in octaves, from its row.

    Attributes:
        ranges: Names of its octaves: 32-64, ...
        num_trained: Number of octaves within T; the others have more past than training.
        losses: Loss in each octave.
        changes: Loss in each octave minus that in the first one.
        falls: The `contrasts` of the trained octaves; of a single one there are none.
    """

    def __init__(self, row: dict):
        self.row, self.model, self.length = row, row["model"], row["val_sequence_length"]
        self.sums, self.counts = np.array(row["octaves"]["sums"]), np.array(row["octaves"]["counts"])
        lows = row["octaves"]["first"] * 2 ** np.arange(self.sums.shape[1])
        self.ranges = [f"{low}-{2 * low}" for low in lows]
        self.num_trained = int((2 * lows <= self.length).sum())
        octave = np.eye(len(lows))
        self.losses = [self.estimate(weights).mean for weights in octave]
        self.changes = [self.estimate(weights - octave[0]) for weights in octave]
        self.falls = {name: self.estimate(weights) for name, weights in contrasts(self.num_trained).items()}

    def estimate(self, weights: np.ndarray, other: "RunResult | None" = None) -> Estimate:
        """Return a weighted sum of the losses in the first octaves, minus that of another run, paired by character."""
        sums = self.sums[:, : len(weights)] - (0 if other is None else other.sums[:, : len(weights)])
        return Estimate.of(sums @ weights, self.counts)


def contrasts(num_octaves: int) -> dict[str, np.ndarray]:
    """Return the weights of the octaves in falls of the loss; per doubling: the slope of a least-squares line."""
    if num_octaves < 2:
        return {}
    octave, centered = np.eye(num_octaves), np.arange(num_octaves) - (num_octaves - 1) / 2
    return {
        "falls by": octave[0] - octave[-1],
        "per doubling": -centered / np.square(centered).sum(),
        "last doubling": octave[-2] - octave[-1],
    }


def verdict(results: Sequence[RunResult]) -> str:
    """Say by how much the loss falls in the longest windows, those of the last two runs, and what may be chance."""
    *_, lstm, transformer = results
    weights = contrasts(lstm.num_trained)
    total, last = (
        f"{lstm.falls[name].marked} for the lstm, {transformer.falls[name].marked} for the transformer, a difference "
        f"of {transformer.estimate(weights[name], lstm).marked}"
        for name in ("falls by", "last doubling")
    )
    return (
        f"In windows of {lstm.length} characters, from {lstm.ranges[0]} to {lstm.ranges[-1]} characters of past, the "
        f"loss falls by {total}; in the last doubling by {last}. In nats, one seed; ± is a standard error over "
        "blocks of text."
    )
