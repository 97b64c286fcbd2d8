"""Batches of windows: cut at the starts of their step, in any order, thread and block."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from keras_seq import data
from keras_seq.data import windows as window_batches
from keras_seq.random_draws import integers, uniform

KINDS = [data.StatefulWindows, data.RandomWindows, data.SequentialWindows]
sizes = {"num_ids": st.integers(2, 60), "batch_size": st.integers(1, 6), "sequence_length": st.integers(1, 9)}


def make(kind, num_ids, batch_size, sequence_length, **options):
    """Windows over 0, 1, 2, ..., in which an id tells its own place."""
    assume(num_ids > (batch_size if kind is data.StatefulWindows else 1) * sequence_length)
    return kind(np.arange(num_ids), batch_size, sequence_length, **options)


def values(dataset):
    return [[part.tolist() for part in tf.nest.flatten(batch)] for batch in dataset.as_numpy_iterator()]


@pytest.mark.parametrize("kind", KINDS)
@given(step=st.integers(0, 100), **sizes)
@settings(max_examples=40)
def test_y_is_the_text_after_x(kind, step, num_ids, batch_size, sequence_length):
    windows = make(kind, num_ids, batch_size, sequence_length)
    x, y = windows.batch(step)
    assert x.dtype == y.dtype == np.int32
    assert x.shape == y.shape
    assert 1 <= x.shape[0] <= batch_size
    assert x.shape[1] == sequence_length
    assert (y == x + 1).all()
    assert (np.diff(x, axis=1) == 1).all()
    assert x.min() >= 0
    assert y.max() < num_ids


@pytest.mark.parametrize("kind", KINDS)
def test_law_1_resuming_is_another_start_step(kind):
    windows = kind(np.arange(1000), batch_size=4, sequence_length=10)
    batches = [[part.tolist() for part in windows.batch(step)] for step in range(9)]
    assert values(windows.dataset(0, 9)) == batches
    assert values(windows.dataset(5, 9)) == batches[5:]
    assert values(windows.dataset(5).take(4)) == values(windows.dataset(5, 9))
    assert values(windows.dataset(3, 3)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_shape_of_a_dataset(kind):
    windows = kind(np.arange(100), batch_size=4, sequence_length=5)
    row = tf.TensorSpec([None if kind is data.SequentialWindows else 4, 5], tf.int32)
    assert windows.dataset(0, 3).element_spec == (row, row)
    assert windows.dataset(2, 40).cardinality() == 38
    assert windows.dataset(2).cardinality() == tf.data.INFINITE_CARDINALITY
    assert windows.dataset(0, 3).options().autotune.enabled is False  # its end would be waited for


def test_sequential_windows_without_a_shorter_last_batch_have_one_shape():
    windows = data.SequentialWindows(np.arange(12 * 5 + 1), batch_size=4, sequence_length=5)
    assert windows.dataset(0, 3).element_spec[0] == tf.TensorSpec([4, 5], tf.int32)
    assert [len(x) for x, _ in values(windows.dataset(0, 7))] == [4] * 7


def test_draws_depend_on_seed_and_step_alone():
    ids = np.arange(10_000)
    first, again, other = (data.RandomWindows(ids, 8, 10, seed=seed) for seed in (1, 1, 2))
    rows = [first.batch(step)[0][:, 0].tolist() for step in range(20)]
    assert rows == [again.batch(step)[0][:, 0].tolist() for step in range(20)]
    assert rows != [other.batch(step)[0][:, 0].tolist() for step in range(20)]
    assert len({tuple(row) for row in rows}) == 20


def test_every_start_is_as_likely():
    num_ids, sequence_length, draws = 17, 5, 6000
    windows = data.RandomWindows(np.arange(num_ids), batch_size=1000, sequence_length=sequence_length, seed=3)
    counts = Counter(start for step in range(draws // 1000) for start in windows.batch(step)[0][:, 0].tolist())
    assert sorted(counts) == list(range(num_ids - sequence_length))  # 0 ... N-T-1, both ends too
    expected = draws / (num_ids - sequence_length)
    assert all(abs(count - expected) < 5 * expected**0.5 for count in counts.values())


@given(**sizes)
@settings(max_examples=40)
def test_streams_continue_where_they_ended(num_ids, batch_size, sequence_length):
    windows = make(data.StatefulWindows, num_ids, batch_size, sequence_length)
    steps = [windows.batch(step) for step in range(windows.steps_per_epoch + 1)]
    for (_, y), (x, _) in pairwise(steps[:-1]):
        assert (x[:, 0] == y[:, -1]).all()
    assert (steps[-1][0] == steps[0][0]).all()  # the next pass
    predicted = np.concatenate([y.ravel() for _, y in steps[:-1]])
    assert len(set(predicted.tolist())) == len(predicted) == windows.steps_per_epoch * batch_size * sequence_length
    # All but what fills no window is predicted once a pass.
    assert len(predicted) > (num_ids - 1) - (batch_size - 1) - batch_size * sequence_length
    assert steps[0][0][:, 0].tolist() == [row * ((num_ids - 1) // batch_size) for row in range(batch_size)]


@given(step=st.integers(0, 200), reset_prob=st.sampled_from([0.0, 0.3, 1.0, 1]), **sizes)
@settings(max_examples=40)
def test_all_rows_are_reset_exactly_at_the_start_of_an_epoch(step, reset_prob, num_ids, batch_size, sequence_length):
    windows = make(data.StatefulWindows, num_ids, batch_size, sequence_length, reset_prob=reset_prob)
    reset_mask = windows.reset_mask(step)
    assert reset_mask.dtype == bool
    assert reset_mask.shape == (batch_size,)
    if step % windows.steps_per_epoch == 0 or reset_prob == 1:
        assert reset_mask.all()
    elif reset_prob == 0:
        assert not reset_mask.any()


def test_resets_come_as_often_as_asked_and_from_seed_and_step():
    rows = {
        seed: np.array(
            [
                data.StatefulWindows(np.arange(10_001), 100, 1, reset_prob=0.2, seed=seed).reset_mask(step)
                for step in range(1, 80)
            ]
        )
        for seed in (0, 1)
    }
    for drawn in rows.values():
        assert abs(drawn.mean() - 0.2) < 0.02
        assert len(np.unique(drawn, axis=0)) == len(drawn)  # other rows at other steps
    assert (rows[0] != rows[1]).any()


def test_stateful_dataset_is_dataset_with_reset_mask():
    windows = data.StatefulWindows(np.arange(200), batch_size=4, sequence_length=7, reset_prob=0.5, seed=1)
    stateful = list(windows.stateful_dataset(3, 12).as_numpy_iterator())
    assert [[x.tolist(), y.tolist()] for (x, _), y in stateful] == values(windows.dataset(3, 12))
    assert [reset_mask.tolist() for (_, reset_mask), _ in stateful] == [
        windows.reset_mask(step).tolist() for step in range(3, 12)
    ]
    assert values(windows.stateful_dataset(7, 12)) == values(windows.stateful_dataset(3, 12))[4:]


@given(epochs=st.integers(1, 2), **sizes)
@settings(max_examples=10)
def test_sequential_windows_cover_every_full_window_once_in_order(epochs, num_ids, batch_size, sequence_length):
    windows = make(data.SequentialWindows, num_ids, batch_size, sequence_length)
    batches = values(windows.dataset(0, epochs * windows.steps_per_epoch))
    rows = [row for x, _ in batches for row in x]
    once = [
        list(range(start, start + sequence_length)) for start in range(0, num_ids - sequence_length, sequence_length)
    ]
    assert rows == once * epochs
    assert windows.num_windows == len(once)
    assert all(len(x) == batch_size for x, _ in batches[: windows.steps_per_epoch - 1])


@pytest.mark.parametrize("kind", KINDS)
@given(**sizes)
@settings(max_examples=20)
def test_an_epoch_is_about_one_reading_of_the_text(kind, num_ids, batch_size, sequence_length):
    windows = make(kind, num_ids, batch_size, sequence_length)
    assert isinstance(windows.steps_per_epoch, int)
    assert windows.steps_per_epoch >= 1
    assert abs(windows.steps_per_epoch * batch_size * sequence_length - num_ids) <= 2 * batch_size * sequence_length


@pytest.mark.parametrize("kind", KINDS)
def test_the_shortest_text(kind):
    x, y = kind([7, 8, 9], batch_size=1, sequence_length=2).batch(0)
    assert (x.tolist(), y.tolist()) == ([[7, 8]], [[8, 9]])
    with pytest.raises(ValueError, match="3 ids"):
        kind([7, 8, 9], batch_size=1, sequence_length=3)


@pytest.mark.parametrize("kind", KINDS)
def test_windows_are_frozen_and_ids_that_fit_are_not_copied(kind, tmp_path):
    np.arange(40, dtype=np.uint16).tofile(tmp_path / "ids")
    ids = np.memmap(tmp_path / "ids", np.uint16, mode="r")
    windows = kind(ids, 2, 3)
    assert np.shares_memory(windows.ids, ids)
    assert windows.batch(1)[0].dtype == np.int32
    np.testing.assert_array_equal(windows.batch(1), kind(np.arange(40), 2, 3).batch(1))
    with pytest.raises(AttributeError):
        windows.sequence_length = 4
    assert len(repr(windows)) < 200


IDS = np.random.default_rng(0).integers(90, size=5000).astype("uint16")
B, T = 4, 10
STEPS = [5, 0, 31, 16, 15, 17, 5, 1000, 2**40, 2**63 - 1, 1]


def mixture():
    """Two sources, one of which is the other's second half."""
    return data.MixedWindows(
        (data.RandomWindows(IDS, B, T, seed=1), data.RandomWindows(IDS[2500:], B, T, seed=2)), (0.7, 0.3), seed=3
    )


def cut(ids, starts):
    """Windows by their definition."""
    return np.stack([ids[start : start + T + 1] for start in starts])


@pytest.mark.parametrize(
    "kind", [data.RandomWindows, data.SequentialWindows, data.StatefulWindows, data.ShuffledWindows]
)
def test_a_batch_is_cut_at_the_starts_of_its_step_in_any_order(kind):
    windows = kind(IDS, B, T)
    for step in STEPS:
        x, y = windows.batch(step)
        assert np.array_equal(np.column_stack([x, y[:, -1]]), cut(IDS, windows.starts(step)))
        assert np.array_equal(x[:, 1:], y[:, :-1])
        x[:] = -1  # a batch belongs to its caller


def test_starts_are_drawn_by_step():
    windows = data.RandomWindows(IDS, B, T, seed=7)
    for step in STEPS:
        assert np.array_equal(windows.starts(step), integers((B,), len(IDS) - T, 7, step, "starts"))


def test_a_row_of_a_mixture_is_that_row_of_its_source():
    mixed = mixture()
    for step in STEPS:
        is_second = uniform((B,), 3, step, "sources") >= 0.7
        assert np.array_equal(mixed._source_of_rows([step])[0], is_second)
        first, second = (source.batch(step)[0] for source in mixed.sources)
        assert np.array_equal(mixed.batch(step)[0], np.where(is_second[:, None], second, first))


def test_large_batches_are_read_one_by_one(monkeypatch):
    expected = [mixture().batch(step)[1] for step in STEPS]
    for tokens in (1, B * T, 3 * B * T):
        monkeypatch.setattr(window_batches, "MAX_TOKENS", tokens)
        mixed = mixture()
        assert all(np.array_equal(mixed.batch(step)[1], y) for step, y in zip(STEPS, expected, strict=True))


def test_threads_read_their_own_steps():
    mixed = mixture()
    steps = np.random.default_rng(1).integers(100, size=400).tolist()
    with ThreadPoolExecutor(4) as threads:
        batches = [*threads.map(lambda step: mixed.batch(step)[0], steps)]
    expected = {step: mixture().batch(step)[0] for step in set(steps)}
    assert all(np.array_equal(x, expected[step]) for x, step in zip(batches, steps, strict=True))
