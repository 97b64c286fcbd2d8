import numpy as np
import pytest

from keras_seq.generation import draw, keep_top_k

LOGITS = np.array([2.0, -1.0, 0.5, 1.0, 0.0, -3.0])
CRITICAL = {5: 25.7, 2: 18.4}  # chi-square by degrees of freedom: 1 in 10,000 lies above


def random():
    return np.random.default_rng(5)


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, None), (0.6, None), (1.7, 3)])
def test_ids_are_drawn_as_often_as_the_softmax_says(temperature, top_k):
    count = 20_000
    p = np.exp(LOGITS / temperature)
    if top_k is not None:
        p[np.argsort(LOGITS)[:-top_k]] = 0
    p /= p.sum()
    drawn = draw(np.tile(LOGITS, (count, 1)), temperature, top_k, random())
    observed, expected = np.bincount(drawn, minlength=len(p)), p * count
    assert (observed[expected == 0] == 0).all()
    possible = expected > 0
    statistic = ((observed - expected)[possible] ** 2 / expected[possible]).sum()
    assert statistic < CRITICAL[possible.sum() - 1]


def test_temperature_zero_and_one_candidate_take_the_likeliest():
    logits = np.random.default_rng(1).normal(size=(50, 7)).astype("float32")
    for temperature, top_k in ((0, None), (0, 3), (5.0, 1)):
        np.testing.assert_array_equal(draw(logits, temperature, top_k, random()), logits.argmax(-1))


def test_ties_leave_exactly_k_candidates_the_first_ones():
    logits = np.array([[1.0, 2.0, 1.0, 2.0, 1.0]])
    kept = {k: np.isfinite(keep_top_k(logits, k))[0].nonzero()[0].tolist() for k in (1, 2, 3, 5, 9)}
    assert kept == {1: [1], 2: [1, 3], 3: [0, 1, 3], 5: [0, 1, 2, 3, 4], 9: [0, 1, 2, 3, 4]}


@pytest.mark.parametrize("shift", [-50.0, 50.0])
def test_the_smallest_temperatures_overflow_to_the_likeliest(shift):
    logits = np.array([[-2.0, -1.0, -3.0]]) + shift
    for temperature in (1e-10, 1e-300, 5e-324):
        assert draw(logits, temperature, None, random()).tolist() == [1]
