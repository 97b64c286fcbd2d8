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

import numpy as np
import tensorflow as tf

from keras_seq.evaluation.losses import token_losses


def window_starts(num_ids: int, stride: int, max_length: int) -> np.ndarray:
    """Return where the scored windows start, the same for every T.

    Args:
        num_ids: Length of the text.
        stride: S.
        max_length: The longest T.
    """
    return np.arange(0, num_ids - max_length, stride)


def window_losses(model, ids, starts, length: int, batch_size: int = 64) -> np.ndarray:
    """Compute the token losses `[windows, T]`, float32, of windows that each start from the zero state.

    Args:
        model: The model.
        ids: The text, `[N]`.
        starts: Where the windows start, `[windows]`.
        length: T.
        batch_size: Windows in a batch.
    """
    score = tf.function(lambda x, y: token_losses(model(x, training=False), y), reduce_retracing=True)
    parts = []
    for first in range(0, len(starts), batch_size):
        windows = ids[starts[first : first + batch_size, None] + np.arange(length + 1)]
        parts.append(score(windows[:, :-1], windows[:, 1:]).numpy())
    return np.concatenate(parts)


def bin_edges(low: int, high: int) -> list[int]:
    """Return edges of bins of positions, each about half an octave wide: 1, 2, 3, 4, 6, 8, 11, ...

    Args:
        low: First position.
        high: End of the last bin.
    """
    bins = np.round(low * 2 ** np.arange(0, np.log2(high / low) - 0.25, 0.5)).astype(int)
    return sorted({*(int(edge) for edge in bins), high})


def by_bin(losses, starts, edges, block: int) -> list[tuple[float, float]]:
    """Compute the mean loss in every bin of positions, and its standard error.

    Args:
        losses: `[windows, T]`.
        starts: Where the windows start, `[windows]`.
        edges: Edges of the bins, up to T.
        block: Characters in a block of text.
    """
    estimates = []
    for low, high in itertools.pairwise(edges):
        sums, counts = block_sums(losses[:, low:high].sum(axis=1, dtype="float64"), starts, block)
        estimates.append(mean_and_error(sums, counts * (high - low)))
    return estimates


def by_position(model, ids, stride: int, losses, starts, block: int) -> dict[str, list]:
    """Compute the loss of a model in bins of positions, for result.json.

    The first S positions are scored in windows of S that start every S / 8, to have more characters at each position.

    Args:
        model: The model.
        ids: The text, `[N]`.
        stride: S.
        losses: Losses of the windows that start every S, `[windows, T]`.
        starts: Where these windows start, `[windows]`.
        block: Characters in a block of text.
    """
    near_starts = window_starts(len(ids), max(1, stride // 8), stride)
    near_losses = window_losses(model, ids, near_starts, stride, batch_size=256)
    near_edges, far_edges = [0, *bin_edges(1, stride)], bin_edges(stride, losses.shape[1])
    near = by_bin(near_losses, near_starts, near_edges, block)
    means, errors = zip(*near, *by_bin(losses, starts, far_edges, block), strict=True)
    return {"edges": [*near_edges, *far_edges[1:]], "losses": [*means], "standard_errors": [*errors]}


def octaves(losses, starts, stride: int, max_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute the loss of each character in each octave.

    Args:
        losses: `[windows, T]`.
        starts: Where the windows start, `[windows]`.
        stride: S.
        max_length: The longest T of all models; only characters that it has in every octave are scored.

    Returns:
        The indices of these characters in the text, `[C]`, and their losses, `[C, octaves up to T]`.
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
    return scored, np.stack(columns, axis=1)[scored]


def block_sums(values, indices, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Sum values in every block of text.

    Args:
        values: `[C, ...]`.
        indices: Indices of the values in the text, `[C]`.
        block: Characters in a block of text.

    Returns:
        The sums `[B, ...]` and the counts `[B]`, of the B blocks that have values.
    """
    block_ids = indices // block
    counts = np.bincount(block_ids)
    sums = np.zeros((len(counts), *values.shape[1:]))
    np.add.at(sums, block_ids, values)
    return sums[counts > 0], counts[counts > 0]


def mean_and_error(sums, counts) -> tuple[float, float]:
    """Compute the mean of all values and its standard error.

    Args:
        sums: Sum of each block, `[B]`.
        counts: Number of values in each block, `[B]`.
    """
    total, num_blocks = counts.sum(), len(counts)
    mean = sums.sum() / total
    error = np.sqrt(num_blocks / (num_blocks - 1) * np.square(sums - mean * counts).sum()) / total
    return float(mean), float(error)


def slope_weights(num_octaves: int) -> np.ndarray:
    """Return the weights of the octaves in the slope per doubling of a least-squares line through them."""
    centered = np.arange(num_octaves) - (num_octaves - 1) / 2
    return centered / np.square(centered).sum()
