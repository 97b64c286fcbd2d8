"""The study of forecasts: what is scored, by whose numbers, and whether a leak is noticed."""

import dataclasses
import json

import keras
import numpy as np
import pytest
from keras import ops

from experiments import forecast as study
from keras_seq.evaluation import StudentTLoss, quantile_score
from keras_seq.runs.folders import dataclass_from_dict

CONFIG = study.ForecastConfig(values=2_000, sequence_length=48, horizon=6, forecasts=30, num_paths=4, batch_size=4)


def test_windows_shorter_than_a_season_would_let_the_naive_forecast_read_the_future():
    with pytest.raises(ValueError, match="sequence-length"):
        study.ForecastConfig(series=("volatility", "seasonal"), sequence_length=23)
    assert study.ForecastConfig(series=("volatility",), sequence_length=23).sequence_length == 23


@pytest.fixture(scope="module")
def series():
    return {name: study.Series(CONFIG, name) for name in CONFIG.series}


def test_examples_pair_each_position_with_the_values_after_it(series):
    x, y = series["seasonal"].examples(series["seasonal"].test)
    assert x.shape == (30, 48, 1)
    assert y.shape == (30, 48, 6)
    scaled = series["seasonal"].scaled(series["seasonal"].test)
    for t in (0, 20, 47):
        np.testing.assert_array_equal(x[:, t, 0], scaled[:, t])
        np.testing.assert_array_equal(y[:, t], scaled[:, t + 1 : t + 7])
    x, y = series["seasonal"].batches().batch(3)
    assert x.shape == (4, 48, 1)
    np.testing.assert_array_equal(x[:, 1:, 0], y[:, :-1, 0])


@pytest.mark.parametrize("seed", range(2))
def test_no_seed_trains_on_what_is_scored(seed):
    series = study.Series(dataclasses.replace(CONFIG, seed=seed), "switching")
    for scored in (series.test.reshape(-1), series.validation[0]):
        assert not np.isin(scored, series.train).any()


@pytest.mark.parametrize("name", CONFIG.series)
def test_no_forecast_is_better_than_the_source_s(name, series):
    """Not even one that knows the law and the past, and gives other quantiles."""
    one = series[name]
    best = quantile_score(one.truth, one.quantiles, study.LEVELS).mean()
    middle = one.quantiles[..., 9:10]
    for changed in (
        middle + 1.5 * (one.quantiles - middle),
        middle + 0.6 * (one.quantiles - middle),
        one.quantiles + 0.5,
    ):
        assert quantile_score(one.truth, changed, study.LEVELS).mean() > best
    assert study.coverage(one.truth, one.quantiles) == pytest.approx(0.9, abs=0.1)
    row = study.baseline(one, "source", one.quantiles)
    assert row["excess_score"] == 0
    assert row["score"] == pytest.approx(best)


def test_the_naive_forecast_repeats_the_last_season(series):
    one = series["seasonal"]
    quantiles = one.naive_quantiles()
    errors = one.train[24:] - one.train[:-24]
    for h in range(6):
        np.testing.assert_allclose(
            quantiles[:, h] - one.test[:, [48 + h - 24]], np.tile(np.quantile(errors, study.LEVELS), (30, 1))
        )
    volatile = series["volatility"]
    errors = volatile.train[3:] - volatile.train[:-3]
    np.testing.assert_allclose(
        volatile.naive_quantiles()[:, 2] - volatile.test[:, [47]], np.tile(np.quantile(errors, study.LEVELS), (30, 1))
    )
    far = study.Series(dataclasses.replace(CONFIG, horizon=30), "seasonal")  # beyond a season: that before it, again
    repeated = far.naive_quantiles()[:, 25] - np.quantile(far.train[48:] - far.train[:-48], study.LEVELS)
    np.testing.assert_allclose(repeated, np.tile(far.test[:, [48 + 25 - 48]], (1, 19)))


def test_the_source_s_own_density_has_no_excess_and_a_peek_is_called_a_leak(series, monkeypatch):
    """A model whose outputs are the true law of the next value, by the source; then one that has read it."""
    one = series["volatility"]
    task = study.ForecastTask(CONFIG, one, "gru", "student_t")
    states, _ = one.source.follow(one.test.reshape(-1))
    deviation = np.sqrt(states.reshape(30, -1)[:, :48]) / one.deviation
    outputs = np.zeros((30, 48, 6, 3), "float32")
    outputs[..., 0] = -one.mean / one.deviation
    outputs[..., 1] = np.log(np.expm1(deviation))[..., None]
    outputs[..., 2] = 1000  # degrees of freedom: all but normal
    monkeypatch.setattr(task, "free_running", lambda x: one.quantiles)
    monkeypatch.setattr(task, "forward", lambda x: outputs.reshape(30, 48, -1))
    row = {"run": "it", **task.test()}
    assert abs(row["excess_loss"]) < 0.002
    assert row["free_excess_score"] == 0
    assert not study.is_leak(row)
    outputs[..., 0] = one.scaled(one.test)[:, 1:49, None]
    row = {"run": "it", **task.test()}
    assert study.is_leak(row)
    (sentence,) = study.leaks([row])
    assert sentence.startswith("gru on volatility is ")
    assert study.verdict([row, study.baseline(one, "seasonal naive", one.naive_quantiles())]).startswith(sentence)


def test_figures_are_those_of_the_model_that_was_saved(smoke):
    for row in smoke.rows:
        if row["run"] and row["series"] == "switching":
            saved = json.loads((smoke.folder / row["run"] / "config.json").read_text(encoding="utf-8"))["experiment"]
            config = dataclass_from_dict(study.ForecastConfig, saved)
            series, loss = study.Series(config, "switching"), config.loss(row["head"])
            x, y = series.examples(series.test)
            outputs = ops.convert_to_numpy(keras.saving.load_model(smoke.folder / row["run"] / "model.keras")(x))
            given = (study.LEVELS,) if row["head"] == "student_t" else ()
            quantiles = ops.convert_to_numpy(loss.quantiles(outputs[:, -1], *given)) * series.deviation + series.mean
            score = quantile_score(series.truth, quantiles, study.LEVELS)
            assert row["score"] == pytest.approx(score.mean(), rel=1e-4)
            np.testing.assert_allclose(row["score_by_horizon"], score.mean(axis=0), rtol=1e-4)
            if row["head"] == "student_t":
                half = config.sequence_length // 2
                next_value = StudentTLoss()(y[:, half:, :1], outputs[:, half:, :3])
                assert row["loss"] == pytest.approx(float(next_value) + np.log(series.deviation), rel=1e-4)
