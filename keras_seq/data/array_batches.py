"""Batches of rows of arrays, shuffled in each epoch: every batch is a function of the step number.

    batch of step s = rows shuffle(0 ... N-1)[b B : (b + 1) B],   b = s mod P,  P = N // B

The order is drawn from (seed, s div P), so an epoch of P steps contains no example twice. The N mod B examples that it
leaves out are different in each epoch. `windows.py` does the same for the windows of a long text.
"""

from dataclasses import dataclass

import keras
import numpy as np

from keras_seq import checks
from keras_seq.data.random_draws import permutation
from keras_seq.data.step_dataset import StepBatches


@dataclass(frozen=True, eq=False)
class ArrayBatches(StepBatches):
    """Batches of examples in a different random order in each epoch.

    Args:
        arrays: Arrays of equal length N in any nesting of tuples and dicts, such as `(x [N, T], y [N, T])`.
        batch_size: B, the rows of a batch.
        seed: Integer of at least 0; the order depends on (seed, epoch) only.

    Raises:
        ValueError: There are no arrays, their lengths differ, N is less than B, or B or the seed is not an integer in
            its range.

    >>> examples = ArrayBatches(([10, 20, 30, 40], [1, 2, 3, 4]), batch_size=2)
    >>> sorted(int(x) for step in range(2) for x in examples.batch(step)[0])
    [10, 20, 30, 40]
    """

    arrays: tuple | dict
    batch_size: int
    seed: int = 0

    def __post_init__(self):
        """Check the fields."""
        checks.integer("batch_size", self.batch_size, min_value=1)
        checks.integer("seed", self.seed, min_value=0)
        object.__setattr__(self, "arrays", _as_arrays(self.arrays))
        lengths = {array.shape[0] if array.ndim else None for array in keras.tree.flatten(self.arrays)}
        if len(lengths) != 1 or None in lengths:
            raise ValueError(f"arrays have {lengths or 'no'} examples; expected the same number in all: [N, ...] each.")
        if self.num_examples < self.batch_size:
            raise ValueError(
                f"{self.num_examples} examples for batch_size={self.batch_size}: give more examples or a smaller batch."
            )

    @property
    def num_examples(self) -> int:
        """N, the number of examples."""
        return len(keras.tree.flatten(self.arrays)[0])

    @property
    def steps_per_epoch(self) -> int:
        """P, the full batches of an epoch."""
        return self.num_examples // self.batch_size

    def batch(self, step: int) -> tuple | dict:
        """Return the batch of one step.

        Args:
            step: Number of the step, from 0.

        Returns:
            NumPy arrays `[B, ...]`, nested like `arrays`.

        Raises:
            ValueError: The step is not an integer of at least 0.
        """
        epoch, index = divmod(checks.integer("step", step, min_value=0), self.steps_per_epoch)
        order = permutation(self.num_examples, self.seed, epoch, "examples")
        rows = order[index * self.batch_size :][: self.batch_size]
        return keras.tree.map_structure(lambda array: array[rows], self.arrays)


def _as_arrays(arrays):
    """Convert lists and tensors to arrays, in the same nesting of tuples and dicts."""
    if isinstance(arrays, tuple):
        return tuple(map(_as_arrays, arrays))
    if isinstance(arrays, dict):
        return {name: _as_arrays(array) for name, array in arrays.items()}
    return np.asarray(arrays)
