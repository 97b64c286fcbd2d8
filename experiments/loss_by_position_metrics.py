"""Loss by position, and what a longer past is worth to the same characters.

    window m: the T characters from m S on;  a character at position p stands behind p + 1 characters of its window
    octave k: the positions from 2^k S/2 up to 2^k S;  S is the smallest context, T = 2^k S

The windows overlap, so that a character stands in several, behind pasts of other lengths. Its loss in an octave is the
mean over the windows that have it there. What is compared between octaves is the loss of the same characters, those
that have one in every octave: texts differ from each other by far more than pasts do.

Standard errors take blocks of text for independent: sqrt(B / (B - 1) sum_b (s_b - mean n_b)^2) / n, with the sum s_b
and the count n_b of each of B blocks (a ratio estimator; Cochran, 1977, section 6).
"""

import itertools

import numpy as np
import tensorflow as tf

from keras_seq.evaluation.evaluator import nats


def window_starts(num_ids, stride, longest) -> np.ndarray:
    """Where windows of up to `longest` characters begin in a text of `num_ids`, the same for every T."""
    return np.arange(0, num_ids - longest, stride)


def nats_by_window(model, ids, starts, length, rows=64) -> np.ndarray:
    """The losses `[windows, T]`, float32, of windows of T = `length` that each begin from the zero state."""
    score = tf.function(lambda x, y: nats(model(x, training=False), y), reduce_retracing=True)
    parts = []
    for first in range(0, len(starts), rows):
        windows = ids[starts[first : first + rows, None] + np.arange(length + 1)]
        parts.append(score(windows[:, :-1], windows[:, 1:]).numpy())
    return np.concatenate(parts)


def edges(low, high) -> list[int]:
    """Positions from `low` up to `high` in bins of about half an octave: 1, 2, 3, 4, 6, 8, 11, ..."""
    bins = np.round(low * 2 ** np.arange(0, np.log2(high / low) - 0.25, 0.5)).astype(int)
    return sorted({*(int(edge) for edge in bins), high})


def by_bin(losses, starts, bins, block) -> list[tuple[float, float]]:
    """The mean loss in every bin of positions, and its standard error.

    Args:
        losses: `[windows, T]`.
        starts: where the windows begin, `[windows]`.
        bins: the edges of the bins, up to T.
        block: characters of text in a block.
    """
    estimates = []
    for low, high in itertools.pairwise(bins):
        sums, counts = blocks(losses[:, low:high].sum(axis=1, dtype="float64"), starts, block)
        estimates.append(mean_and_error(sums, counts * (high - low)))
    return estimates


def by_position(model, ids, stride, losses, starts, block) -> dict[str, list]:
    """A model's loss in bins of positions, as result.json has it.

    The first S positions are scored in windows of S that begin every S / 8, since few characters stand there otherwise.

    Args:
        model: the model.
        ids: the text, `[N]`.
        stride: S.
        losses, starts: those of the windows that begin every S, `[windows, T]` and `[windows]`.
        block: characters of text in a block.
    """
    near_starts = window_starts(len(ids), max(1, stride // 8), stride)
    near = nats_by_window(model, ids, near_starts, stride, rows=256)
    bins, far = [0, *edges(1, stride)], edges(stride, losses.shape[1])
    estimates = [*by_bin(near, near_starts, bins, block), *by_bin(losses, starts, far, block)]
    nats, errors = zip(*estimates, strict=True)
    return {"edges": [*bins, *far[1:]], "nats": [*nats], "errors": [*errors]}


def octaves(losses, starts, stride, longest) -> tuple[np.ndarray, np.ndarray]:
    """The loss of each character in each octave.

    Args:
        losses: `[windows, T]`.
        starts: where the windows begin, `[windows]`.
        stride: S.
        longest: the longest T of all models: only characters that it has in every octave count.

    Returns:
        The places of the characters in the text, `[C]`, and their losses, `[C, octaves up to T]`.
    """
    lows = [stride // 2 * 2**k for k in range(int(np.log2(longest // stride)) + 1)]
    places = starts[:, None] + np.arange(longest)
    size = int(places.max()) + 1
    everywhere, columns = np.ones(size, bool), []
    for low in lows:
        of_octave = places[:, low : 2 * low].ravel()
        counts = np.bincount(of_octave, minlength=size)
        everywhere &= counts == max(1, low // stride)
        if 2 * low <= losses.shape[1]:
            sums = np.bincount(of_octave, losses[:, low : 2 * low].ravel().astype("float64"), minlength=size)
            columns.append(sums / np.maximum(counts, 1))
    (found,) = np.nonzero(everywhere)
    return found, np.stack(columns, axis=1)[found]


def blocks(values, places, block) -> tuple[np.ndarray, np.ndarray]:
    """Sums `[B, ...]` of the values `[C, ...]` in every block of text, and how many there are in each, `[B]`."""
    number = places // block
    counts = np.bincount(number)
    sums = np.zeros((len(counts), *values.shape[1:]))
    np.add.at(sums, number, values)
    return sums[counts > 0], counts[counts > 0]


def mean_and_error(sums, counts) -> tuple[float, float]:
    """The mean of all values and its standard error, from their sums and counts in each block, `[B]` both."""
    total, number = counts.sum(), len(counts)
    mean = sums.sum() / total
    error = np.sqrt(number / (number - 1) * np.square(sums - mean * counts).sum()) / total
    return float(mean), float(error)


def slope_weights(number) -> np.ndarray:
    """What a least-squares line through `number` octaves takes of each for its slope per doubling."""
    centred = np.arange(number) - (number - 1) / 2
    return centred / np.square(centred).sum()
