"""Sources of series: what they draw has the density that they say, one step and many steps ahead."""

import itertools

import numpy as np
import pytest

from keras_seq.data.synthetic import SERIES

each = pytest.mark.parametrize("name", SERIES)


@each
def test_what_is_drawn_has_the_density_that_is_said(name):
    """The next value's distribution function, by quadrature of the density, is uniform at the values drawn."""
    source, grid = SERIES[name], np.linspace(-12, 12, 4001)
    values = source.sample(600, seed=3)
    states, log_densities = source.follow(values)
    before = np.concatenate([source.start(1, np.random.default_rng(0)), states[:-1]])
    ranks = []
    for state, value, log_density in zip(before, values, log_densities, strict=True):
        density = np.exp(source.log_density(np.tile(state, (len(grid), 1)), grid))
        assert np.trapezoid(density, grid) == pytest.approx(1, abs=1e-3)
        assert np.log(np.interp(value, grid, density)) == pytest.approx(log_density, abs=0.02)
        ranks.append(np.trapezoid(np.where(grid <= value, density, 0), grid))
    shares = np.histogram(ranks, bins=5, range=(0, 1))[0] / len(ranks)
    np.testing.assert_allclose(shares, 0.2, atol=0.06)  # 3.7 standard errors
    correlation = np.corrcoef(ranks[1:], ranks[:-1])[0, 1]  # and independent of those before
    assert abs(correlation) < 4 / np.sqrt(len(ranks))


@each
def test_paths_from_a_state_are_what_the_source_goes_on_with(name):
    """Two draws of the same law: many series from one state, and paths; their means and spreads at each step agree."""
    source = SERIES[name]
    states, _ = source.follow(source.sample(50, seed=1))
    paths = source.paths(states[-2:], horizon=6, num_paths=4000, seed=0)
    assert paths.shape == (2, 4000, 6)
    random, state, drawn = np.random.default_rng(9), np.tile(states[-1], (4000, 1)), []
    for _ in range(6):
        drawn.append(source.draw(state, random))
        state = source.update(state, drawn[-1])
    drawn = np.stack(drawn, axis=1)
    spread = drawn.std(axis=0)
    assert (abs(paths[1].mean(axis=0) - drawn.mean(axis=0)) < 5 * spread / np.sqrt(2000)).all()
    np.testing.assert_allclose(paths[1].std(axis=0), spread, rtol=0.12)


@each
def test_a_sample_depends_on_its_seed_alone_and_a_longer_one_goes_on(name):
    source = SERIES[name]
    np.testing.assert_array_equal(source.sample(20, seed=4)[:10], source.sample(10, seed=4))
    assert (source.sample(10, seed=4) != source.sample(10, seed=5)).all()


def test_the_filter_of_the_levels_is_bayes_by_enumeration():
    """p(k_{t+1} | y_1 ... y_t) over all 3^4 ways that the levels may have gone."""
    source = SERIES["switching"]
    values = source.sample(4, seed=2)
    start, transitions, levels = source.start(1, None)[0], source.transitions, np.array(source.levels)
    np.testing.assert_allclose(start @ transitions, start)  # stationary
    np.testing.assert_allclose(transitions.sum(axis=1), 1)
    total = np.zeros(3)
    for way in np.ndindex(3, 3, 3, 3):
        p = start[way[0]] * np.prod([transitions[a, b] for a, b in itertools.pairwise(way)])
        p *= np.prod(np.exp(-0.5 * ((values - levels[list(way)]) / source.deviation) ** 2))
        total += p * transitions[way[-1]]
    states, _ = source.follow(values)
    np.testing.assert_allclose(states[-1], total / total.sum())
