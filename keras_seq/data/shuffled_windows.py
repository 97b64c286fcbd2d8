"""Windows and documents in a different random order in each epoch, and mixtures of random windows.

    ShuffledWindows    start[b] = S order[(step mod P) B + b]       order: 0 ... M-1, shuffled by (seed, step div P)
                       M = (N - 1 - T) // S + 1,   P = M // B
    PackedDocuments    all documents, one after the other in the order of shuffle(seed, epoch), cut into windows side by
                       side: every id but the first is predicted exactly once, without padding
    MixedWindows       row b of the batch = row b of source k's batch of the same step,  k with probability w_k

S is the stride. With S = T the windows are side by side and an epoch predicts every id once. With S = T / 4 an epoch
has four times as many steps and predicts every id four times, at different positions of its windows.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from keras_seq import checks
from keras_seq.data.token_files import TokenFiles
from keras_seq.data.windows import RandomWindows, WindowBatches, Windows
from keras_seq.random_draws import permutation, permuted, uniform_of_steps


@dataclass(frozen=True, eq=False)
class ShuffledWindows(Windows):
    """All full windows that start at a multiple of the stride, shuffled; each at most once in an epoch.

    The M mod B windows that an epoch leaves out are different in each epoch.

    Args:
        ids, batch_size, sequence_length: As for `Windows`.
        stride: S, the distance between the starts of windows; T by default, which makes them side by side.
        seed: Integer of at least 0; the order depends on (seed, epoch) only.

    Raises:
        ValueError: As for `Windows`; or there are fewer windows than rows, or the stride is not an integer of at
            least 1.

    >>> windows = ShuffledWindows(list(range(9)), batch_size=3, sequence_length=4, stride=2)
    >>> sorted(windows.batch(0)[0].tolist())
    [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7]]
    """

    stride: int | None = None
    seed: int = 0

    def __post_init__(self):
        """Check the fields."""
        super().__post_init__()
        if self.stride is None:
            object.__setattr__(self, "stride", self.sequence_length)
        checks.integer("stride", self.stride, min_value=1)
        if self.num_windows < self.batch_size:
            sizes = f"sequence_length={self.sequence_length}, stride={self.stride}, batch_size={self.batch_size}"
            raise ValueError(f"{self.num_ids} ids have {self.num_windows} windows with {sizes}: give a longer text.")

    @property
    def num_windows(self) -> int:
        """M, the number of full windows in the text."""
        return (self.num_ids - 1 - self.sequence_length) // self.stride + 1

    @property
    def steps_per_epoch(self) -> int:
        """P, the full batches of an epoch."""
        return self.num_windows // self.batch_size

    def starts_of_steps(self, steps: Sequence[int]) -> np.ndarray:
        """Return the `starts` of several steps, int64 `[steps, B]`."""
        epochs, indices = np.divmod(np.asarray(steps, "int64"), self.steps_per_epoch)
        rows = indices[:, None] * self.batch_size + np.arange(self.batch_size)
        for epoch in set(epochs.tolist()):
            is_own = epochs == epoch
            rows[is_own] = permuted(rows[is_own], self.num_windows, self.seed, epoch, "windows")
        return rows * self.stride


@dataclass(frozen=True, eq=False)
class PackedDocuments(WindowBatches):
    """Batches of shuffled documents, packed into rows.

    The fewer than B T ids at the end of an epoch are not predicted. A row may hold several documents: with
    `document_token`, a model keeps them apart (`LanguageModel`).

    Args:
        files: Ids on disk, which begin with a document. (Memory: 24 bytes a document.)
        batch_size: B, the rows of a batch.
        sequence_length: T, the positions of a row.
        seed: Integer of at least 0; the order of the documents depends on (seed, epoch) only.

    Raises:
        ValueError: The files do not begin with a document or have fewer than B T + 1 ids, or another argument is not an
            integer in its range.
    """

    files: TokenFiles = field(repr=False)
    batch_size: int
    sequence_length: int
    seed: int = 0

    def __post_init__(self):
        """Check the fields and read where the documents begin."""
        checks.integer("batch_size", self.batch_size, min_value=1)
        checks.integer("sequence_length", self.sequence_length, min_value=1)
        checks.integer("seed", self.seed, min_value=0)
        if not isinstance(self.files, TokenFiles):
            raise ValueError(f"files={checks.short_repr(self.files)}; expected TokenFiles.")
        starts = self.files.document_starts()
        if not len(starts) or starts[0] != 0:
            raise ValueError("files do not begin with a document: split them by documents.")
        object.__setattr__(self, "borders", np.append(starts, len(self.files)))
        if self.steps_per_epoch < 1:
            num_ids = self.tokens_per_step + 1
            raise ValueError(f"The documents have {len(self.files)} ids; expected {num_ids}: give more documents.")

    @property
    def steps_per_epoch(self) -> int:
        """P, the full batches of an epoch."""
        return (len(self.files) - 1) // self.tokens_per_step

    def windows_of_steps(self, steps: Sequence[int]) -> np.ndarray:
        """Return the windows of some steps, int32 `[steps, B, T + 1]`."""
        length = self.sequence_length
        streams = np.stack([self._stream(*divmod(step, self.steps_per_epoch)) for step in steps])  # [steps, B T + 1]
        return np.lib.stride_tricks.sliding_window_view(streams, length + 1, axis=1)[:, ::length].copy()

    def _stream(self, epoch, index):
        """Return the ids of one step of an epoch, int32 `[B T + 1]`."""
        order, ends = _order_and_ends(self, epoch)
        position, length = index * self.tokens_per_step, self.tokens_per_step + 1
        first, last = np.searchsorted(ends, (position, position + length - 1), side="right")
        documents = order[first : last + 1]
        starts, stops = self.borders[documents], self.borders[documents + 1]
        starts[0] = stops[0] - (ends[first] - position)
        stops[-1] -= ends[last] - (position + length)
        return self.files.spans(starts, stops - starts)


@functools.lru_cache(maxsize=1)
def _order_and_ends(packed, epoch):
    """Return the order of an epoch's documents, and where each ends in the stream."""
    lengths = np.diff(packed.borders)
    order = permutation(len(lengths), packed.seed, epoch, "documents")
    return order, np.cumsum(lengths[order])


@dataclass(frozen=True, eq=False)
class MixedWindows(WindowBatches):
    """Batches whose rows are drawn from several `RandomWindows`.

    Args:
        sources: Windows of each source, all with the same batch size and sequence length. Ids have to be those of one
            tokenizer.
        weights: Weight of each source, at least 0; a row is drawn from a source with its share of the sum.
        seed: Integer of at least 0; the sources of the rows depend on (seed, step) only.

    Raises:
        ValueError: There is no source, a source is not a `RandomWindows` or differs in size, or the weights are not one
            number of at least 0 for each source, with a positive sum.

    >>> small, large = RandomWindows([1] * 9, 4, 2), RandomWindows([2] * 9, 4, 2)
    >>> MixedWindows((small, large), (0.5, 0.5)).batch(0)[0].tolist()
    [[2, 2], [1, 1], [2, 2], [1, 1]]
    """

    sources: tuple[RandomWindows, ...]
    weights: tuple[float, ...]
    seed: int = 0

    def __post_init__(self):
        """Check the fields."""
        checks.integer("seed", self.seed, min_value=0)
        object.__setattr__(self, "sources", tuple(self.sources))
        object.__setattr__(self, "weights", tuple(self.weights))
        if not self.sources or not all(isinstance(source, RandomWindows) for source in self.sources):
            raise ValueError(f"sources={self.sources!r}; expected one or more RandomWindows.")
        sizes = {(source.batch_size, source.sequence_length) for source in self.sources}
        if len(sizes) > 1:
            raise ValueError(f"sources have the sizes {sorted(sizes)}; expected one batch_size and sequence_length.")
        for weight in self.weights:
            checks.number("weights", weight, min_value=0)
        if len(self.weights) != len(self.sources) or not 0 < sum(self.weights) < math.inf:
            raise ValueError(f"weights={self.weights}; expected {len(self.sources)} numbers of at least 0, not all 0.")

    @property
    def batch_size(self) -> int:
        """B, the rows of a batch."""
        return self.sources[0].batch_size

    @property
    def sequence_length(self) -> int:
        """T, the positions of a row."""
        return self.sources[0].sequence_length

    def _source_of_rows(self, steps):
        """Return the number of the source of each row of steps, int64 `[steps, B]`."""
        draws = uniform_of_steps((self.batch_size,), self.seed, steps, "sources")
        return self._shares.searchsorted(draws, side="right")

    @cached_property
    def _shares(self):
        shares = np.cumsum(self.weights) / np.sum(self.weights)
        shares[np.flatnonzero(self.weights)[-1] :] = 1.0  # above each draw, also after rounding
        return shares

    def windows_of_steps(self, steps: Sequence[int]) -> np.ndarray:
        """Return the windows of some steps, int32 `[steps, B, T + 1]`; the rows of a source are read at once."""
        source_of_rows = self._source_of_rows(steps)
        windows = np.empty((*source_of_rows.shape, self.sequence_length + 1), "int32")
        for number, source in enumerate(self.sources):
            is_own = source_of_rows == number
            if is_own.any():
                windows[is_own] = source.rows(source.starts_of_steps(steps)[is_own])
        return windows
