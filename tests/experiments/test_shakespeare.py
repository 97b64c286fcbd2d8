import dataclasses
import json

import keras
import numpy as np
import pytest

from experiments import shakespeare as study
from keras_seq.commands.options import replaced
from keras_seq.evaluation import Evaluator
from keras_seq.models import LSTMConfig
from keras_seq.training import TrainConfig

SMALL = LSTMConfig(embedding_dim=3, units=5)


@pytest.fixture(scope="module")
def ids():
    return np.random.default_rng(0).integers(7, size=300)


def a_row(model, seed, val_loss, random_loss=1.5):
    return {
        **{"model": model, "seed": seed, "run": f"{model}-seed{seed}", "parameters": 1_920_000, "train_tokens": 6.8e6},
        **{"train_seconds": 400, "train_loss": 1.3, "members_val_loss": val_loss + 0.03, "val_loss": val_loss},
        **{"val_loss_streaming": 1.4, "val_random_windows_loss": random_loss},
        "val_random_windows_standard_error": 0.002,
    }


def test_the_loss_of_random_windows_is_that_of_all_windows_on_average(ids):
    model, length = SMALL.build_model(7), 9
    for weight in model.trainable_variables:
        weight.assign(np.random.default_rng(1).normal(size=weight.shape))
    starts = np.arange(len(ids) - length)
    every = Evaluator(model).independent_token_losses(
        *(ids[starts[:, None] + np.arange(length) + shift] for shift in (0, 1))
    )
    loss, error = study.random_windows_loss(model, ids, length, num_batches=20)
    assert abs(loss - every.mean()) < 4 * error
    assert error == pytest.approx(every.mean(axis=1).std() / (20 * study.EVAL_BATCH_SIZE) ** 0.5, rel=0.1)


def test_it_has_at_most_two_million_parameters_at_its_defaults():
    config = study.ShakespeareConfig()
    for name in study.MODELS:
        assert config.num_members * config.model_config(name).build_model(65).count_params() <= 2_000_000


def test_each_family_has_its_rate_unless_one_is_given():
    for name, rate in study.NORMUON_LEARNING_RATES.items():
        assert study.ShakespeareConfig().train_config(name).learning_rate == rate
        given = study.ShakespeareConfig(train=TrainConfig("normuon", learning_rate=0.5))
        assert given.train_config(name).learning_rate == 0.5
        assert study.ShakespeareConfig(train=TrainConfig(optimizer="adam")).train_config(name).learning_rate is None


def test_batches_of_both_families_have_as_many_characters(ids):
    config = study.ShakespeareConfig(batch_size=8, sequence_length=16, context_length=32)
    assert len({config.windows(name, ids, seed=0).tokens_per_step for name in study.MODELS}) == 1


def test_with_a_dev_split_the_validation_split_is_not_used(monkeypatch, tmp_path):
    texts = {}

    def train_member(run, config, name, seed, data):
        text, scored_ids = study.scored_part(data)
        assert data.tokenizer.decode(scored_ids) == text
        texts[config.score_on_dev_split] = data.tokenizer.decode(data.train), text, data.corpus.text
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "train_member", train_member)
    for dev in (False, True):
        config = replaced(study.ShakespeareConfig(corpus="pydoc", score_on_dev_split=dev), study.SMOKE)
        with pytest.raises(KeyboardInterrupt):
            study.train_ensembles(config, tmp_path)
    train, validation, whole = texts[False]
    assert train + validation == whole
    shorter_train, dev, _ = texts[True]
    assert shorter_train + dev == train


def test_several_seeds_have_a_mean_and_the_verdict_is_of_the_best_model():
    rows = [a_row("transformer", 0, 1.6), a_row("lstm", 0, 1.43, 1.44), a_row("transformer", 1, 1.62)]
    rows += [a_row("lstm", 1, 1.44, 1.46)]
    table = study.table(256, rows)
    means = {row[0]: dict(zip(table.header, row, strict=True)) for row in table.rows if row[1] == "mean"}
    assert len(table.rows) == len(rows) + len(means)
    assert means["lstm"]["val_loss@256"] == "1.4350 ± 0.0071"
    assert means["lstm"]["members' val_loss"] == "1.4650 ± 0.0071"
    assert means["transformer"]["val_loss, random windows"] == "1.5000 ± 0.0000"
    verdict = study.verdict(study.ShakespeareConfig(), rows)
    assert verdict.startswith("lstm, an ensemble of 2 with 1.92 M parameters")
    assert "1.4350 ± 0.0071, and on random windows 1.4500 ± 0.0141 (standard deviations" in verdict
    assert "1.4697" in verdict
    dev = dataclasses.replace(study.ShakespeareConfig(), score_on_dev_split=True)
    assert "1.4697" not in study.verdict(dev, rows)
    assert "one seed; standard error over the windows 0.0020" in study.verdict(dev, rows[:1])


def test_an_ensemble_sums_its_members_and_is_better_than_their_mean(smoke):
    (row,) = smoke.rows
    ensemble = keras.models.load_model(smoke.folder / "lstm-seed0" / "model.keras")
    assert [len(member.weights) for member in ensemble.members] == [len(ensemble.members[0].weights)] * 2
    results = [json.loads(path.read_text(encoding="utf-8")) for path in smoke.folder.glob("*-member?/result.json")]
    for key in ("parameters", "train_tokens", "train_seconds"):
        assert row[key] == pytest.approx(sum(result[key] for result in results))
    assert row["parameters"] == ensemble.count_params()
    assert row["members_val_loss"] == pytest.approx(np.mean([result["val_loss"] for result in results]))
    assert row["val_loss"] < row["members_val_loss"]


def test_the_plot_has_nano_gpts_loss_only_beside_losses_of_its_text(smoke, drawn):
    for corpus, lines in (("shakespeare", 1), ("pydoc", 0)):
        (axes,) = drawn(study.plot, smoke.folder, study.ShakespeareConfig(corpus=corpus), smoke.rows)
        assert sum(line.get_linestyle() == "--" for line in axes.get_lines()) == lines
        star = next(line for line in axes.get_lines() if line.get_marker() == "*")
        assert star.get_ydata()[0] == smoke.rows[0]["val_loss"]
