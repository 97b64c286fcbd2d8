import dataclasses
import itertools
import json

import keras
import numpy as np
import pytest

from experiments import scaling as study
from keras_seq.models.counts import flops_per_token
from keras_seq.runs.texts import SplitCorpus
from keras_seq.training.run_config import read_config

SIZES = (12_480, 38_184, 96_880, 328_704, 786_096)
X = np.array(SIZES, "float64")
MIDDLE = np.exp(np.log(X).mean())


def a_row(model, budget, size, loss):
    tokens = 600_000 if budget == "tokens" else round(4e11 / 6 / size)
    return {
        **{"model": model, "budget": budget, "non_embedding_parameters": size, "parameters": size + 5000},
        **{"learning_rate": 0.03, "train_tokens": tokens, "train_flops": 6 * size * tokens},
        **{"train_seconds": 12.0, "val_sequence_length": 64, "val_loss": float(loss)},
    }


def some_rows():
    """Four groups on known curves."""
    x = np.array(SIZES) / 1e5
    losses = {
        ("lstm", "tokens"): 1.4 + 0.3 * x**-0.5,
        ("transformer", "tokens"): 1.8 * x**-0.07,
        ("lstm", "compute"): 1.6 + 0.02 * np.log(1e5 * x / 60e3) ** 2,
        ("transformer", "compute"): 1.9 - 0.02 * np.log(x),
    }
    return [a_row(*key, *point) for key, group in losses.items() for point in zip(SIZES, group, strict=True)]


def cells(table):
    return [dict(zip(table.header, row, strict=True)) for row in table.rows]


@pytest.mark.parametrize("asymptote", [0.0, 0.5, 1.4])
@pytest.mark.parametrize("exponent", [0.05, 0.3, 1.0])
def test_points_on_a_power_law_give_it_back(asymptote, exponent):
    losses = asymptote + 3.0 * (X / MIDDLE) ** -exponent
    law = study.fit_power_law(X, losses)
    assert (law.exponent, law.scale) == pytest.approx((exponent, 3.0), rel=1e-3)
    assert law.asymptote == pytest.approx(asymptote, abs=5e-3)
    np.testing.assert_allclose(law(X), losses, rtol=1e-6)


def test_without_an_asymptote_it_is_a_line_in_logarithms():
    losses = 2.0 * X**-0.07
    law = study.fit_power_law(X, losses, with_asymptote=False)
    slope, intercept = np.polyfit(np.log(X / MIDDLE), np.log(losses), 1)
    assert (law.exponent, law.scale, law.asymptote) == pytest.approx((-slope, np.exp(intercept), 0.0), rel=1e-6)


@pytest.mark.parametrize("with_asymptote", [True, False])
def test_no_other_curve_near_it_is_nearer_to_the_points(with_asymptote):
    rng = np.random.default_rng(0)
    losses = 1.3 + 0.4 * (X / MIDDLE) ** -0.3 + rng.normal(0, 0.02, 5)
    law = study.fit_power_law(X, losses, with_asymptote)
    minimum = np.square(law(X) - losses).sum()
    for _ in range(200):
        asymptote, scale, exponent = np.array([law.asymptote, law.scale, law.exponent]) * (1 + rng.normal(0, 0.02, 3))
        other = asymptote * with_asymptote + scale * (X / MIDDLE) ** -exponent
        assert np.square(other - losses).sum() >= minimum - 1e-12


def test_noise_moves_the_estimate_by_about_its_error():
    rng, errors, misses = np.random.default_rng(1), [], []
    for _ in range(20):
        losses = 1.3 + 0.3 * (X / MIDDLE) ** -0.5 + rng.normal(0, 0.004, 5)
        fit = study.Fit(study.fit_power_law, X, losses)
        misses.append(fit.curve.asymptote - 1.3)
        errors.append(fit.error("asymptote"))
    assert 0.3 < np.std(misses) / np.median(errors) < 3


def test_the_jackknife_of_a_mean_is_the_textbook_error_of_a_mean():
    values = np.random.default_rng(2).normal(size=12)

    def mean(sizes, losses):
        return study.Parabola(losses.mean(), 0.0, 0.0, 1.0)

    assert study.Fit(mean, np.abs(values), values).error("level") == pytest.approx(values.std(ddof=1) / np.sqrt(12))


def test_an_asymptote_is_identified_only_where_the_points_bend():
    bent = 1.4 + 0.3 * (X / MIDDLE) ** -0.6
    straight = 1.8 * (X / MIDDLE) ** -0.07
    noise = np.array([1, -1, 1, -1, 1]) * 0.01
    for losses, known in ((bent, True), (straight, False), (straight + noise, False), (bent + 10 * noise, False)):
        assert study.Fit(study.fit_power_law, X, losses).has_asymptote is known


def test_losses_that_stop_falling_at_once_have_no_exponent():
    losses = np.array([2.0, 1.5, 1.5, 1.5, 1.5])
    assert study.fit_power_law(X, losses).is_at_bound


def test_points_on_a_parabola_give_it_back():
    losses = 1.6 + 0.02 * np.log(X / 60e3) ** 2
    curve = study.fit_parabola(X, losses)
    assert (curve.best_size, curve.curvature, curve(60e3)) == pytest.approx((60e3, 0.02, 1.6))
    np.testing.assert_allclose(curve(X), losses)


def test_a_parabola_that_opens_downwards_or_is_a_line_has_no_lowest_point():
    for losses in (2 - 0.02 * np.log(X / 60e3) ** 2, 2 - 0.02 * np.log(X)):
        assert np.isnan(study.fit_parabola(X, losses).best_size)


@pytest.fixture(scope="module")
def runs():
    return study.plan(study.ScalingConfig(), 65)


def test_the_sizes_of_both_families_agree_and_lie_about_three_times_apart(runs):
    sizes = np.array([run.non_embedding_parameters for run in runs if run.budget == "tokens"])
    lstm, transformer = np.split(sizes, 2)
    np.testing.assert_allclose(lstm, transformer, rtol=0.02)
    ratios = lstm[1:] / lstm[:-1]
    assert ((ratios > 2.2) & (ratios < 3.6)).all()


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_a_weight_between_the_ends_counts_and_no_other(family, monkeypatch):
    monkeypatch.setitem(study.SIZES, family, study.SIZES[family][:1])
    for vocabulary_size in (65, 500):
        run, _ = study.plan(study.ScalingConfig(families=(family,)), vocabulary_size)
        model = run.model_config.build_model(vocabulary_size)
        *between, _, _ = [*model.blocks, model.embedding, model.head]
        assert run.non_embedding_parameters == sum(part.count_params() for part in between)


def test_each_run_gets_its_budget(runs):
    config = study.ScalingConfig()
    assert len(runs) == len({(run.family, run.non_embedding_parameters, run.budget) for run in runs}) == 20
    for run in runs:
        assert run.train.warmup_steps == min(50, run.num_steps // 10)
        tokens_per_step = config.batch_size * config.sequence_length
        tokens = run.num_steps * tokens_per_step
        if run.budget == "tokens":
            assert tokens == config.tokens
        else:
            assert abs(run.flops_per_token * tokens - config.compute) <= run.flops_per_token * tokens_per_step / 2 + 1
    model = runs[0].model_config.build_model(65)
    assert runs[0].flops_per_token == flops_per_token(model, 64, training=True)


def test_narrow_lstms_learn_at_higher_rates_and_transformers_at_one(runs):
    lstm, transformer = np.split(np.array([run.train.learning_rate for run in runs]), 2)
    assert [*lstm[::2]] == [*lstm[1::2]] == sorted(lstm[::2], reverse=True)  # by size, whatever the budget
    assert (lstm[0], lstm[-1]) == pytest.approx((0.02 * (408 / 48) ** 0.5, 0.02), rel=0.01)
    assert {*transformer} == {0.02}
    given = dataclasses.replace(study.ScalingConfig().train, learning_rate=0.007)
    config = study.ScalingConfig(train=given, families=("lstm",), smoke=True)
    assert {run.train.learning_rate for run in study.plan(config, 65)} == {0.007}


@pytest.fixture
def unplotted(monkeypatch):
    """The report of rows is made without its picture."""
    monkeypatch.setattr(study, "plot", lambda *_: None)


@pytest.mark.usefixtures("unplotted")
def test_the_table_of_fits_gives_the_curves_back(tmp_path):
    table = cells(study.scaling_report("my text", tmp_path, some_rows()).details[0])
    lstm, pure_lstm, transformer, pure_transformer, compute, downhill = table
    assert (lstm["model"], lstm["curve"], pure_lstm["curve"]) == ("lstm", "power law", "pure power law")
    assert lstm["L_inf"] == "1.400 ± 0.000"
    assert lstm["b"] == "0.500 ± 0.000"
    assert lstm["largest residual"] == "0.000"
    assert float(pure_lstm["largest residual"]) > 0.02
    assert (transformer["L_inf"], transformer["b"]) == ("not identified", "not identified")
    assert pure_transformer["b"] == "0.070 ± 0.000"
    assert compute["best N"] == "60,000, within a factor of 1.00"
    assert downhill["best N"] == "not identified"


@pytest.mark.usefixtures("unplotted")
def test_residuals_are_losses_less_the_curve(tmp_path):
    bent = some_rows()
    bent[2]["val_loss"] += 0.05
    groups = study.group_runs(bent)
    for group in itertools.chain(*groups.values()):
        np.testing.assert_allclose(group.fit.residuals + group.fit.curve(group.sizes), group.losses)
    for line, row in zip(cells(study.scaling_report("my text", tmp_path, bent).table)[:5], bent[:5], strict=True):
        assert line["val_loss@64"] == f"{row['val_loss']:.3f}"
        assert float(line["fit"]) + float(line["residual"]) == pytest.approx(float(line["val_loss@64"]), abs=0.0016)


def test_the_verdict_says_what_the_points_do_not_say():
    groups = study.group_runs(some_rows())
    tokens, compute, _ = study.verdict(groups).split(". ")
    assert "(lstm; L_inf 1.400 ± 0.000)" in tokens
    assert f"{100 * (1 - 2**-0.07):.1f} % (transformer; L_inf not identified)" in tokens
    assert "60,000, within a factor of 1.00 (lstm) and not identified (transformer)" in compute
    assert study.best_trained(groups["compute"][0]) == "N = 38,184 with 1,745,932 tokens, 46 per parameter (lstm)"


def test_a_group_that_opens_downwards_still_has_a_report(tmp_path):
    odd = some_rows()
    for row in odd:
        if row["budget"] == "compute":
            row["val_loss"] = 2 - 0.01 * np.log(row["non_embedding_parameters"] / 6e4) ** 2
    written = study.scaling_report("my text", tmp_path, odd)
    assert [line["best N"] for line in cells(written.details[0])[4:]] == ["not identified"] * 2


def test_the_plot_has_every_point_its_curve_and_its_residual(tmp_path, drawn):
    groups = study.group_runs(some_rows())
    tokens, compute, *residuals = drawn(study.plot, tmp_path, groups)
    for axes, budget in ((tokens, "tokens"), (compute, "compute")):
        points = {tuple(line.get_ydata()) for line in axes.get_lines() if len(line.get_xdata()) == 5}
        assert points == {tuple(group.losses) for group in groups[budget]}
        assert len([line for line in axes.get_lines() if len(line.get_xdata()) == 100]) == 2
    for axes in residuals:
        assert sum(len(line.get_xdata()) == 5 for line in axes.get_lines()) == 2


def test_every_size_is_trained_by_both_budgets(smoke):
    assert [row["budget"] for row in smoke.rows] == ["tokens", "compute"] * 4
    sizes = [row["non_embedding_parameters"] for row in smoke.rows]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 4
    for row in smoke.rows:
        config = read_config(smoke.folder / row["run"])
        assert config["train"]["learning_rate"] == row["learning_rate"]
        assert config["steps"] == row["train_tokens"] / 32
        lines = (smoke.folder / row["run"] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        assert json.loads(lines[-1])["step"] == config["steps"]
    assert len({row["train_tokens"] for row in smoke.rows if row["budget"] == "tokens"}) == 1


def test_the_loss_is_that_of_the_saved_model(smoke):
    row = smoke.rows[0]
    ids = SplitCorpus("pydoc", smoke.folder).validation
    model = keras.models.load_model(smoke.folder / row["run"] / "model.keras")
    windows = (len(ids) - 1) // 8
    x, y = (ids[start : start + windows * 8].reshape(windows, 8) for start in (0, 1))
    losses = np.asarray(keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True))
    assert row["val_loss"] == pytest.approx(losses.mean(), rel=1e-5)
