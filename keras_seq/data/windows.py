"""Ids to batches: every batch is a function of the step number, and of nothing else.

    x = ids[start : start + T],   y = ids[start + 1 : start + T + 1]        for each of B starts

    Lanes        start[b] = b L + (step mod P) T,  L = (N-1) // B,  P = L // T     a row goes on where it ended
    RandomCrops  start[b] uniform over 0 ... N-T-1, drawn from (seed, step)
    Blocks       start[b] = ((step mod P) B + b) T                                 each full window once, in order

P is `steps_per_pass`. Since `dataset(first, last)` maps `at` over a range of steps, going on after an interruption
means another `first`, and nothing else has to be saved. `generator.py` keeps the old way, for comparison.
"""

from dataclasses import dataclass, field
from numbers import Real

import numpy as np
import tensorflow as tf

from keras_seq import checks
from keras_seq.checks import MAX_BATCH_IDS
from keras_seq.data.step_dataset import check_step, step_dataset
from keras_seq.tokenizers.dlpack_buffer import shared_int32_buffer


@dataclass(frozen=True, eq=False)
class Windows:
    """What all windows over a text share; a kind of windows is its `starts` and its `steps_per_pass`.

    Args:
        ids: The text, integers `[N]`: a tensor, an array or a list. It is kept once, as int32.
        batch_size: B, rows in a batch.
        length: T, positions in a row. N is at least T + 1.

    Raises:
        ValueError: The ids are not integers along one axis, B or T is not a whole number of at least 1, the text is
            shorter than one window, or a batch has 2**31 ids; in `at`, the step is no whole number of at least 0.
    """

    ids: tf.Tensor = field(repr=False)
    batch_size: int
    sequence_length: int

    def __post_init__(self):
        object.__setattr__(self, "ids", _as_ids(self.ids))
        checks.integer("batch_size", self.batch_size, min_value=1)
        checks.integer("length", self.sequence_length, min_value=1)
        if self.batch_size * (self.sequence_length + 1) >= MAX_BATCH_IDS:
            raise ValueError(
                f"batch_size={self.batch_size} rows of length={self.sequence_length}; expected fewer than 2**31 ids in a batch."
            )
        if self.num_ids <= self.sequence_length:
            shortage = f"{self.num_ids} ids, fewer than the {self.sequence_length + 1} of one window"
            raise ValueError(
                f"The text has {shortage} of length {self.sequence_length}: give a longer text or a smaller length."
            )

    @property
    def num_ids(self) -> int:
        """N, the length of the text."""
        return int(self.ids.shape[0])

    @property
    def steps_per_epoch(self) -> int:
        """P, the steps that go once through the text."""
        raise NotImplementedError

    def starts(self, step: int | tf.Tensor) -> tf.Tensor:
        """Where the rows of this step start in the text: int64 `[B]`."""
        raise NotImplementedError

    def batch(self, step: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The batch of one step.

        Args:
            step: The number of the step, from 0: a Python integer, or an integer tensor, eager or symbolic.

        Returns:
            `(x, y)`, int32 `[B, T]` each: the ids, and the ids that come next.
        """
        starts = self.starts(step)
        window = tf.gather(self.ids, starts[:, None] + tf.range(self.sequence_length + 1, dtype=tf.int64))  # [B, T+1]
        return window[:, :-1], window[:, 1:]

    def dataset(self, start_step: int = 0, stop_step: int | None = None) -> tf.data.Dataset:
        """The batches `at(first)`, ..., `at(last - 1)`, in this order; without end where `last` is None.

        Raises:
            ValueError: Not 0 <= first <= last in whole numbers.
        """
        return step_dataset(self.batch, start_step, stop_step)


@dataclass(frozen=True, eq=False)
class StatefulWindows(Windows):
    """B contiguous stretches of the text, for a state that is carried from batch to batch.

    Row b walks through its own lane; at the next step it goes on exactly where it ended. When the lanes end, a pass
    ends, and all rows begin again at the start of their lanes. What fills no window is left out: fewer than T
    predictions at the end of each lane and fewer than B at the end of the text.

    Args:
        ids: The text, integers `[N]`.
        batch_size: B, rows and lanes.
        length: T, positions in a row.
        restart: The probability with which a row begins a step from the zero state though its lane goes on, so that the
            model learns to start cold too. The draws depend on (seed, step) only.
        seed: A whole number.

    Raises:
        ValueError: As for `Windows`; and a lane is shorter than one window, or `restart` is no probability.

    >>> lanes = Lanes(list(range(13)), batch_size=2, length=3)
    >>> lanes.at(1)[0].numpy().tolist()
    [[3, 4, 5], [9, 10, 11]]
    """

    reset_prob: float = 0.0
    seed: int = 0

    def __post_init__(self):
        super().__post_init__()
        checks.integer("seed", self.seed, min_value=0)
        if isinstance(self.reset_prob, bool) or not (isinstance(self.reset_prob, Real) and 0 <= self.reset_prob <= 1):
            raise ValueError(f"restart must be a probability between 0 and 1, not {self.reset_prob!r}.")
        if self.steps_per_epoch < 1:
            raise ValueError(
                f"The text of {self.num_ids} ids is too short for {self.batch_size} lanes of one window of "
                f"{self.sequence_length}: give {self.batch_size * self.sequence_length + 1} ids, or a smaller batch_size or length."
            )

    @property
    def steps_per_epoch(self) -> int:
        """P, the windows in a lane."""
        return self.stream_length // self.sequence_length

    @property
    def stream_length(self) -> int:
        """L, the predictions in a lane; lanes lie L apart."""
        return (self.num_ids - 1) // self.batch_size

    def starts(self, step: int | tf.Tensor) -> tf.Tensor:
        """Where the rows of this step start in the text: int64 `[B]`."""
        check_step(step)
        lanes = tf.range(self.batch_size, dtype=tf.int64) * self.stream_length
        return lanes + tf.cast(step, tf.int64) % self.steps_per_epoch * self.sequence_length

    def reset_mask(self, step: int | tf.Tensor) -> tf.Tensor:
        """The rows whose state has to be zero before this step: bool `[B]`, all True at the start of a pass."""
        check_step(step)
        step = tf.cast(step, tf.int64)
        restarts = tf.random.stateless_uniform([self.batch_size], _stateless_seed(self.seed, step)) < self.reset_prob
        return restarts | tf.equal(step % self.steps_per_epoch, 0)

    def stateful_dataset(self, start_step: int = 0, stop_step: int | None = None) -> tf.data.Dataset:
        """As `dataset`, with the rows to reset beside the inputs: `((x, fresh), y)`."""

        def carried_at(step):
            x, y = self.batch(step)
            return (x, self.reset_mask(step)), y

        return step_dataset(carried_at, start_step, stop_step)


@dataclass(frozen=True, eq=False)
class RandomWindows(Windows):
    """Rows that start anywhere in the text, each start as likely as any other.

    Args:
        ids: The text, integers `[N]`.
        batch_size: B, rows in a batch.
        length: T, positions in a row.
        seed: A whole number; the starts depend on (seed, step) only.

    Raises:
        ValueError: As for `Windows`.

    >>> crops = RandomCrops(list(range(100)), batch_size=2, length=3, seed=1)
    >>> x, y = crops.at(7)
    >>> bool((y == x + 1).numpy().all())
    True
    """

    seed: int = 0

    def __post_init__(self):
        super().__post_init__()
        checks.integer("seed", self.seed, min_value=0)

    @property
    def steps_per_epoch(self) -> int:
        """P, the steps that read as many characters as the text has, at least 1 (crops overlap: a measure only)."""
        return max(1, self.num_ids // (self.batch_size * self.sequence_length))

    def starts(self, step: int | tf.Tensor) -> tf.Tensor:
        """Where the rows of this step start in the text: int64 `[B]`."""
        check_step(step)
        shape, seed = [self.batch_size], _stateless_seed(self.seed, step)
        return tf.random.stateless_uniform(shape, seed, maxval=self.num_ids - self.sequence_length, dtype=tf.int64)


@dataclass(frozen=True, eq=False)
class SequentialWindows(Windows):
    """Every full window of the text once, in order, without overlap: for evaluation.

    The last batch of a pass has the rows that are left, `[<= B, T]`, so that a sum over `dataset(0, steps_per_pass)`
    counts no character twice. Predictions beyond the last full window, fewer than T, are left out.

    >>> blocks = Blocks(list(range(11)), batch_size=2, length=3)
    >>> [x.numpy().tolist() for x, _ in blocks.dataset(0, blocks.steps_per_pass)]
    [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8]]]
    """

    @property
    def num_windows(self) -> int:
        """The full windows in the text."""
        return (self.num_ids - 1) // self.sequence_length

    @property
    def steps_per_epoch(self) -> int:
        """P, the batches that hold every full window."""
        return -(-self.num_windows // self.batch_size)

    def starts(self, step: int | tf.Tensor) -> tf.Tensor:
        """Where the rows of this step start in the text: int64 `[<= B]`."""
        check_step(step)
        start_step = tf.cast(step, tf.int64) % self.steps_per_epoch * self.batch_size
        if self.num_windows % self.batch_size == 0:  # then all batches have one shape, and whoever compiles may know it
            return (start_step + tf.range(self.batch_size, dtype=tf.int64)) * self.sequence_length
        return tf.range(start_step, tf.minimum(start_step + self.batch_size, self.num_windows)) * self.sequence_length


def _as_ids(ids: tf.Tensor | np.ndarray | list[int]) -> tf.Tensor:
    if isinstance(ids, tf.Tensor) and ids.dtype == tf.int32 and ids.shape.rank == 1:
        return ids
    array = np.asarray(ids)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"ids must be integers along one axis, not {array.dtype} of shape {array.shape}.")
    if array.size and not (array.min() >= -(2**31) and array.max() < 2**31):
        raise ValueError(f"ids must fit in int32, but they run from {array.min()} to {array.max()}.")
    copy, tensor = shared_int32_buffer(len(array))
    copy[:] = array
    return tensor


def _stateless_seed(seed: int, step: int | tf.Tensor) -> tf.Tensor:
    return tf.stack([tf.constant(seed, tf.int64), tf.cast(step, tf.int64)])
