"""Random windows of several sources, each with a weight: the mixture of a batch is a function of the step number too.

source[b] = k with probability w_k,    row b of the batch = row b of source k's batch of the same step
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from keras_seq import checks
from keras_seq.data.random_draws import uniform
from keras_seq.data.step_dataset import StepBatches
from keras_seq.data.windows import RandomWindows


@dataclass(frozen=True, eq=False)
class MixedWindows(StepBatches):
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
    [[1, 1], [2, 2], [1, 1], [2, 2]]
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
        if len(self.weights) != len(self.sources) or not sum(self.weights) > 0:
            raise ValueError(
                f"weights={self.weights}; expected {len(self.sources)} numbers of at least 0, one for each source, "
                "with a positive sum."
            )

    @property
    def batch_size(self) -> int:
        """B, the rows of a batch."""
        return self.sources[0].batch_size

    @property
    def sequence_length(self) -> int:
        """T, the positions of a row."""
        return self.sources[0].sequence_length

    @property
    def tokens_per_step(self) -> int:
        """B T, the targets of a batch."""
        return self.sources[0].tokens_per_step

    def source_of_rows(self, step: int) -> np.ndarray:
        """Return the number of the source of each row of a step, int64 `[B]`."""
        checks.integer("step", step, min_value=0)
        return self._shares.searchsorted(uniform((self.batch_size,), self.seed, step, "sources"), side="right")

    @cached_property
    def _shares(self):
        shares = np.cumsum(self.weights) / np.sum(self.weights)
        shares[np.flatnonzero(self.weights)[-1] :] = 1.0  # above each draw, also after rounding
        return shares

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the batch of one step.

        Args:
            step: Number of the step, from 0.

        Returns:
            `(x, y)`, int32 `[B, T]` each: the ids, and the next ids.

        Raises:
            ValueError: The step is not an integer of at least 0.
        """
        source_of_rows = self.source_of_rows(step)
        windows = np.empty((self.batch_size, self.sequence_length + 1), "int32")
        for number, source in enumerate(self.sources):
            is_own = source_of_rows == number
            if is_own.any():
                windows[is_own] = source.rows(source.starts(step)[is_own])
        return windows[:, :-1], windows[:, 1:]
