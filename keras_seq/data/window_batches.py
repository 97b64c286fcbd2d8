"""Read the windows of several consecutive steps at once: planned by itself, a small batch takes longer than its reads.

    block k = windows of the steps k S ... k S + S - 1      x, y = window[:-1], window[1:]      of block step div S

Which windows a step has does not depend on the others, so a batch is a function of its step as before; only damage of a
file is found up to S - 1 steps earlier. S is 64, or less for large batches.
"""

import functools
from collections.abc import Sequence

import numpy as np

from keras_seq import checks
from keras_seq.data.step_dataset import StepBatches

MAX_STEPS, MAX_TOKENS = 64, 1 << 18  # of a block: 1 MiB


class WindowBatches(StepBatches):
    """Base class of batches of windows; a subclass has `batch_size`, `sequence_length` and `windows_of_steps`."""

    @property
    def tokens_per_step(self) -> int:
        """B T, the targets of a batch."""
        return self.batch_size * self.sequence_length

    def windows_of_steps(self, steps: Sequence[int]) -> np.ndarray:
        """Return the windows of some steps, int32 `[steps, B, T + 1]`."""
        raise NotImplementedError

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the batch of one step.

        Args:
            step: Number of the step, from 0.

        Returns:
            `(x, y)`, int32 `[B, T]` each: the ids, and the next ids.

        Raises:
            ValueError: The step is not an integer of at least 0.
        """
        step = checks.integer("step", step, min_value=0)
        if self._steps_of_block == 1:
            (windows,) = self.windows_of_steps((step,))
        else:
            number, index = divmod(step, self._steps_of_block)
            windows = self._block(number)[index].copy()
        return windows[:, :-1], windows[:, 1:]

    @functools.cached_property
    def _steps_of_block(self):
        return max(1, min(MAX_STEPS, MAX_TOKENS // self.tokens_per_step)) if self.fixed_size else 1

    def _block(self, number):
        stored, block = self.__dict__.get("_stored_block", (None, None))
        if stored != number:
            first = number * self._steps_of_block
            block = self.windows_of_steps(range(first, first + self._steps_of_block))
            self.__dict__["_stored_block"] = number, block  # one assignment: threads see this pair or another
        return block
