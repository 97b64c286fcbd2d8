"""Choose the part of a validation text that is scored during training, so that it speaks for all of the text.

    the text        |.....##...|..##......|......##..|##........|....##....|      K equal parts, a stretch in each
    a stretch ##    u windows of T tokens, one after the other                    at most 128 stretches

The places are drawn from the digest of the ids: all models and seeds that are trained on a text are scored on the same
stretches. `val_loss_sample` is of their windows, each from the zero state; `val_loss_streaming_sample` is of the same
tokens, each stretch read from a zero state some tokens before it: `Evaluator.stretch_token_losses`.
"""

import dataclasses
import hashlib
import math

import numpy as np

from keras_seq import checks, random_draws

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
