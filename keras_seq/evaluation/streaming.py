"""Score a text that a model reads from start to end with its state, in several parts at once.

    s_k = state after part k - 1,   s_0 = the initial state,   losses_k, s_{k+1} = model(part k, s_k)

With one row, each position waits until all weights are read. So the parts are the rows of one batch. The first guess
of s_k is the state after the last chunk before part k, read from the initial state. If it differs from the state at the
end of part k - 1, all parts are read again from these ends. A model that has forgotten what lies further back than a
chunk is read once, one that never forgets as many times as there are parts. The losses are the same but for rounding.
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable

import keras
import numpy as np
from keras import ops, tree

from keras_seq import checks, random_draws
from keras_seq.layers.base.state import tensors_in_order
from keras_seq.layers.introspection import iter_layers, vocabulary_size
from keras_seq.tracking.tracker import track_progress

MAX_PARTS = 16
MAX_LOGITS = 2**26  # of a call
TOLERANCE = 32 * np.finfo("float32").eps  # of states: rounding alone


def num_parts(model: keras.Model, num_ids: int, chunk_length: int) -> int:
    """Return in how many parts to read a text; 1 in half precision, or if a state is not rows of floats."""
    parts = tree.flatten(model.get_initial_state(2))
    rows = all(part.shape[:1] == (2,) and keras.backend.standardize_dtype(part.dtype) == "float32" for part in parts)
    layers = iter_layers(model) if isinstance(model, keras.Layer) else ()
    if not rows or any(layer.compute_dtype in ("bfloat16", "float16") for layer in layers):
        return 1
    return max(1, min(num_rows(chunk_length, vocabulary_size(model)), num_ids // (2 * chunk_length)))


def num_rows(chunk_length: int, vocabulary_size: int | None) -> int:
    """Return how many rows of a chunk to read in a call; 1 if the size of its logits is unknown."""
    return max(1, min(MAX_PARTS, MAX_LOGITS // (chunk_length * (vocabulary_size or MAX_LOGITS))))


def streaming_losses(
    step: Callable, get_initial_state: Callable, ids: np.ndarray, chunk_length: int, parts: int
) -> np.ndarray:
    """Return the losses `[N - 1]` of ids `[N]`, all but the first, each given all ids before it."""
    count, length = len(ids) - 1, chunk_length * -(-(len(ids) - 1) // (parts * chunk_length))  # of all, of a part
    padded = np.pad(ids, (0, parts * length - count))
    x, y = padded[:-1].reshape(parts, length), padded[1:].reshape(parts, length)
    used, initial = -(-count // length), get_initial_state(parts)  # the parts after the first `used` are padding

    def ends_as_starts(ends):
        """Return the state at the start of each part, given those at the ends."""
        return tree.map_structure(lambda first, end: ops.concatenate([first[:1], end[:-1]]), initial, ends)

    starts = initial
    if parts > 1:
        starts = ends_as_starts(step(x[:, -chunk_length:], y[:, -chunk_length:], initial)[1])
    for reading in range(used):
        chunks = range(0, length, chunk_length)
        chunks = track_progress(chunks, len(ids)) if reading == 0 else chunks
        losses, ends = _read(step, x, y, starts, chunks, chunk_length)
        if parts == 1 or _equal(starts, ends_as_starts(ends), used):
            break
        starts = ends_as_starts(ends)
    return losses.reshape(-1)[:count]


def independent_losses(
    step: Callable, get_initial_state: Callable, rows: np.ndarray, chunk_length: int, batch_size: int
) -> np.ndarray:
    """Return the losses `[K, N - 1]` of texts `[K, N]`, each read from the initial state."""
    (num_rows, count), losses = rows[:, 1:].shape, []
    padded = np.pad(rows, ((0, -num_rows % batch_size), (0, -count % chunk_length)))
    chunks = range(0, count, chunk_length)
    for first in track_progress(range(0, num_rows, batch_size), rows.size):
        batch = padded[first : first + batch_size]
        losses.append(_read(step, batch[:, :-1], batch[:, 1:], get_initial_state(batch_size), chunks, chunk_length)[0])
    return np.concatenate(losses)[:num_rows, :count]


def _read(step, x, y, state, chunks, chunk_length):
    """Return the losses of rows that are read in chunks, given where these start, and the state at the rows' ends."""
    losses = []
    for start in chunks:
        chunk = slice(start, start + chunk_length)
        part, state = step(x[:, chunk], y[:, chunk], state)
        losses.append(ops.convert_to_numpy(part))
    return np.concatenate(losses, axis=1), state


def _equal(state, other, rows):
    """Return whether the first rows of two states differ by rounding alone."""
    pairs = zip(tree.flatten(state), tensors_in_order(other, state), strict=True)
    arrays = ([ops.convert_to_numpy(x)[:rows] for x in pair] for pair in pairs)
    return all(np.allclose(*pair, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True) for pair in arrays)


# The part of a validation text that is scored during training, chosen so that it speaks for all of the text.
#
#     the text        |.....##...|..##......|......##..|##........|....##....|      K equal parts, a stretch in each
#     a stretch ##    u windows of T tokens, one after the other                    at most 128 stretches
#
# The places are drawn from the digest of the ids: all models and seeds that are trained on a text are scored on the
# same stretches. `val_loss_sample` is of their windows, each from the zero state; `val_loss_streaming_sample` is of
# the same tokens, each stretch read from a zero state some tokens before it: `Evaluator.stretch_token_losses`.

MAX_STRETCHES = 128


@dataclasses.dataclass(frozen=True, eq=False)
class ValidationSample:
    """Hold where the stretches of a sample start and how long they are."""

    starts: np.ndarray
    length: int
    sequence_length: int

    @property
    def tokens(self) -> int:
        """Return the number of tokens that are scored."""
        return len(self.starts) * self.length

    @property
    def window_starts(self) -> np.ndarray:
        """Return where each window starts, increasing integers `[windows]`."""
        return (self.starts[:, None] + np.arange(0, self.length, self.sequence_length)).reshape(-1)

    @property
    def targets(self) -> np.ndarray:
        """Return the positions of the tokens that are predicted, integers `[tokens]`: the first one is `starts + 1`."""
        return (self.starts[:, None] + 1 + np.arange(self.length)).reshape(-1)

    def standard_error(self, token_losses: np.ndarray) -> float:
        """Return the standard error of the sample's mean loss, taken as if its stretches were drawn anywhere."""
        size = self.length // self.sequence_length
        whole = token_losses[: len(token_losses) // size * size]
        units = whole.reshape(-1, size * token_losses.shape[1]).mean(axis=1, dtype="float64")
        variance = units.var(ddof=1) if len(units) > 1 else 0.0
        return math.sqrt(variance / len(self.starts) * max(0.0, 1 - self.tokens / token_losses.size))


def sample_windows(ids: np.ndarray, sequence_length: int, num_windows: int) -> ValidationSample | None:
    """Spread windows evenly over a text, at places drawn from its digest."""
    checks.positive_integer("sequence_length", sequence_length)
    checks.positive_integer("num_windows", num_windows)
    ids = np.asarray(ids)
    windows = (len(ids) - 1) // sequence_length
    if windows <= num_windows:
        return None
    size = -(-num_windows // MAX_STRETCHES)
    edges = spread_edges(windows, num_windows // size)
    free = np.diff(edges) - size + 1
    places = random_draws.uniform((len(free),), _seed(ids), 0, "stretches")
    return ValidationSample(
        (edges[:-1] + (places * free).astype(int)) * sequence_length, size * sequence_length, sequence_length
    )


def sample_rows(rows: np.ndarray, num_rows: int) -> np.ndarray:
    """Spread a sample evenly over rows, one in each of `num_rows` equal parts, at places drawn from their digest."""
    edges = spread_edges(len(rows), num_rows)
    places = random_draws.uniform((num_rows,), _seed(rows), 0, "stretches")
    return edges[:-1] + (places * np.diff(edges)).astype(int)


def spread_edges(total: int, parts: int) -> np.ndarray:
    """Return the edges of equal parts of `range(total)`, integers `[parts + 1]`."""
    return np.arange(parts + 1) * total // parts


def _seed(ids):
    digest = hashlib.sha256(np.ascontiguousarray(ids, "<i8").tobytes()).digest()
    return int.from_bytes(digest[:7], "little")
