import dataclasses
import functools
import json
import os

import keras
import numpy as np
import pytest

from experiments import shakespeare as study
from keras_seq.commands.options import replaced
from keras_seq.data import load_corpus
from keras_seq.evaluation import Evaluator
from keras_seq.models import LSTMConfig
from keras_seq.models.ngrams import held_out_log_probabilities, ngram_model
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.training import TrainConfig

SMALL = LSTMConfig(embedding_dim=3, units=5)


@pytest.fixture(scope="module")
def ids():
    return np.random.default_rng(0).integers(7, size=300)


def a_row(seed, val_loss, random_loss=1.5):
    return {
        **{"seed": seed, "run": f"seed{seed}", "parameters": 1_920_000, "train_tokens": 6.8e6, "train_seconds": 400},
        **{"members_train_loss": [1.3, 1.2], "members_val_loss": [val_loss + 0.03, val_loss + 0.04]},
        "val_loss": val_loss,
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


@pytest.mark.skipif("KERAS_SEQ_DATA" not in os.environ, reason="needs KERAS_SEQ_DATA, a folder with shakespeare.txt")
def test_it_has_at_most_two_million_parameters_at_its_defaults():
    config, text = study.ShakespeareConfig(), load_corpus("shakespeare").split()[0]
    counts = config.count(65, CharacterTokenizer.from_text(text).encode(text))
    networks = config.lstm.build_model(65), config.ngrams.build_model(66)
    assert config.members == ("lstm", "ngrams")
    assert sum(model.count_params() for model in (*networks, ngram_model(counts))) <= 2_000_000


def test_each_family_has_its_rate_unless_one_is_given():
    for name, rate in study.NORMUON_LEARNING_RATES.items():
        assert study.ShakespeareConfig().train_config(name).learning_rate == rate
        given = study.ShakespeareConfig(train=TrainConfig("normuon", learning_rate=0.5))
        assert given.train_config(name).learning_rate == 0.5
        assert study.ShakespeareConfig(train=TrainConfig(optimizer="adam")).train_config(name).learning_rate is None


def test_batches_of_both_families_have_as_many_characters(ids):
    config = study.ShakespeareConfig(batch_size=8, sequence_length=16, context_length=32)
    assert len({config.windows(name, ids, seed=0).tokens_per_step for name in study.MEMBERS}) == 1


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


def test_several_seeds_have_a_mean_and_the_verdict_names_the_members():
    rows = [a_row(0, 1.43, 1.44), a_row(1, 1.44, 1.46)]
    table = study.table(256, rows)
    *_, mean = (dict(zip(table.header, row, strict=True)) for row in table.rows)
    assert (len(table.rows), mean["seed"]) == (3, "mean")
    assert mean["val_loss@256"] == "1.4350 ± 0.0071"
    assert mean["members' val_loss@256"] == "1.4650 ± 0.0071, 1.4750 ± 0.0071"
    assert len(study.table(256, rows[:1]).rows) == 1
    verdict = study.verdict(study.ShakespeareConfig(), rows)
    assert verdict.startswith("An ensemble of lstm and ngrams with 1.92 M parameters")
    assert "1.4350 ± 0.0071, and on random windows 1.4500 ± 0.0141 (standard deviations" in verdict
    assert "1.4697" in verdict
    dev = dataclasses.replace(study.ShakespeareConfig(), score_on_dev_split=True)
    assert "1.4697" not in study.verdict(dev, rows)
    assert "one seed; standard error over the windows 0.0020" in study.verdict(dev, rows[:1])


def test_an_ensemble_sums_its_members_and_is_better_than_their_mean(smoke):
    (row,) = smoke.rows
    ensemble = keras.models.load_model(smoke.folder / "seed0" / "model.keras")
    assert [type(member).__name__ for member in ensemble.members] == ["LanguageModel", "NGramResidual"]
    folders = [smoke.folder / f"seed0-member{n}-{name}" for n, name in enumerate(("lstm", "ngrams"))]
    results = [json.loads((folder / "result.json").read_text(encoding="utf-8")) for folder in folders]
    for key in ("parameters", "train_tokens", "train_seconds"):
        assert row[key] == pytest.approx(sum(result[key] for result in results))
    assert row["parameters"] == ensemble.count_params()
    assert row["members_val_loss"] == [result["val_loss"] for result in results]
    assert row["val_loss"] < np.mean(row["members_val_loss"])
    assert "keras-seq inspect" not in smoke.stdout  # which refuses an ensemble


def test_a_member_on_n_grams_learns_from_counts_of_other_parts(ids):
    config = replaced(study.ShakespeareConfig(batch_size=2, sequence_length=5), {"ngrams": {"units": 4}})
    member, training_model, dataset_fn = study.build_member(config, "ngrams", config.windows("ngrams", ids, 0), 7)
    ((x, reset, given), y), *_ = ((tuple(map(np.asarray, inputs)), y) for inputs, y in dataset_fn(3, 4))
    known = held_out_log_probabilities(ids, functools.partial(config.count, 7))
    for row, expected in zip(x, given, strict=True):
        (start,) = (n for n in range(len(ids) - 5) if (ids[n : n + 5] == row).all())
        np.testing.assert_array_equal(expected, known[start : start + 5])
    outputs = np.asarray(member.members[1](x))
    expected = outputs[..., :7] + (1 + outputs[..., 7:]) * given.astype("float32")
    np.testing.assert_allclose(training_model([x, np.ones_like(reset), given]), expected, atol=1e-5)
    assert np.asarray(y).shape == (2, 5)


def test_the_plot_has_nano_gpts_loss_only_beside_losses_of_its_text(smoke, drawn):
    for corpus, lines in (("shakespeare", 1), ("pydoc", 0)):
        (axes,) = drawn(study.plot, smoke.folder, study.ShakespeareConfig(corpus=corpus), smoke.rows)
        assert sum(line.get_linestyle() == "--" for line in axes.get_lines()) == lines
        star = next(line for line in axes.get_lines() if line.get_marker() == "*")
        assert star.get_ydata()[0] == smoke.rows[0]["val_loss"]
