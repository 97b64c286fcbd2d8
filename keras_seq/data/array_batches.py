"""Rows of arrays to batches: every batch is a function of the step number.

    batch of step s = rows shuffle(0 ... N-1)[b B : (b + 1) B],   b = s mod P,  P = N // B

The order is drawn from (seed, s div P), so that a pass of P steps holds no example twice; the N mod B examples that it
leaves out are others in every pass. `windows.py` does the same for the windows of one long text.
"""

from dataclasses import dataclass

import tensorflow as tf

from keras_seq import checks
from keras_seq.data.step_dataset import check_step, step_dataset


@dataclass(frozen=True, eq=False)
class ArrayBatches:
    """Examples in an order of their own in every pass.

    Args:
        arrays: arrays of equal length N in any nesting of tuples and dicts, such as `(x [N, T], y [N, T])`.
        batch_size: B, rows in a batch.
        seed: a whole number; the order depends on (seed, pass) only.

    Raises:
        ValueError: no arrays, arrays of unequal length, fewer examples than rows in a batch; B or the seed is no
            whole number in its range.

    >>> examples = Examples(([10, 20, 30, 40], [1, 2, 3, 4]), batch_size=2)
    >>> sorted(int(x) for step in range(2) for x in examples.at(step)[0])
    [10, 20, 30, 40]
    """

    arrays: tuple | dict
    batch_size: int
    seed: int = 0

    def __post_init__(self):
        checks.integer("batch_size", self.batch_size, min_value=1)
        checks.integer("seed", self.seed, min_value=0)
        with tf.device("CPU"):  # where tf.data works
            object.__setattr__(self, "arrays", _tensors(self.arrays))
        lengths = {array.shape[0] if array.shape.rank else None for array in tf.nest.flatten(self.arrays)}
        if len(lengths) != 1 or None in lengths:
            raise ValueError(f"arrays of {lengths or 'no'} examples; expected the same number in all: [N, ...] each.")
        if self.num_examples < self.batch_size:
            raise ValueError(
                f"{self.num_examples} examples for batch_size={self.batch_size}: give more of them or a smaller batch."
            )

    @property
    def num_examples(self) -> int:
        """N."""
        return int(tf.nest.flatten(self.arrays)[0].shape[0])

    @property
    def steps_per_epoch(self) -> int:
        """P, the full batches in a pass."""
        return self.num_examples // self.batch_size

    def batch(self, step: int | tf.Tensor):
        """The batch of one step, nested as the arrays are: `[B, ...]` each."""
        check_step(step)
        step = tf.cast(step, tf.int64)
        seed = tf.stack([tf.constant(self.seed, tf.int64), step // self.steps_per_epoch])
        order = tf.random.experimental.stateless_shuffle(tf.range(self.num_examples), seed)
        start = step % self.steps_per_epoch * self.batch_size
        rows = tf.slice(order, [start], [self.batch_size])  # unlike order[start : ...], its shape is known in a graph
        return tf.nest.map_structure(lambda array: tf.gather(array, rows), self.arrays)

    def dataset(self, start_step: int = 0, stop_step: int | None = None) -> tf.data.Dataset:
        """The batches `at(first)`, ..., `at(last - 1)`, in this order; without end where `last` is None.

        Raises:
            ValueError: Not 0 <= first <= last in whole numbers.
        """
        return step_dataset(self.batch, start_step, stop_step)


def _tensors(arrays):
    """The arrays as tensors, in the same nesting."""
    if isinstance(arrays, tuple):
        return tuple(map(_tensors, arrays))
    if isinstance(arrays, dict):
        return {name: _tensors(array) for name, array in arrays.items()}
    return tf.convert_to_tensor(arrays)
