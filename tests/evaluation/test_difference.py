import numpy as np
import pytest

from keras_seq.evaluation.score import paired_difference

WINDOWS = 800


def losses(random, seeds, between_seeds, between_windows, shared, shift=0.0):
    """`[seeds, WINDOWS]`: what all models find hard, what a window is to this one, and how a seed happened to go."""
    of_seeds = random.normal(scale=between_seeds, size=(seeds, 1))
    return 1.5 + shift + shared + of_seeds + random.normal(scale=between_windows, size=(seeds, WINDOWS))


@pytest.fixture
def random():
    return np.random.default_rng(7)


def test_the_mean_is_the_mean_and_a_shift_moves_everything_by_itself(random):
    shared = random.normal(size=WINDOWS)
    first, second = losses(random, 3, 0.01, 0.1, shared), losses(random, 2, 0.01, 0.1, shared)
    difference, moved = paired_difference(first, second), paired_difference(first, second + 0.25)
    assert difference.mean == pytest.approx(second.mean() - first.mean())
    assert difference.low < difference.mean < difference.high
    for name in ("mean", "low", "high"):
        assert getattr(moved, name) == pytest.approx(getattr(difference, name) + 0.25)
    assert moved.significant


def test_the_same_losses_differ_by_nothing():
    same = np.random.default_rng(0).normal(size=(1, WINDOWS))
    difference = paired_difference(same, same)
    assert (difference.mean, difference.low, difference.high, difference.significant) == (0, 0, 0, False)


def test_the_windows_are_paired(random):
    """How hard a window is for both models is no doubt about their difference."""
    shared = random.normal(scale=10, size=WINDOWS)
    difference = paired_difference(losses(random, 1, 0, 0.1, shared), losses(random, 1, 0, 0.1, shared, shift=0.1))
    assert difference.high - difference.low < 0.05
    assert difference.significant


@pytest.mark.parametrize(("seeds", "between_seeds"), [(1, 0.0), (8, 0.0), (8, 0.05)])
def test_the_interval_is_that_of_the_normal_distribution_where_that_is_known(seeds, between_seeds):
    """Independent windows and seeds: the width is 2 x 1.96 standard errors, on average over many comparisons."""
    widths = []
    for n in range(30):
        random = np.random.default_rng(n)
        first, second = (losses(random, seeds, between_seeds, 0.3, 0.0) for _ in range(2))
        difference = paired_difference(first, second, seed=n)
        widths.append(difference.high - difference.low)
    variance = 2 * 0.3**2 / (seeds * WINDOWS) + 2 * between_seeds**2 / seeds
    assert np.mean(widths) == pytest.approx(2 * 1.96 * np.sqrt(variance), rel=0.12)


def test_windows_that_go_together_make_it_wider(random):
    independent = random.normal(size=WINDOWS)
    together = np.repeat(random.normal(size=WINDOWS // 8), 8)  # of the same scale, eight neighbors alike
    zero = np.zeros((1, WINDOWS))
    widths = [f.high - f.low for f in (paired_difference(zero, x[None]) for x in (independent, together))]
    assert widths[1] > 2 * widths[0]


def test_it_is_a_function_of_its_seed(random):
    first, second = (losses(random, 2, 0.1, 0.1, 0.0) for _ in range(2))
    assert paired_difference(first, second) == paired_difference(first, second)
    assert paired_difference(first, second, seed=1) != paired_difference(first, second)


@pytest.mark.parametrize("shapes", [((2, 5), (2, 6)), ((5,), (5,)), ((0, 5), (1, 5)), ((1, 0), (1, 0))])
def test_losses_that_are_not_of_the_same_windows_are_refused(shapes):
    with pytest.raises(ValueError, match="the same windows in both"):
        paired_difference(*map(np.zeros, shapes))


def test_a_text_of_one_window_has_no_doubt_that_can_be_seen():
    difference = paired_difference(np.zeros((1, 1)), np.ones((1, 1)))
    assert (difference.low, difference.mean, difference.high) == (1, 1, 1)
