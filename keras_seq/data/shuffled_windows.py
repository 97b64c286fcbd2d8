"""Blocks of a text in an order of their own in every pass, apart or overlapping: for training from the zero state.

    start[b] = S order[(step mod P) B + b]      order: 0 ... M-1, shuffled by (seed, step div P)
    M = (N - 1 - T) // S + 1,   P = M // B

S is the stride. With S = T the blocks lie side by side and a pass predicts every id once; with S = T / 4 a pass
predicts it four times, each time with more or fewer ids before it in its block, and is four times as many steps.
"""

from dataclasses import dataclass

import tensorflow as tf

from keras_seq import checks
from keras_seq.data.step_dataset import check_step
from keras_seq.data.windows import Windows


@dataclass(frozen=True, eq=False)
class ShuffledWindows(Windows):
    """All full blocks that begin at a multiple of the stride, shuffled; each at most once in a pass.

    The M mod B blocks that a pass leaves out are others in every pass.

    Args:
        ids: The text, integers `[N]`.
        batch_size: B, rows in a batch.
        length: T, positions in a row.
        stride: S, how far apart the blocks begin; by default T, so that they do not overlap.
        seed: A whole number; the order depends on (seed, pass) only.

    Raises:
        ValueError: As for `Windows`; and there are fewer blocks than rows, or the stride is no whole number from 1 on.

    >>> blocks = ShuffledBlocks(list(range(9)), batch_size=3, length=4, stride=2)
    >>> sorted(x.numpy().tolist() for x in blocks.at(0)[0])
    [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7]]
    """

    stride: int | None = None
    seed: int = 0

    def __post_init__(self):
        super().__post_init__()
        if self.stride is None:
            object.__setattr__(self, "stride", self.sequence_length)
        checks.integer("stride", self.stride, min_value=1)
        checks.integer("seed", self.seed, min_value=0)
        if self.num_blocks < self.batch_size:
            raise ValueError(
                f"The text of {self.num_ids} ids has {self.num_blocks} blocks of length {self.sequence_length} at a stride of "
                f"{self.stride}, fewer than batch_size={self.batch_size}: give a longer text, or a smaller batch_size "
                "or length."
            )

    @property
    def num_blocks(self) -> int:
        """M."""
        return (self.num_ids - 1 - self.sequence_length) // self.stride + 1

    @property
    def steps_per_epoch(self) -> int:
        """P, the full batches in a pass."""
        return self.num_blocks // self.batch_size

    def starts(self, step: int | tf.Tensor) -> tf.Tensor:
        """Where the rows of this step start in the text: int64 `[B]`."""
        check_step(step)
        step = tf.cast(step, tf.int64)
        seed = tf.stack([tf.constant(self.seed, tf.int64), step // self.steps_per_epoch])
        order = tf.random.experimental.stateless_shuffle(tf.range(self.num_blocks, dtype=tf.int64), seed)
        return tf.slice(order, [step % self.steps_per_epoch * self.batch_size], [self.batch_size]) * self.stride
