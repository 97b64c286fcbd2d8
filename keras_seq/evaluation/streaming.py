"""Score a text that a model reads from start to end with its state, in several parts at once.

    s_k = state after part k - 1,   s_0 = the initial state,   losses_k, s_{k+1} = model(part k, s_k)

With one row, each position waits until all weights are read. So the parts are the rows of one batch. Each s_k is first
taken from the last chunk before its part, read from the initial state, and is right once it equals the end of the part
before; otherwise the parts are read again from these ends. A model that has forgotten what lies further back than a
chunk is read once, and one that never forgets as many times as there are parts: the losses are the same but for
rounding.
"""

from collections.abc import Callable

import keras
import numpy as np
from keras import ops, tree

from keras_seq.evaluation.progress_bar import track_progress
from keras_seq.layers.introspection import iter_layers, vocabulary_size

MAX_PARTS = 16
MAX_LOGITS = 2**26  # of a call
TOLERANCE = 32 * np.finfo("float32").eps  # of states: rounding alone


def num_parts(model: keras.Model, num_ids: int, chunk_length: int) -> int:
    """Return in how many parts to read a text: 1 in half precision, and where a state is no rows of floats."""
    parts = tree.flatten(model.get_initial_state(2))
    rows = all(part.shape[:1] == (2,) and keras.backend.standardize_dtype(part.dtype) == "float32" for part in parts)
    layers = iter_layers(model) if isinstance(model, keras.Layer) else ()
    if not rows or any(layer.compute_dtype in ("bfloat16", "float16") for layer in layers):
        return 1
    most = min(MAX_PARTS, MAX_LOGITS // (chunk_length * (vocabulary_size(model) or MAX_LOGITS)))
    return max(1, min(most, num_ids // (2 * chunk_length)))


def streaming_losses(
    step: Callable, get_initial_state: Callable, ids: np.ndarray, chunk_length: int, parts: int
) -> np.ndarray:
    """Return the losses `[N - 1]` of ids `[N]`, all but the first, each given all ids before it."""
    count, length = len(ids) - 1, chunk_length * -(-(len(ids) - 1) // (parts * chunk_length))
    padded = np.pad(ids, (0, parts * length - count))
    x, y = padded[:-1].reshape(parts, length), padded[1:].reshape(parts, length)
    read, initial = -(-count // length), get_initial_state(parts)  # the other parts are padding

    def ends_as_starts(ends):
        """Return the state at the start of each part, given those at the ends."""
        return tree.map_structure(lambda first, end: ops.concatenate([first[:1], end[:-1]]), initial, ends)

    starts = initial
    if parts > 1:
        starts = ends_as_starts(step(x[:, -chunk_length:], y[:, -chunk_length:], initial)[1])
    for reading in range(read):
        losses, state = [], starts
        chunks = range(0, length, chunk_length)
        for start in track_progress(chunks, len(ids)) if reading == 0 else chunks:
            chunk = slice(start, start + chunk_length)
            part, state = step(x[:, chunk], y[:, chunk], state)
            losses.append(ops.convert_to_numpy(part))
        if parts == 1 or _equal(starts, ends_as_starts(state), read):
            break
        starts = ends_as_starts(state)
    return np.concatenate(losses, axis=1).reshape(-1)[:count]


def independent_losses(
    step: Callable, get_initial_state: Callable, rows: np.ndarray, chunk_length: int, batch_size: int
) -> np.ndarray:
    """Return the losses `[K, N - 1]` of texts `[K, N]`, each read from the initial state."""
    (num_rows, count), losses = rows[:, 1:].shape, []
    padded = np.pad(rows, ((0, -num_rows % batch_size), (0, -count % chunk_length)))
    for first in track_progress(range(0, num_rows, batch_size), rows.size):
        batch, state, parts = padded[first : first + batch_size], get_initial_state(batch_size), []
        for start in range(0, count, chunk_length):
            stop = start + chunk_length
            part, state = step(batch[:, start:stop], batch[:, start + 1 : stop + 1], state)
            parts.append(ops.convert_to_numpy(part))
        losses.append(np.concatenate(parts, axis=1))
    return np.concatenate(losses)[:num_rows, :count]


def _equal(state, other, rows):
    """Return whether the first rows of two states differ by rounding alone."""
    for mine, its in zip(tree.flatten(state), tree.flatten(other), strict=True):
        mine, its = ops.convert_to_numpy(mine)[:rows], ops.convert_to_numpy(its)[:rows]
        if not np.allclose(mine, its, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
            return False
    return True


# Apply a model that reads both sides of a position, and was trained on windows of T ids, to a text of any length.
#
#     window k reads [k S - S/2, k S + 3 S/2) and gives the logits of [k S, (k + 1) S),      S = T // 2
#
# Every position has at least T // 4 positions of context on each side, where the text has them; beyond the ends of the
# text there is padding, whose id is 0.


def overlapping_window_logits(
    logits_fn: Callable, ids: np.ndarray, sequence_length: int, batch_size: int = 64
) -> np.ndarray:
    """Compute the logits of every position of a text.

    >>> windows = lambda x: x[..., None]
    >>> overlapping_window_logits(windows, np.arange(1, 8), sequence_length=4)[:, 0].tolist()
    [1, 2, 3, 4, 5, 6, 7]
    """
    stride = sequence_length // 2
    margin, num_windows = stride // 2, -(-len(ids) // stride)
    padded = np.pad(ids, (margin, num_windows * stride + sequence_length - margin - len(ids)))
    x = np.lib.stride_tricks.sliding_window_view(padded, sequence_length)[::stride][:num_windows]
    first_rows = track_progress(range(0, num_windows, batch_size), len(ids))
    parts = [ops.convert_to_numpy(logits_fn(x[row : row + batch_size])) for row in first_rows]
    return np.concatenate(parts)[:, margin : margin + stride].reshape(num_windows * stride, -1)[: len(ids)]
