import dataclasses
import json

import keras
import numpy as np
import pytest

from experiments import shakespeare
from experiments.runs import revive
from experiments.shakespeare import crops_score
from experiments.shakespeare_settings import MODELS, RATES, Shakespeare, tiny
from keras_seq.evaluation import Evaluator
from keras_seq.models import LSTMConfig
from keras_seq.training import TrainConfig

SMALL = LSTMConfig(embedding_dim=3, units=5)


@pytest.fixture(scope="module")
def ids():
    return np.random.default_rng(0).integers(7, size=300)


def test_crops_are_scored_as_every_crop_would_be_on_average(ids):
    model, length = SMALL.build_model(7), 9
    for weight in model.trainable_variables:
        weight.assign(np.random.default_rng(1).normal(size=weight.shape))
    starts = np.arange(len(ids) - length)
    every = Evaluator(model).independent_token_losses(
        *(ids[starts[:, None] + np.arange(length) + shift] for shift in (0, 1))
    )
    nats, error = crops_score(model, ids, length, batches=20)
    assert abs(nats - every.mean()) < 4 * error
    assert error == pytest.approx(every.mean(axis=1).std() / (20 * shakespeare.CROPS) ** 0.5, rel=0.1)


def test_it_has_at_most_two_million_parameters_at_its_defaults():
    settings = Shakespeare()
    for name in MODELS:
        assert settings.members * settings.model(name).build_model(65).count_params() <= 2_000_000


def test_settings_come_back_from_their_json():
    settings = tiny(Shakespeare(models=("lstm", "transformer"), tune=True))
    assert revive(Shakespeare, json.loads(json.dumps(dataclasses.asdict(settings)))) == settings


def test_each_family_has_its_rate_unless_one_is_given():
    for name, rate in RATES.items():
        assert Shakespeare().training(name).learning_rate == rate
        assert Shakespeare(train=TrainConfig(learning_rate=0.5)).training(name).learning_rate == 0.5
        assert Shakespeare(train=TrainConfig(optimizer="adam")).training(name).learning_rate is None


def test_to_tune_nothing_of_the_validation_split_is_touched(monkeypatch, tmp_path):
    seen = {}

    def train_members(folder, settings, name, seed, data):
        seen[settings.tune] = data.vocabulary.decode(data.train_ids), data.scored_text, data.corpus.text
        raise KeyboardInterrupt

    monkeypatch.setattr(shakespeare, "train_members", train_members)
    for tune in (False, True):
        with pytest.raises(KeyboardInterrupt):
            shakespeare.shakespeare(tiny(Shakespeare(corpus="pydoc", tune=tune)), tmp_path)
    train, validation, whole = seen[False]
    assert train + validation == whole
    without, end_of_training, _ = seen[True]
    assert without + end_of_training == train


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [
        ("--tokens", 0, "--tokens 0"),
        ("--members", 0, "--members 0"),
        ("--batch-size", -1, "--batch-size -1"),
        ("--restart", 2, "--restart 2"),
    ],
)
def test_a_mistake_is_one_sentence(fails, tmp_path, option, value, named):
    assert named in fails(shakespeare.main, option, value, "--log-dir", tmp_path)
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_a_tiny_run_leaves_its_report_and_is_not_trained_again(python, tmp_path):
    run = ("-m", "experiments.shakespeare", "--smoke", "--corpus", "pydoc")
    done = python(*run, "--log-dir", tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "shakespeare").iterdir()
    (row,) = json.loads((folder / "shakespeare.json").read_text(encoding="utf-8"))
    assert f"{row['val_loss_per_character']:.4f}" in done.stdout
    assert {"shakespeare.md", "shakespeare.png", "lstm-seed0", "lstm-seed0-member1"} <= {
        path.name for path in folder.iterdir()
    }
    mean = keras.models.load_model(folder / "lstm-seed0" / "model.keras")
    assert [len(member.weights) for member in mean.members] == [len(mean.members[0].weights)] * 2
    members = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*-member?/result.json")]
    assert row["parameters"] == sum(member["parameters"] for member in members) == mean.count_params()
    assert row["val_loss_per_character"] < np.mean([member["val_loss_per_character"] for member in members])
    again = python(*run[:2], "--resume", folder)
    assert again.returncode == 0, again.stderr
    assert json.loads((folder / "shakespeare.json").read_text(encoding="utf-8")) == [row]
