"""Apply a model that reads both sides of a position, and was trained on windows of T ids, to a text of any length.

    window k reads [k S - S/2, k S + 3 S/2) and gives the logits of [k S, (k + 1) S),      S = T // 2

Every position has at least T // 4 positions of context on each side, where the text has them; beyond the ends of the
text there is padding, whose id is 0.
"""

from collections.abc import Callable

import numpy as np
from keras import ops

from keras_seq.evaluation.progress_bar import track_progress


def overlapping_window_logits(
    logits_fn: Callable, ids: np.ndarray, sequence_length: int, batch_size: int = 64
) -> np.ndarray:
    """Compute the logits of every position of a text.

    Args:
        logits_fn: Function from ids `[B, T]` to a tensor of logits `[B, T, V]`.
        ids: Ids `[N]`, at least one; 0 is padding.
        sequence_length: T, at least 4.
        batch_size: B, windows of a call.

    Returns:
        Logits `[N, V]`.

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
