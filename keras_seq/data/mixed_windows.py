"""Random windows of several sources, each with a weight: the mixture of a batch is a function of the step number too.

source[b] = k with probability w_k,    row b of the batch = row b of source k's batch of the same step
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from keras_seq import checks
from keras_seq.data.random_draws import uniform_of_steps
from keras_seq.data.window_batches import WindowBatches
from keras_seq.data.windows import RandomWindows


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
            raise ValueError(
                f"weights={self.weights}; expected {len(self.sources)} numbers of at least 0, one for each source, "
                "with a positive, finite sum."
            )

    @property
    def batch_size(self) -> int:
        """B, the rows of a batch."""
        return self.sources[0].batch_size

    @property
    def sequence_length(self) -> int:
        """T, the positions of a row."""
        return self.sources[0].sequence_length

    def source_of_rows(self, step: int) -> np.ndarray:
        """Return the number of the source of each row of a step, int64 `[B]`."""
        return self._source_of_rows((checks.integer("step", step, min_value=0),))[0]

    def _source_of_rows(self, steps):
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
