"""Loss by position, and the loss of the same characters after a shorter or longer past.

    window m: the T characters from m S on;  a character at position p has p + 1 characters of past in its window
    octave k: the positions from 2^k S/2 up to 2^k S;  S is the smallest sequence length, T = 2^k S

The windows overlap, so a character is in several of them, after pasts of different lengths. Its loss in an octave is
the mean over the windows that have it there. Octaves are compared on the same characters, those with a loss in every
octave, since the loss varies far more between parts of the text than between lengths of the past.

Standard errors treat blocks of text as independent: sqrt(B / (B - 1) sum_b (s_b - mean n_b)^2) / n, with the sum s_b
and the count n_b of each of B blocks (a ratio estimator; Cochran, 1977, section 6).
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_seq.evaluation import Evaluator


class Estimate(NamedTuple):
    """A mean and its standard error, in nats."""

    mean: float
    error: float

    @classmethod
    def of(cls, sums: np.ndarray, counts: np.ndarray) -> "Estimate":
        """Return the mean of all values, with the sum and the number of those in each block, `[B]`."""
        total, num_blocks = counts.sum(), len(counts)
        mean = sums.sum() / total
        error = np.sqrt(num_blocks / (num_blocks - 1) * np.square(sums - mean * counts).sum()) / total
        return cls(float(mean), float(error))

    def __str__(self):
        return f"{round(self.mean, 4) + 0.0:.4f} ± {self.error:.4f}"  # no -0.0000

    @property
    def marked(self) -> str:
        """The estimate, with a note if it is less than two standard errors."""
        return str(self) if abs(self.mean) >= 2 * self.error else f"{self} (not significant)"


def position_scores(evaluator: Evaluator, ids: np.ndarray, lengths: Sequence[int]) -> dict:
    """Score a model on windows of a text `[N]`, no longer than the longest of the sequence lengths.

    The first S positions are scored in windows that start every S / 8, to have more characters at each position.

    Returns:
        `by_position`: losses and standard errors in bins of positions between `edges`; and `octaves`: the sums
        `[B, octaves]` and counts `[B]` of the blocks, and the `first` position of the first octave.
    """
    stride, max_length, block = min(lengths), max(lengths), 2 * max(lengths)
    starts, near_starts = window_starts(ids, stride, max_length), window_starts(ids, max(1, stride // 8), stride)
    # a recurrent state has no maximum length, so the LSTM is also scored beyond its training length
    losses = window_losses(evaluator, ids, starts, evaluator.model.context_length or max_length)
    near_losses = window_losses(evaluator, ids, near_starts, stride)
    near_edges, far_edges = [0, *bin_edges(1, stride)], bin_edges(stride, losses.shape[1])
    bins = [*by_bin(near_losses, near_starts, near_edges, block), *by_bin(losses, starts, far_edges, block)]
    sums, counts = block_sums(*octaves(losses, starts, stride, max_length), block)
    means, errors = map(list, zip(*bins, strict=True))
    return {
        "by_position": {"edges": [*near_edges, *far_edges[1:]], "losses": means, "standard_errors": errors},
        "octaves": {"first": stride // 2, "sums": sums.tolist(), "counts": counts.tolist()},
    }


def window_starts(ids: np.ndarray, stride: int, length: int) -> np.ndarray:
    """Return the starts, every `stride` characters, of windows of this length that a character follows."""
    return np.arange(0, len(ids) - length, stride)


def window_losses(evaluator: Evaluator, ids: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """Return the token losses `[windows, T]` of windows that each start from the zero state."""
    windows = ids[starts[:, None] + np.arange(length + 1)]
    return evaluator.independent_token_losses(windows[:, :-1], windows[:, 1:])


def bin_edges(low: int, high: int) -> list[int]:
    """Return edges of bins of positions from `low` to `high`, each about half an octave wide: 1, 2, 3, 4, 6, 8, ..."""
    bins = np.round(low * 2 ** np.arange(0, np.log2(high / low) - 0.25, 0.5)).astype(int)
    return sorted({*(int(edge) for edge in bins), high})


def by_bin(losses: np.ndarray, starts: np.ndarray, edges: list[int], block: int) -> list[Estimate]:
    """Return the mean loss in every bin of positions, from losses `[windows, T]`."""
    estimates = []
    for low, high in itertools.pairwise(edges):
        sums, counts = block_sums(losses[:, low:high].sum(axis=1, dtype="float64"), starts, block)
        estimates.append(Estimate.of(sums, counts * (high - low)))
    return estimates


def octaves(losses: np.ndarray, starts: np.ndarray, stride: int, max_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the losses `[C, octaves up to T]` of the scored characters and their indices `[C]`.

    Scored are those that the windows of `max_length` have in every octave, also where `losses [windows, T]` end before.
    """
    lows = [stride // 2 * 2**k for k in range(int(np.log2(max_length // stride)) + 1)]
    indices = starts[:, None] + np.arange(max_length)
    size = int(indices.max()) + 1
    in_every_octave, columns = np.ones(size, bool), []
    for low in lows:
        octave_indices = indices[:, low : 2 * low].ravel()
        counts = np.bincount(octave_indices, minlength=size)
        in_every_octave &= counts == max(1, low // stride)
        if 2 * low <= losses.shape[1]:
            sums = np.bincount(octave_indices, losses[:, low : 2 * low].ravel().astype("float64"), minlength=size)
            columns.append(sums / np.maximum(counts, 1))
    (scored,) = np.nonzero(in_every_octave)
    return np.stack(columns, axis=1)[scored], scored


def block_sums(values: np.ndarray, indices: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Return sums `[B, ...]` and counts `[B]` of values `[C, ...]` at `indices [C]`, for the blocks that have any."""
    block_ids = indices // block
    counts = np.bincount(block_ids)
    sums = np.zeros((len(counts), *values.shape[1:]))
    np.add.at(sums, block_ids, values)
    return sums[counts > 0], counts[counts > 0]
