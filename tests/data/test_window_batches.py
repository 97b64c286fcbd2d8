"""Windows that are read several steps at a time are those of each step by itself: in any order, thread and block."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from keras_seq.data import MixedWindows, RandomWindows, SequentialWindows, ShuffledWindows, StatefulWindows
from keras_seq.data import windows as window_batches
from keras_seq.random_draws import integers, uniform

IDS = np.random.default_rng(0).integers(90, size=5000).astype("uint16")
B, T = 4, 10
STEPS = [5, 0, 31, 16, 15, 17, 5, 1000, 2**40, 2**63 - 1, 1]


def mixture():
    """Two sources, one of which is the other's second half."""
    return MixedWindows((RandomWindows(IDS, B, T, seed=1), RandomWindows(IDS[2500:], B, T, seed=2)), (0.7, 0.3), seed=3)


def cut(ids, starts):
    """Windows by their definition."""
    return np.stack([ids[start : start + T + 1] for start in starts])


@pytest.mark.parametrize("kind", [RandomWindows, SequentialWindows, StatefulWindows, ShuffledWindows])
def test_a_batch_is_cut_at_the_starts_of_its_step_in_any_order(kind):
    windows = kind(IDS, B, T)
    for step in STEPS:
        x, y = windows.batch(step)
        assert np.array_equal(np.column_stack([x, y[:, -1]]), cut(IDS, windows.starts(step)))
        assert np.array_equal(x[:, 1:], y[:, :-1])
        x[:] = -1  # a batch belongs to its caller


def test_starts_are_drawn_by_step():
    windows = RandomWindows(IDS, B, T, seed=7)
    for step in STEPS:
        assert np.array_equal(windows.starts(step), integers((B,), len(IDS) - T, 7, step, "starts"))


def test_a_row_of_a_mixture_is_that_row_of_its_source():
    mixed = mixture()
    for step in STEPS:
        is_second = uniform((B,), 3, step, "sources") >= 0.7
        assert np.array_equal(mixed.source_of_rows(step), is_second)
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
    steps = np.random.default_rng(1).integers(200, size=1000).tolist()
    with ThreadPoolExecutor(4) as threads:
        batches = [*threads.map(lambda step: mixed.batch(step)[0], steps)]
    expected = {step: mixture().batch(step)[0] for step in set(steps)}
    assert all(np.array_equal(x, expected[step]) for x, step in zip(batches, steps, strict=True))
