"""Generate tasks of memory: what came before has to be found again, counted, composed or kept for long.

    associative_recall   k_1 v_1 ... k_N v_N . . . | keys, in any order         the value of each key
    induction            a_1 ... a_L | N of the letters                        the letter that followed each
    selective_copy       L places, N of them with a letter | N times ?          the letters in order
    parity               L bits                                                the parity of all bits so far
    permutations         L swaps of two of five things              their order after all swaps so far
    needle               letters ! v, L - 1 letters | ?                         v, which stands L positions before

The length L and the number N of items are drawn for each row; right of the bar every position has a target, and short
rows are padded at their end. `solve` finds the targets from the ids alone, so each task can be solved.

Arora et al. (2023, arXiv:2312.04927); Olsson et al. (2022, "In-context Learning and Induction Heads"); Gu and Dao
(2023, arXiv:2312.00752); Hahn (2020, "Theoretical Limitations of Self-Attention"); Merrill et al. (arXiv:2404.08819).
"""

import dataclasses
import itertools
from typing import ClassVar

import numpy as np

from keras_seq import checks
from keras_seq.data.pipeline import StepBatches
from keras_seq.random_draws import integers, uniform


@dataclasses.dataclass(frozen=True)
class RecallTask(StepBatches):
    """Base class of the tasks: batches as a function of the step.

    Args:
        alphabet_size: A, the number of letters; of keys and of values in associative recall.
        lengths: Minimum and maximum of L.
        items: Minimum and maximum of N; (1, 1) where a task has no such number.
        batch_size: B, the rows of a batch.
        seed: Integer of at least 0; the rows depend on (seed, step) only.

    Raises:
        ValueError: A number is not an integer or out of its range.

    >>> task = AssociativeRecall(alphabet_size=8, lengths=(8, 8), items=(3, 3), batch_size=2)
    >>> x, y = task.batch(step=0)
    >>> x.shape, bool((task.solve(x) == y).all())
    ((2, 11), True)
    """

    alphabet_size: int
    lengths: tuple[int, int]
    items: tuple[int, int]
    batch_size: int
    seed: int = 0

    min_length: ClassVar[int] = 1
    positions_per_item: ClassVar[int] = 0  # of the L positions
    has_items: ClassVar[bool] = True
    num_special_ids: ClassVar[int] = 1  # the last of them is the padding
    num_ids: ClassVar[int | None] = None  # the only alphabet_size, of tasks that have one

    def __post_init__(self):
        """Check the fields."""
        checks.integer("alphabet_size", self.alphabet_size, min_value=2)
        if self.num_ids not in (None, self.alphabet_size):
            expected = f"expected {self.num_ids} in {type(self).__name__}"
            raise ValueError(f"alphabet_size={self.alphabet_size}; {expected}.")
        checks.integer("batch_size", self.batch_size, min_value=1)
        checks.non_negative_integer("seed", self.seed)
        for name, minimum in (("lengths", self.min_length), ("items", 1)):
            values = getattr(self, name)
            if not isinstance(values, tuple) or len(values) != 2:
                raise ValueError(f"{name}={values!r}; expected a tuple of a minimum and a maximum.")
            checks.integer(name, values[0], min_value=minimum)
            checks.integer(name, values[1], min_value=values[0])
        if not self.has_items and self.items != (1, 1):
            raise ValueError(f"items={self.items}; expected (1, 1) in {type(self).__name__}.")
        if (shortest := self.shortest(self.items[1])) > self.lengths[1]:
            raise ValueError(f"lengths={self.lengths}; expected at least {shortest}, for {self.items[1]} items.")
        if (needed := self.num_letters(self.lengths[1], self.items[1])) > self.alphabet_size:
            raise ValueError(f"alphabet_size={self.alphabet_size}; expected at least {needed}, all different in a row.")

    @classmethod
    def shortest(cls, items: int) -> int:
        """Return the minimum length with this number of items."""
        return max(cls.min_length, cls.positions_per_item * items)

    @classmethod
    def num_letters(cls, length: int, items: int) -> int:
        """Return how many letters of a row have to differ."""
        return 1

    @property
    def vocabulary_size(self) -> int:
        """V, the number of ids."""
        return self.alphabet_size + self.num_special_ids

    @property
    def padding(self) -> int:
        """The id of a place without a letter, and of the positions after a row."""
        return self.vocabulary_size - 1

    @property
    def sequence_length(self) -> int:
        """T, the positions of a row."""
        return self.lengths[1] + (self.items[1] if self.has_items else 0)

    def with_sizes(self, length: int, items: int = 1) -> "RecallTask":
        """Return the task with rows of one length and one number of items."""
        return dataclasses.replace(self, lengths=(length, length), items=(items, items))

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the batch of a step, from 0: `(x, y)`, int32 `[B, T]` each, the ids and their targets or -1."""
        checks.integer("step", step, min_value=0)
        (least, most), column = self.items, (self.batch_size, 1)
        items = least + integers(column, most - least + 1, self.seed, step, "items")
        shortest = np.maximum(self.lengths[0], [[self.shortest(n)] for n in items[:, 0]])
        draws = uniform(column, self.seed, step, "lengths")
        lengths = shortest + (draws * (self.lengths[1] - shortest + 1)).astype("int64")
        x, y = self._rows(step, lengths, items, np.arange(self.sequence_length)[None])
        return x.astype("int32"), y.astype("int32")

    def chance(self, length: int, items: int = 1) -> float:
        """Return the accuracy of a guess that knows all but what has to be recalled: here, of any letter."""
        return 1 / self.alphabet_size

    def solve(self, x: np.ndarray) -> np.ndarray:
        """Return the targets of ids `[B, T]`, int32 `[B, T]`, found from the ids alone."""
        y = np.full(x.shape, -1, "int32")
        for row, targets in zip(x.tolist(), y, strict=True):
            for position, answer in self._answers(row).items():
                targets[position] = answer
        return y

    def _letters(self, step, count, name="letters"):
        return integers((self.batch_size, count), self.alphabet_size, self.seed, step, name)

    def _orders(self, step, count, name, limits=None):
        """Draw an order of 0 ... count - 1 for each row; those below the limit of the row come first."""
        draws = uniform((self.batch_size, count), self.seed, step, name)
        draws = draws if limits is None else np.where(np.arange(count) < limits, draws, np.inf)
        return draws.argsort(axis=1, kind="stable")


class AssociativeRecall(RecallTask):
    """Recall the value of each key: multi-query associative recall; arguments as for `RecallTask`."""

    positions_per_item = 2

    @classmethod
    def num_letters(cls, length, items):
        """Return how many keys of a row have to differ: all."""
        return items

    @property
    def vocabulary_size(self) -> int:
        """V, the number of ids: keys, values, padding."""
        return 2 * self.alphabet_size + 1

    def chance(self, length: int, items: int) -> float:
        """Return the accuracy of guessing any of the values of the row."""
        return 1 / items + (1 - 1 / items) / self.alphabet_size

    def _rows(self, step, lengths, items, t):
        count = self.items[1]
        keys = self._orders(step, self.alphabet_size, "keys")[:, :count]
        values = self.alphabet_size + self._letters(step, count, "values")
        order = self._orders(step, count, "queries", items)
        x = np.where(t % 2 == 0, _take(keys, t // 2), _take(values, t // 2))
        queried, is_query = _take(order, t - lengths), (lengths <= t) & (t < lengths + items)
        x = np.where(t < 2 * items, x, np.where(is_query, _take(keys, queried), self.padding))
        return x, np.where(is_query, _take(values, queried), -1)

    def _answers(self, row):
        values, answers = {}, {}
        for t, (id, following) in enumerate(zip(row, [*row[1:], self.padding], strict=True)):
            if id in values:
                answers[t] = values[id]
            elif id < self.alphabet_size:
                values[id] = following
        return answers


class Induction(RecallTask):
    """Recall what followed a letter before, among letters that are all different; arguments as for `RecallTask`."""

    min_length, positions_per_item = 2, 2

    @classmethod
    def num_letters(cls, length, items):
        """Return how many letters of a row have to differ: all before the bar."""
        return length

    def chance(self, length: int, items: int) -> float:
        """Return the accuracy of guessing any of the letters that follow another."""
        return 1 / (length - 1)

    def _rows(self, step, lengths, items, t):
        count = self.lengths[1]
        letters = self._orders(step, self.alphabet_size, "letters")[:, :count]
        queried = _take(self._orders(step, count, "queries", lengths - 1), t - lengths)  # not the last letter
        is_query = (lengths <= t) & (t < lengths + items)
        x = np.where(t < lengths, _take(letters, t), np.where(is_query, _take(letters, queried), self.padding))
        return x, np.where(is_query, _take(letters, queried + 1), -1)

    def _answers(self, row):
        first = {}
        for t, id in enumerate(row):
            first.setdefault(id, t)
        return {t: row[first[id] + 1] for t, id in enumerate(row) if id != self.padding and first[id] < t}


class SelectiveCopy(RecallTask):
    """Copy the letters of a row in order, leaving out what is between them; arguments as for `RecallTask`."""

    positions_per_item, num_special_ids = 1, 2

    def _rows(self, step, lengths, items, t):
        count = self.lengths[1]
        letters = self._letters(step, count)
        chosen = self._orders(step, count, "places", lengths)[:, : self.items[1]]
        places = np.sort(np.where(np.arange(self.items[1]) < items, chosen, count), axis=1)  # count: none
        is_place = (t[..., None] == places[:, None]).any(axis=-1) & (t < lengths)
        is_query = (lengths <= t) & (t < lengths + items)
        x = np.where(is_place, _take(letters, t), np.where(is_query, self.padding - 1, self.padding))
        return x, np.where(is_query, _take(letters, _take(places, t - lengths)), -1)

    def _answers(self, row):
        letters = [id for id in row if id < self.alphabet_size]
        queries = [t for t, id in enumerate(row) if id == self.padding - 1]
        return dict(zip(queries, letters, strict=True))


class Parity(RecallTask):
    """Tell at each position whether the number of ones so far is odd; as `RecallTask`, with `alphabet_size` 2."""

    has_items, num_ids = False, 2

    def _rows(self, step, lengths, items, t):
        bits = self._letters(step, self.lengths[1])
        is_bit = t < lengths
        return np.where(is_bit, bits, self.padding), np.where(is_bit, bits.cumsum(axis=1) % 2, -1)

    def _answers(self, row):
        bits = [id for id in row if id < 2]
        return {t: sum(bits[: t + 1]) % 2 for t in range(len(bits))}


def _num_swaps(order):
    """Return how many swaps of two things make an order of five: 5 minus the number of its cycles."""
    cycles = {frozenset(itertools.accumulate(range(4), lambda place, _: order[place], initial=n)) for n in range(5)}
    return 5 - len(cycles)


# [120, 5]: the order as it was, the ten after one swap, those after more
ORDERS = np.array(sorted(itertools.permutations(range(5)), key=_num_swaps))


class Permutations(RecallTask):
    """Tell at each position in which order five things are; as `RecallTask`, with `alphabet_size` 11.

    It is the word problem of the symmetric group S_5, whose ids are the permutations that generate it: id 0 leaves the
    order as it is, and ids 1 to 10 swap two places. Targets are all 120 orders.
    """

    has_items, num_ids = False, 11

    @property
    def vocabulary_size(self) -> int:
        """V, the number of ids: all orders, of which the first are those after one swap, and padding."""
        return len(ORDERS) + 1

    def chance(self, length: int, items: int = 1) -> float:
        """Return the accuracy of guessing any order."""
        return 1 / len(ORDERS)

    def _rows(self, step, lengths, items, t):
        ids = self._letters(step, self.lengths[1])
        orders = [ORDERS[ids[:, 0]]]  # [B, 5]
        for column in ids.T[1:]:
            orders.append(_take(orders[-1], ORDERS[column]))
        digits = 5 ** np.arange(5)
        numbers = ORDERS @ digits
        rank = numbers.argsort()
        y = rank[np.searchsorted(numbers[rank], np.stack(orders, axis=1) @ digits)]
        is_id = t < lengths
        return np.where(is_id, ids, self.padding), np.where(is_id, y, -1)

    def _answers(self, row):
        order, answers = (0, 1, 2, 3, 4), {}
        numbers = {tuple(permutation): n for n, permutation in enumerate(ORDERS.tolist())}
        for t, id in enumerate(row):
            if id != self.padding:
                order = tuple(order[place] for place in ORDERS[id])
                answers[t] = numbers[order]
        return answers


class Needle(RecallTask):
    """Find the letter behind a marker, L positions before the end; arguments as for `RecallTask`.

    As many letters as fit are before the marker, at random.
    """

    has_items, num_special_ids = False, 3

    @property
    def sequence_length(self) -> int:
        """T, the positions of a row: marker and query too."""
        return self.lengths[1] + 2

    def _rows(self, step, lengths, items, t):
        letters = self._letters(step, self.sequence_length)
        room = self.lengths[1] - lengths + 1
        marker = (uniform(lengths.shape, self.seed, step, "markers") * room).astype("int64")
        query = marker + 1 + lengths
        x = np.where(t == marker, self.padding - 2, np.where(t == query, self.padding - 1, letters))
        return np.where(t > query, self.padding, x), np.where(t == query, _take(letters, marker + 1), -1)

    def _answers(self, row):
        return {row.index(self.padding - 1): row[row.index(self.padding - 2) + 1]}


def _take(values, indices):
    """Return `values[row, indices]`; indices out of range give any value."""
    return np.take_along_axis(values, indices.clip(0, values.shape[1] - 1), axis=1)


RECALL_TASKS = {
    "associative_recall": AssociativeRecall,
    "induction": Induction,
    "selective_copy": SelectiveCopy,
    "parity": Parity,
    "permutations": Permutations,
    "needle": Needle,
}
"""Tasks by name."""
