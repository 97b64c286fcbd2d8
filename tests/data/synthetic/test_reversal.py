import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_seq.data.synthetic import Reversal

TASK = Reversal(alphabet_size=5, min_length=2, max_length=6, batch_size=300, seed=3)


def rows_of(task, step=0):
    """Whole rows, x and the last id of y."""
    x, y = task.batch(step)
    return np.concatenate([x, y[:, -1:]], axis=1)


def halves(task, step=0):
    """The letters of both halves of each row, read by the separator and the end."""
    for row in task.batch(step)[0].tolist():
        separator = row.index(task.separator)
        end = row.index(task.end) if task.end in row else len(row)
        yield row[1:separator], row[separator + 1 : end]


@given(
    alphabet_size=st.integers(2, 30),
    lengths=st.tuples(st.integers(1, 7), st.integers(0, 5)),
    batch_size=st.integers(1, 9),
    step=st.integers(0, 2**40),
)
@settings(max_examples=40)
def test_a_row_is_a_sequence_and_its_reverse_between_start_and_end(alphabet_size, lengths, batch_size, step):
    least, longest = lengths[0], sum(lengths)
    task = Reversal(alphabet_size, least, longest, batch_size, seed=1)
    x, y = task.batch(step)
    assert x.dtype == y.dtype == np.int32
    assert x.shape == y.shape == (batch_size, 2 * longest + 2) == (batch_size, task.sequence_length)
    assert {task.start, task.separator, task.end, *range(alphabet_size)} == {*range(task.vocabulary_size)}
    for ids, targets in zip(x.tolist(), y.tolist(), strict=True):
        assert ids[0] == task.start
        length = ids.index(task.separator) - 1
        assert least <= length <= longest
        letters = ids[1 : length + 1]
        assert all(0 <= letter < alphabet_size for letter in letters)
        assert targets[: 2 * length + 2] == [*letters, task.separator, *letters[::-1], task.end]
        assert ids[1 : 2 * length + 2] == targets[: 2 * length + 1]
        assert {*targets[2 * length + 2 :]} <= {-1}
        assert {*ids[2 * length + 2 :]} <= {task.end}


def test_every_length_and_every_letter_at_every_place_is_as_likely():
    first_halves = [half for step in range(10) for half, _ in halves(TASK, step)]
    assert len(first_halves) == 3000
    lengths = np.bincount([len(half) for half in first_halves], minlength=7)
    assert lengths[:2].sum() == 0
    np.testing.assert_allclose(lengths[2:], 600, atol=5 * (3000 * 0.2 * 0.8) ** 0.5)
    for length in range(2, 7):
        letters = np.array([half for half in first_halves if len(half) == length])
        for column in letters.T:  # whatever the length: letters do not tell it
            expected = len(letters) / 5
            np.testing.assert_allclose(np.bincount(column, minlength=5), expected, atol=5 * (0.8 * expected) ** 0.5)


def test_a_step_is_the_same_whenever_it_is_asked_and_unlike_any_other():
    np.testing.assert_array_equal(rows_of(TASK, 7), rows_of(dataclasses.replace(TASK), np.int64(7)))
    others = (rows_of(TASK, 8), rows_of(dataclasses.replace(TASK, seed=4), 7), rows_of(TASK, 7 + 2**32))
    for other in others:
        assert (rows_of(TASK, 7) != other).any(axis=1).mean() > 0.95


def test_rows_of_a_batch_are_drawn_one_by_one():
    assert len({tuple(row) for row in rows_of(Reversal(26, 8, 8, 200)).tolist()}) == 200


@pytest.mark.parametrize("length", [1, 4, 12])
def test_of_one_length_every_position_has_a_target(length):
    task = TASK.with_length(length)
    x, y = task.batch(0)
    assert x.shape == (300, 2 * length + 2)
    assert (y >= 0).all()
    assert {len(half) for half, _ in halves(task)} == {length}
    assert (task.seed, task.vocabulary_size) == (TASK.seed, TASK.vocabulary_size)


def test_tokens_per_step_are_the_targets_on_average():
    targets = [int((TASK.batch(step)[1] >= 0).sum()) for step in range(30)]
    assert np.mean(targets) == pytest.approx(TASK.tokens_per_step, rel=0.02)
    assert TASK.with_length(4).tokens_per_step == int((TASK.with_length(4).batch(0)[1] >= 0).sum())
