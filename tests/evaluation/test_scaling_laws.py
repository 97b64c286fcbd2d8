import numpy as np
import pytest

from keras_seq.evaluation.scaling_laws import Fit, Parabola, fit_parabola, fit_power_law

SIZES = np.array([12e3, 38e3, 97e3, 330e3, 790e3])
MIDDLE = np.exp(np.log(SIZES).mean())


@pytest.mark.parametrize("asymptote", [0.0, 0.5, 1.4])
@pytest.mark.parametrize("exponent", [0.05, 0.3, 1.0])
def test_points_on_a_power_law_give_it_back(asymptote, exponent):
    losses = asymptote + 3.0 * (SIZES / MIDDLE) ** -exponent
    law = fit_power_law(SIZES, losses)
    assert (law.exponent, law.scale) == pytest.approx((exponent, 3.0), rel=1e-3)
    assert law.asymptote == pytest.approx(asymptote, abs=5e-3)
    np.testing.assert_allclose(law(SIZES), losses, rtol=1e-6)


def test_without_an_asymptote_it_is_a_line_in_logarithms():
    losses = 2.0 * SIZES**-0.07
    law = fit_power_law(SIZES, losses, with_asymptote=False)
    slope, intercept = np.polyfit(np.log(SIZES / MIDDLE), np.log(losses), 1)
    assert (law.exponent, law.scale, law.asymptote) == pytest.approx((-slope, np.exp(intercept), 0.0), rel=1e-6)


@pytest.mark.parametrize("with_asymptote", [True, False])
def test_no_other_curve_near_it_is_nearer_to_the_points(with_asymptote):
    rng = np.random.default_rng(0)
    losses = 1.3 + 0.4 * (SIZES / MIDDLE) ** -0.3 + rng.normal(0, 0.02, 5)
    law = fit_power_law(SIZES, losses, with_asymptote)
    minimum = np.square(law(SIZES) - losses).sum()
    for _ in range(200):
        asymptote, scale, exponent = np.array([law.asymptote, law.scale, law.exponent]) * (1 + rng.normal(0, 0.02, 3))
        other = asymptote * with_asymptote + scale * (SIZES / MIDDLE) ** -exponent
        assert np.square(other - losses).sum() >= minimum - 1e-12


def test_noise_moves_the_estimate_by_about_its_error():
    rng, errors, misses = np.random.default_rng(1), [], []
    for _ in range(20):
        losses = 1.3 + 0.3 * (SIZES / MIDDLE) ** -0.5 + rng.normal(0, 0.004, 5)
        fit = Fit(fit_power_law, SIZES, losses)
        misses.append(fit.curve.asymptote - 1.3)
        errors.append(fit.error("asymptote"))
    assert 0.3 < np.std(misses) / np.median(errors) < 3


def test_the_jackknife_of_a_mean_is_the_textbook_error_of_a_mean():
    values = np.random.default_rng(2).normal(size=12)

    def mean(sizes, losses):
        return Parabola(losses.mean(), 0.0, 0.0, 1.0)

    assert Fit(mean, np.abs(values), values).error("level") == pytest.approx(values.std(ddof=1) / np.sqrt(12))


def test_an_asymptote_is_identified_only_where_the_points_bend():
    bent = 1.4 + 0.3 * (SIZES / MIDDLE) ** -0.6
    straight = 1.8 * (SIZES / MIDDLE) ** -0.07
    noise = np.array([1, -1, 1, -1, 1]) * 0.01
    for losses, known in ((bent, True), (straight, False), (straight + noise, False), (bent + 10 * noise, False)):
        assert Fit(fit_power_law, SIZES, losses).has_asymptote is known


def test_losses_that_stop_falling_at_once_have_no_exponent():
    losses = np.array([2.0, 1.5, 1.5, 1.5, 1.5])
    assert fit_power_law(SIZES, losses).is_at_bound


def test_points_on_a_parabola_give_it_back():
    losses = 1.6 + 0.02 * np.log(SIZES / 60e3) ** 2
    curve = fit_parabola(SIZES, losses)
    assert (curve.best_size, curve.curvature, curve(60e3)) == pytest.approx((60e3, 0.02, 1.6))
    np.testing.assert_allclose(curve(SIZES), losses)


def test_a_parabola_that_opens_downwards_or_is_a_line_has_no_lowest_point():
    for losses in (2 - 0.02 * np.log(SIZES / 60e3) ** 2, 2 - 0.02 * np.log(SIZES)):
        assert np.isnan(fit_parabola(SIZES, losses).best_size)


@pytest.mark.parametrize("fit", [fit_power_law, fit_parabola])
def test_points_that_are_no_numbers_are_refused(fit):
    with pytest.raises(ValueError, match="losses has a number that is not finite"):
        fit(SIZES, [1.0, 2.0, np.nan, 1.0, 1.0])
    with pytest.raises(ValueError, match=r"sizes has 0.0; expected finite numbers above 0"):
        fit([0, *SIZES[1:]], np.ones(5))
