import dataclasses
import json

import keras
import numpy as np
import pytest

from experiments.frame.runs import dataclass_from_dict
from experiments.shakespeare import __main__ as shakespeare
from experiments.shakespeare.__main__ import random_windows_loss
from experiments.shakespeare.settings import MODELS, MUON_LEARNING_RATES, ShakespeareConfig, smoke_config
from keras_seq.evaluation import Evaluator
from keras_seq.models import LSTMConfig
from keras_seq.training import TrainConfig

SMALL = LSTMConfig(embedding_dim=3, units=5)


@pytest.fixture(scope="module")
def ids():
    return np.random.default_rng(0).integers(7, size=300)


def test_the_loss_of_random_windows_is_that_of_all_windows_on_average(ids):
    model, length = SMALL.build_model(7), 9
    for weight in model.trainable_variables:
        weight.assign(np.random.default_rng(1).normal(size=weight.shape))
    starts = np.arange(len(ids) - length)
    every = Evaluator(model).independent_token_losses(
        *(ids[starts[:, None] + np.arange(length) + shift] for shift in (0, 1))
    )
    loss, error = random_windows_loss(model, ids, length, num_batches=20)
    assert abs(loss - every.mean()) < 4 * error
    assert error == pytest.approx(every.mean(axis=1).std() / (20 * shakespeare.EVAL_BATCH_SIZE) ** 0.5, rel=0.1)


def test_it_has_at_most_two_million_parameters_at_its_defaults():
    config = ShakespeareConfig()
    for name in MODELS:
        assert config.num_members * config.model_config(name).build_model(65).count_params() <= 2_000_000


def test_a_config_is_restored_from_its_json():
    config = smoke_config(ShakespeareConfig(models=("lstm", "transformer"), score_on_dev_split=True))
    assert dataclass_from_dict(ShakespeareConfig, json.loads(json.dumps(dataclasses.asdict(config)))) == config


def test_each_family_has_its_rate_unless_one_is_given():
    for name, rate in MUON_LEARNING_RATES.items():
        assert ShakespeareConfig().train_config(name).learning_rate == rate
        assert ShakespeareConfig(train=TrainConfig(learning_rate=0.5)).train_config(name).learning_rate == 0.5
        assert ShakespeareConfig(train=TrainConfig(optimizer="adam")).train_config(name).learning_rate is None


def test_with_a_dev_split_the_validation_split_is_not_used(monkeypatch, tmp_path):
    texts = {}

    def train_ensemble(folder, config, name, seed, data):
        scored = data.vocabulary.decode(shakespeare.scored_ids(data))
        assert scored == shakespeare.scored_text(data)
        texts[config.score_on_dev_split] = data.vocabulary.decode(data.train), scored, data.corpus.text
        raise KeyboardInterrupt

    monkeypatch.setattr(shakespeare, "train_ensemble", train_ensemble)
    for dev in (False, True):
        config = smoke_config(ShakespeareConfig(corpus="pydoc", score_on_dev_split=dev))
        with pytest.raises(KeyboardInterrupt):
            shakespeare.train_ensembles(config, tmp_path)
    train, validation, whole = texts[False]
    assert train + validation == whole
    shorter_train, dev, _ = texts[True]
    assert shorter_train + dev == train


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [
        ("--tokens", 0, "--tokens 0"),
        ("--num-members", 0, "--num-members 0"),
        ("--batch-size", -1, "--batch-size -1"),
        ("--reset-prob", 2, "--reset-prob 2"),
    ],
)
def test_a_mistake_is_one_sentence(fails, tmp_path, option, value, named):
    assert named in fails(shakespeare.main, option, value, "--log-dir", tmp_path)
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_a_tiny_run_leaves_its_report_and_is_not_trained_again(python, tmp_path):
    run = ("-m", "experiments.shakespeare", "--smoke", "--corpus", "pydoc")
    process = python(*run, "--log-dir", tmp_path)
    assert process.returncode == 0, process.stderr
    (folder,) = (tmp_path / "shakespeare").iterdir()
    (row,) = json.loads((folder / "shakespeare.json").read_text(encoding="utf-8"))
    assert f"{row['val_loss_per_character']:.4f}" in process.stdout
    assert {"shakespeare.md", "shakespeare.png", "lstm-seed0", "lstm-seed0-member1"} <= {
        path.name for path in folder.iterdir()
    }
    ensemble = keras.models.load_model(folder / "lstm-seed0" / "model.keras")
    assert [len(member.weights) for member in ensemble.members] == [len(ensemble.members[0].weights)] * 2
    members = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*-member?/result.json")]
    assert row["parameters"] == sum(member["parameters"] for member in members) == ensemble.count_params()
    assert row["val_loss_per_character"] < np.mean([member["val_loss_per_character"] for member in members])
    again = python(*run[:2], "--resume", folder)
    assert again.returncode == 0, again.stderr
    assert json.loads((folder / "shakespeare.json").read_text(encoding="utf-8")) == [row]
