from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from keras_seq import random_draws
from keras_seq.random_draws import integers, permutation, uniform

WORD = 2**64 - 1


def philox(key, counter):
    """Philox4x64-10 of Salmon et al. (2011, section 3.3), in Python's integers: four words of 64 bits."""
    for _ in range(10):
        a, b = 0xD2E7470EE14C6C93 * counter[0], 0xCA5A826395121157 * counter[2]
        counter = [b >> 64 ^ counter[1] ^ key[0], b & WORD, a >> 64 ^ counter[3] ^ key[1], a & WORD]
        key = [key[0] + 0x9E3779B97F4A7C15 & WORD, key[1] + 0xBB67AE8584CAA73B & WORD]
    return counter


@pytest.mark.parametrize(("seed", "step"), [(0, 0), (3, 7), (2**63 - 1, 2**63 - 1)])
def test_draws_are_those_of_the_formula(seed, step):
    starts = 0x669628EF  # the CRC-32 of the name
    bits = [word for block in (1, 2, 3) for word in philox([seed, starts], [block, 0, 0, step])]
    drawn = uniform((5, 2), seed, step, "starts")
    assert drawn.ravel().tolist() == [(word >> 11) / 2**53 for word in bits[:10]]
    assert integers((7,), 1000, seed, step, "starts").tolist() == [(word >> 11) * 1000 >> 53 for word in bits[:7]]
    assert permutation(11, seed, step, "starts").tolist() == sorted(range(11), key=bits.__getitem__)


def test_threads_do_not_disturb_each_other():
    steps = range(2000)
    with ThreadPoolExecutor(4) as threads:
        drawn = [*threads.map(lambda step: uniform((3,), 1, step, "starts").tolist(), steps)]
    assert drawn == [uniform((3,), 1, step, "starts").tolist() for step in steps]


def test_seeds_steps_and_names_draw_others_and_independently():
    keys = [(seed, step, name) for seed in (0, 1, 2**40) for step in (0, 1, 2**32) for name in ("starts", "reset mask")]
    drawn = np.array([uniform((4000,), *key) for key in keys])
    correlations = np.corrcoef(drawn) - np.eye(len(keys))
    assert abs(correlations).max() < 5 / 4000**0.5
    assert abs(drawn.mean(axis=1) - 0.5).max() < 5 / (12 * 4000) ** 0.5


def test_the_largest_number_below_one_is_below_every_limit(monkeypatch):
    monkeypatch.setattr(random_draws, "_bits", lambda count, *_: np.full(count, WORD, np.uint64))
    for limit in (1, 2, 3, 2**31 - 1, 2**31):
        assert integers((1,), limit, 0, 0, "starts").tolist() == [limit - 1]


def test_an_order_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        permutation(5, 0, 0, "windows")[0] = 3


def test_a_large_permutation_has_every_number_once_and_each_epoch_another(monkeypatch):
    monkeypatch.setattr(random_draws, "MAX_STORED_SIZE", 1)
    for size in (2, 3, 5, 16, 17, 1000, 4097):
        order = random_draws.permuted(np.arange(size), size, 3, 0, "windows")
        assert order.dtype == np.int64
        assert np.array_equal(np.sort(order), np.arange(size))
        assert np.array_equal(random_draws.permuted(np.array([size - 1, 0]), size, 3, 0, "windows"), order[[-1, 0]])
    others = [random_draws.permuted(np.arange(4097), 4097, *key) for key in ((3, 1, "windows"), (4, 0, "windows"))]
    for other in (*others, np.arange(4097)):
        assert (order == other).sum() < 10  # 1 is expected
        assert abs(np.corrcoef(order, other)[0, 1]) < 0.06
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 0.06


def test_a_small_permutation_is_stored():
    order = random_draws.permutation(9, 3, 1, "windows")
    assert np.array_equal(random_draws.permuted([4, 0], 9, 3, 1, "windows"), order[[4, 0]])
