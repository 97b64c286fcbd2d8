import dataclasses
import math

import numpy as np
import pytest
from scipy import optimize, stats

from keras_seq.reports import plots
from keras_seq.reports.learning_rates import SweepRun, fit_rates, parabola, plot_rates, rates_table, runs_table

RATES = (0.005, 0.01, 0.02, 0.04, 0.08)


def runs(losses, model="lstm", rates=RATES):
    return [SweepRun(model, rate, loss) for rate, loss in zip(rates, losses, strict=True)]


def quadratic(best, curvature, rates=RATES, low=1.5):
    return [low + curvature * math.log2(rate / best) ** 2 for rate in rates]


def test_a_parabola_is_found_again():
    curve = fit_rates(runs(quadratic(0.013, 0.004)))["lstm"]
    assert curve.optimum == 0.013
    assert curve.doubling_cost[0] == pytest.approx(0.004, rel=1e-9)
    assert curve.loss_at(0.026) - curve.loss_at(0.013) == pytest.approx(0.004, rel=1e-9)
    assert curve.interval == pytest.approx((0.013, 0.013), rel=1e-3)
    assert curve.edge is None


def test_the_interval_is_that_of_a_profile_of_the_optimum():
    """The oracle moves the optimum and fits the rest: where the fit gets worse than F allows, the interval ends."""
    noise = np.random.default_rng(0).normal(0, 0.002, 5)
    losses = np.array(quadratic(0.017, 0.01)) + noise
    curve = fit_rates(runs(losses))["lstm"]
    x = np.log2(RATES)

    def residual(best):
        design = np.stack([np.ones(5), (x - best) ** 2], 1)
        return np.linalg.lstsq(design, losses, rcond=None)[1][0]

    optimum = optimize.minimize_scalar(residual, bounds=(x[0], x[-1]), method="bounded").x
    assert curve.optimum == float(f"{2**optimum:.2g}")
    freedom = 2
    limit = residual(optimum) * (1 + stats.f.ppf(0.95, 1, freedom) / freedom)
    ends = [optimize.brentq(lambda best: residual(best) - limit, *bracket) for bracket in ((-9, optimum), (optimum, 0))]
    assert curve.interval == pytest.approx([2**end for end in ends], rel=1e-3)


def test_the_true_optimum_is_in_the_interval_of_19_in_20():
    generator, inside, count = np.random.default_rng(1), 0, 400
    for _ in range(count):
        sweep = [
            run
            for n in range(4)
            for run in runs(np.array(quadratic(0.02, 0.01)) + generator.normal(0, 0.004, 5), model=f"m{n}")
        ]
        low, high = fit_rates(sweep)["m0"].interval or (0, math.inf)
        inside += low <= 0.02 <= high
    assert abs(inside / count - 0.95) < 3 * math.sqrt(0.95 * 0.05 / count)


def test_all_models_have_one_variance_over_all_degrees_of_freedom():
    generator = np.random.default_rng(2)
    sweep = [r for n in range(3) for r in runs(generator.normal(1.5, 0.01, 5), f"m{n}")]
    curves = fit_rates(sweep)
    squares = [curve.residuals @ curve.residuals for curve in curves.values()]
    (variance,) = {curve.variance for curve in curves.values()}
    assert variance == pytest.approx(sum(squares) / 6)
    assert {curve.degrees_of_freedom for curve in curves.values()} == {6}


def test_flat_and_concave_losses_have_no_interval_and_the_lowest_run_is_best():
    flat = fit_rates(runs([1.501, 1.499, 1.5, 1.501, 1.5]))["lstm"]
    assert flat.interval is None
    concave = fit_rates(runs([1.5, 1.55, 1.58, 1.56, 1.52]))["lstm"]
    assert concave.interval is None
    assert concave.optimum == 0.005
    assert concave.edge == "smallest"


def test_a_divergence_has_no_point_but_bounds_the_rates():
    losses = [*quadratic(0.04, 0.01)[:4], None]
    curve = fit_rates(runs(losses))["lstm"]
    assert curve.rates == RATES[:4]
    assert curve.tried == RATES
    assert curve.edge is None  # 0.08 was tried
    assert curve.optimum == 0.04
    with pytest.raises(ValueError, match="gru diverged at every learning rate"):
        fit_rates([*runs(losses), SweepRun("gru", 0.02, None)])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_rates_give_no_interval(count):
    curve = fit_rates(runs(quadratic(0.01, 0.01)[:count], rates=RATES[:count]))["lstm"]
    assert curve.interval is None
    assert curve.optimum == RATES[:count][-1 if count == 1 else 1]
    table = rates_table({"lstm": curve}, {"lstm": 0.02})
    assert len(table.rows) == 1


def test_a_cost_outside_of_the_parabola_is_that_of_the_run():
    losses = [*quadratic(0.013, 0.004)[:4], 1.9]
    curve = fit_rates(runs(losses))["lstm"]
    assert curve.optimum == 0.013
    assert curve.cost(0.08) == pytest.approx(0.4, abs=1e-6)
    assert curve.cost(0.026) == pytest.approx(0.004, rel=1e-6)
    with pytest.raises(ValueError, match=r"rate=0\.1;.*lstm"):
        curve.cost(0.1)


def test_far_losses_do_not_bend_the_parabola():
    rates = (0.0025, *RATES, 0.16, 0.32)
    losses = [*quadratic(0.013, 0.004, rates)[:6], 2.5, 3.0]
    assert fit_rates(runs(losses, rates=rates))["lstm"].optimum == 0.013


def test_tables_and_picture(tmp_path):
    sweep = [*runs(quadratic(0.013, 0.004)), *runs([1.6, 1.59, 1.58, 1.62, None], "gru")]
    curves = fit_rates(sweep)
    (first, second) = rates_table(curves, {"lstm": 0.02, "gru": 0.32}).rows
    assert first[:2] == ["lstm", "0.013"]
    assert f"{0.004 * math.log2(0.02 / 0.013) ** 2:+.4f}" in first
    assert second[0] == "gru"
    assert "-" in second  # its default was not tried
    table = runs_table(sweep)
    assert table.header == ["model", *(f"{rate:g}" for rate in RATES)]
    assert table.rows[1][-1] == "diverged"
    for many in (curves, {f"m{n}": dataclasses.replace(curves["lstm"], model=f"m{n}") for n in range(6)}):
        plot_rates(many, tmp_path / "rates.png", plots.colors([*many]))
        assert (tmp_path / "rates.png").read_bytes()[:4] == b"\x89PNG"
    rates, losses = parabola(curves["lstm"])
    assert min(losses) == pytest.approx(1.5, abs=1e-4)
    assert (rates[0], rates[-1]) == pytest.approx((0.005, 0.08))


def test_an_end_beyond_the_rates_tried_is_not_written_as_if_it_were_known():
    scatter = 0.003 * np.array([1, -1, 1, -1, 1])
    losses = {"edge": quadratic(0.0065, 0.01) + scatter, "inner": quadratic(0.02, 0.01) + scatter}
    curves = fit_rates([run for name, values in losses.items() for run in runs(values, name)])
    edge, inner = rates_table(curves, dict.fromkeys(curves, 0.02)).rows
    assert curves["edge"].interval[0] < 0.005
    assert edge[2] == f"<0.005 to {curves['edge'].interval[1]:.2g}"
    assert inner[2] == "{:.2g} to {:.2g}".format(*curves["inner"].interval)
