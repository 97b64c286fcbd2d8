"""Cut ids into batches of windows: every batch is a function of the step number alone.

    x = ids[start : start + T],   y = ids[start + 1 : start + T + 1]        for each of B starts

    StatefulWindows    start[b] = b L + (step mod P) T,  L = (N-1) // B,  P = L // T     rows continue across batches
    RandomWindows      start[b] uniform over 0 ... N-T-1, drawn from (seed, step)
    SequentialWindows  start[b] = ((step mod P) B + b) T                                 each full window once, in order

P is `steps_per_epoch`. A run resumes with another `start_step` of `dataset(start_step, stop_step)`; no other state has
to be saved. Batches are NumPy arrays, the same on every backend. `shuffled_windows.py` has further kinds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from keras_seq import checks
from keras_seq.data.pipeline import StepBatches, step_dataset
from keras_seq.data.token_files import TokenFiles
from keras_seq.random_draws import integers_of_steps, uniform

MAX_STEPS, MAX_TOKENS = 64, 1 << 18  # of a block: 1 MiB


class WindowBatches(StepBatches):
    """Base class of batches of windows; a subclass has `batch_size`, `sequence_length` and `windows_of_steps`.

    Windows are read in blocks of up to 64 consecutive steps, since to plan a small batch by itself takes longer than to
    read it. Which windows a step has does not depend on the block.
    """

    def windows_of_steps(self, steps: Sequence[int]) -> np.ndarray:
        """Return the windows of some steps, int32 `[steps, B, T + 1]`."""
        raise NotImplementedError

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the batch of a step, from 0: `(x, y)`, int32 `[B, T]` each, the ids and the next ids."""
        number, index = divmod(checks.integer("step", step, min_value=0), self._steps_of_block)
        windows = self._block(number)[index].copy()  # [B, T + 1]
        return windows[:, :-1], windows[:, 1:]

    @cached_property
    def _steps_of_block(self):
        return max(1, min(MAX_STEPS, MAX_TOKENS // self.tokens_per_step)) if self.fixed_size else 1

    def _block(self, number):
        stored, block = self.__dict__.get("_stored_block", (None, None))
        if stored != number:
            first = number * self._steps_of_block
            block = self.windows_of_steps(range(first, first + self._steps_of_block))
            self.__dict__["_stored_block"] = number, block  # one assignment: threads see this pair or another
        return block


@dataclass(frozen=True, eq=False)
class Windows(WindowBatches):
    """Base class of batches of windows; a subclass defines `starts_of_steps` and `steps_per_epoch`.

    Args:
        ids: The text, integers `[N]`: an array, a memory map, `TokenFiles` (ids on disk, of which a batch reads its
            rows only), a tensor or a list. An array whose dtype fits in int32, such as uint16, is not copied: do not
            change it.
        batch_size: B, the rows of a batch.
        sequence_length: T, the positions of a row. N is at least T + 1.

    Raises:
        ValueError: The ids are not integers along one axis, B or T is not an integer of at least 1, the text is
            shorter than one window, or a batch has 2**31 ids.
    """

    ids: np.ndarray | TokenFiles = field(repr=False)
    batch_size: int
    sequence_length: int

    def __post_init__(self):
        """Check the fields."""
        object.__setattr__(self, "ids", _as_ids(self.ids))
        checks.integer("batch_size", self.batch_size, min_value=1)
        checks.integer("sequence_length", self.sequence_length, min_value=1)
        if hasattr(self, "seed"):
            checks.integer("seed", self.seed, min_value=0)
        if self.batch_size * (self.sequence_length + 1) >= checks.MAX_BATCH_IDS:
            sizes = f"batch_size={self.batch_size} and sequence_length={self.sequence_length}"
            raise ValueError(f"{sizes}; expected fewer than 2**31 ids in a batch.")
        if self.num_ids <= self.sequence_length:
            length = self.sequence_length
            raise ValueError(f"The text has {self.num_ids} ids; expected more than sequence_length={length}.")

    @property
    def num_ids(self) -> int:
        """N, the length of the text."""
        return len(self.ids)

    @property
    def steps_per_epoch(self) -> int:
        """P, the steps of an epoch."""
        raise NotImplementedError

    def starts(self, step: int) -> np.ndarray:
        """Return the positions in the text where the rows of a step start, int64 `[B]`."""
        return self.starts_of_steps((checks.integer("step", step, min_value=0),))[0]

    def starts_of_steps(self, steps: Sequence[int]) -> np.ndarray:
        """Return the `starts` of several steps, int64 `[steps, B]`."""
        raise NotImplementedError

    def windows_of_steps(self, steps: Sequence[int]) -> np.ndarray:
        """Return the windows of some steps, int32 `[steps, B, T + 1]`."""
        return self.rows(self.starts_of_steps(steps))

    def rows(self, starts: np.ndarray) -> np.ndarray:
        """Return the ids of windows by their `starts` of any shape, int32 `[..., T + 1]`."""
        if isinstance(self.ids, TokenFiles):
            return self.ids.rows(starts, self.sequence_length + 1)
        return self._all_windows[starts].astype("int32", copy=False)

    @cached_property
    def _all_windows(self):
        return np.lib.stride_tricks.sliding_window_view(self.ids, self.sequence_length + 1)  # [N-T, T+1], a view


def _as_ids(ids: np.ndarray | list[int] | TokenFiles) -> np.ndarray | TokenFiles:
    if isinstance(ids, TokenFiles):
        return ids
    array = np.asarray(ids)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"ids must be integers along one axis, not {array.dtype} of shape {array.shape}.")
    if np.can_cast(array.dtype, "int32"):
        return array
    if array.size and not (array.min() >= -(2**31) and array.max() < 2**31):
        raise ValueError(f"ids must fit in int32, but they run from {array.min()} to {array.max()}.")
    return array.astype("int32")


@dataclass(frozen=True, eq=False)
class StatefulWindows(Windows):
    """Windows of B contiguous streams of the text, for a state that is carried from batch to batch.

    Row b reads stream b: at the next step it continues where it ended. When the streams end, an epoch ends, and all
    rows start again at the start of their streams. Positions that fill no window are left out: fewer than T
    predictions at the end of each stream and fewer than B at the end of the text.

    Args:
        ids, batch_size, sequence_length: As for `Windows`; B is also the number of streams.
        reset_prob: Probability that a row's state is reset before a step, so that the model is also trained to start
            from the zero state. The draws depend on (seed, step) only.
        seed: Integer of at least 0.

    Raises:
        ValueError: As for `Windows`; or a stream is shorter than one window, or `reset_prob` is not a probability.

    >>> windows = StatefulWindows(list(range(13)), batch_size=2, sequence_length=3)
    >>> windows.batch(1)[0].tolist()
    [[3, 4, 5], [9, 10, 11]]
    """

    reset_prob: float = 0.0
    seed: int = 0

    def __post_init__(self):
        """Check the fields."""
        super().__post_init__()
        checks.number("reset_prob", self.reset_prob, min_value=0, max_value=1)
        if self.steps_per_epoch < 1:
            num_ids = self.tokens_per_step + 1
            raise ValueError(f"The text has {self.num_ids} ids; expected {num_ids} for batch_size={self.batch_size}.")

    @property
    def steps_per_epoch(self) -> int:
        """P, the windows of a stream."""
        return self.stream_length // self.sequence_length

    @property
    def stream_length(self) -> int:
        """L, the predictions in a stream, and the distance between the starts of two streams."""
        return (self.num_ids - 1) // self.batch_size

    def starts_of_steps(self, steps: Sequence[int]) -> np.ndarray:
        """Return the `starts` of several steps, int64 `[steps, B]`."""
        positions = np.asarray(steps, "int64") % self.steps_per_epoch * self.sequence_length
        return np.arange(self.batch_size) * self.stream_length + positions[:, None]

    def reset_mask(self, step: int) -> np.ndarray:
        """Return the rows whose state must be reset before a step: bool `[B]`, all True at the start of an epoch."""
        is_start = checks.integer("step", step, min_value=0) % self.steps_per_epoch == 0
        return is_start | (uniform((self.batch_size,), self.seed, step, "reset mask") < self.reset_prob)

    def stateful_dataset(self, start_step: int = 0, stop_step: int | None = None):
        """Create a dataset like `dataset`, with the rows to reset as a second input: `((x, reset_mask), y)`."""

        def stateful_batch(step):
            x, y = self.batch(step)
            return (x, self.reset_mask(step)), y

        return step_dataset(stateful_batch, start_step, stop_step)


@dataclass(frozen=True, eq=False)
class RandomWindows(Windows):
    """Windows that start anywhere in the text, with uniform probability.

    Arguments as for `Windows`, and the seed, an integer of at least 0: the starts depend on (seed, step) only.

    >>> windows = RandomWindows(list(range(100)), batch_size=2, sequence_length=3, seed=1)
    >>> x, y = windows.batch(7)
    >>> bool((y == x + 1).all())
    True
    """

    seed: int = 0

    @property
    def steps_per_epoch(self) -> int:
        """P, the steps that read as many ids as the text has, at least 1; windows overlap."""
        return max(1, self.num_ids // (self.batch_size * self.sequence_length))

    def starts_of_steps(self, steps: Sequence[int]) -> np.ndarray:
        """Return the `starts` of several steps, int64 `[steps, B]`."""
        limit = self.num_ids - self.sequence_length
        return integers_of_steps((self.batch_size,), limit, self.seed, steps, "starts")


@dataclass(frozen=True, eq=False)
class SequentialWindows(Windows):
    """Every full window of the text once, in order, without overlap: for evaluation.

    The last batch of an epoch has the remaining rows, `[<= B, T]`, so a sum over `dataset(0, steps_per_epoch)` counts
    no id twice. Predictions after the last full window, fewer than T, are left out. Arguments as for `Windows`.

    >>> windows = SequentialWindows(list(range(11)), batch_size=2, sequence_length=3)
    >>> [windows.batch(step)[0].tolist() for step in range(windows.steps_per_epoch)]
    [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8]]]
    """

    @property
    def fixed_size(self) -> bool:
        """Return whether the last batch of an epoch has B rows, too."""
        return self.num_windows % self.batch_size == 0

    @property
    def num_windows(self) -> int:
        """The number of full windows in the text."""
        return (self.num_ids - 1) // self.sequence_length

    @property
    def steps_per_epoch(self) -> int:
        """P, the batches that contain all full windows."""
        return -(-self.num_windows // self.batch_size)

    def starts_of_steps(self, steps: Sequence[int]) -> np.ndarray:
        """Return the `starts` of several steps, int64 `[steps, B]`; `[1, <= B]` for the last step of an epoch."""
        firsts = [step % self.steps_per_epoch * self.batch_size for step in steps]
        num_rows = min(self.batch_size, self.num_windows - max(firsts))
        return np.add.outer(firsts, np.arange(num_rows)) * self.sequence_length
