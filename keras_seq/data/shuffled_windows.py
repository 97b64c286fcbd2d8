"""Windows at regular distances, side by side or overlapping, in a different random order in each epoch.

    start[b] = S order[(step mod P) B + b]      order: 0 ... M-1, shuffled by (seed, step div P)
    M = (N - 1 - T) // S + 1,   P = M // B

S is the stride. With S = T the windows are side by side and an epoch predicts every id once. With S = T / 4 an epoch
has four times as many steps and predicts every id four times, at different positions of its windows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from keras_seq import checks
from keras_seq.data.random_draws import permuted
from keras_seq.data.windows import Windows


@dataclass(frozen=True, eq=False)
class ShuffledWindows(Windows):
    """All full windows that start at a multiple of the stride, shuffled; each at most once in an epoch.

    The M mod B windows that an epoch leaves out are different in each epoch.

    Args:
        ids: The text, integers `[N]`.
        batch_size: B, the rows of a batch.
        sequence_length: T, the positions of a row.
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
        checks.integer("seed", self.seed, min_value=0)
        if self.num_windows < self.batch_size:
            raise ValueError(
                f"The text of {self.num_ids} ids has {self.num_windows} windows of "
                f"sequence_length={self.sequence_length} at a stride of {self.stride}, fewer than "
                f"batch_size={self.batch_size}: give a longer text, or a smaller batch_size or sequence_length."
            )

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
