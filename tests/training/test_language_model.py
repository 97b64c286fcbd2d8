import json
import warnings

import numpy as np
import pytest

from keras_seq.evaluation import Evaluator
from keras_seq.evaluation.streaming import sample_windows
from keras_seq.saving.keras_file import load_untrusted_model
from keras_seq.training import CheckpointError, TrainConfig, TrainingDiverged
from keras_seq.training.language_model import check_sample

LENGTH, PART = 5, 41


@pytest.fixture
def capped(eagerly, tiny_run, tmp_path, ids):
    """A run whose validation text is longer than what is scored during training, and an evaluator of its model."""
    result = tiny_run(tmp_path, validation_characters=PART)
    model = load_untrusted_model(tmp_path / "model.keras")
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    (point,) = (line for line in lines if line["split"] == "validation")
    return result, point, Evaluator(model), ids[120:]


def test_the_curve_is_of_a_sample_of_the_text_and_the_final_scores_are_of_all_of_it(capped, tmp_path):
    result, point, evaluator, ids = capped
    sample = sample_windows(ids, LENGTH, PART // LENGTH)
    assert sample.tokens == 40 < len(ids)
    assert point["val_loss_sample"] == pytest.approx(evaluator.chunked_loss(ids, LENGTH, sample).mean, rel=1e-6)
    streaming = evaluator.stretch_token_losses(ids, sample).mean()
    assert point["val_loss_streaming_sample"] == pytest.approx(streaming, rel=1e-6)
    assert result["val_loss"] == pytest.approx(evaluator.chunked_loss(ids, LENGTH).mean, rel=1e-6)
    assert result["val_loss_streaming"] == pytest.approx(evaluator.streaming_loss(ids).mean, rel=1e-6)
    assert not any(key in point for key in result if key.startswith("val_"))
    assert not any(key.endswith("_sample") for key in result)
    assert np.load(tmp_path / "val_token_losses.npy").shape == ((len(ids) - 1) // LENGTH, LENGTH)


def test_a_part_that_makes_no_window_is_refused_before_any_work(tiny_run, tmp_path):
    with pytest.raises(ValueError, match=r"4 characters .* at least 6, .*--train.validation-characters"):
        tiny_run(tmp_path, validation_characters=LENGTH - 1)
    assert not any(tmp_path.iterdir())


def test_a_shorter_text_is_scored_whole():
    train = TrainConfig(validation_characters=4)
    assert [train.validated_characters(size) for size in (6, 3)] == [4, 3]
    assert TrainConfig(validation_characters=None).validated_characters(6, min_characters=5) == 6
    with pytest.raises(ValueError, match=r"--train.validation-characters 4: expected at least 5"):
        train.validated_characters(6, min_characters=5)


def test_a_last_validation_that_chance_does_not_explain_is_named():
    losses = np.random.default_rng(0).normal(2, 0.5, size=(400, 8)).clip(0)
    sample = sample_windows(np.arange(3201) % 7, 8, 40)
    drawn = losses[sample.window_starts // 8].mean()
    with warnings.catch_warnings(action="error"):
        check_sample(sample, drawn, losses)
    with pytest.warns(UserWarning, match=r"The last val_loss_sample is 1\.200, and val_loss, .* is 1\.986: by chance"):
        check_sample(sample, 1.2, losses)
    with pytest.warns(UserWarning, match="is nan"):
        check_sample(sample, float("nan"), losses)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(("before", "after"), [(None, PART), (PART, None)])
def test_a_run_that_was_validated_on_another_part_is_refused(tiny_run, tmp_path, before, after):
    tiny_run(tmp_path, validation_characters=before)
    (tmp_path / "result.json").unlink()
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    with pytest.raises(CheckpointError, match=r"was validated by val_loss.*start a new run|another config"):
        tiny_run(tmp_path, validation_characters=after)
    assert json.loads((tmp_path / "config.json").read_text(encoding="utf-8")) == config


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name", ["lstm", "transformer"])
@pytest.mark.parametrize(("optimizer", "rate"), [("muon", 1e30), ("sgd", 1e30), ("adamw", 1e36)])
def test_a_training_that_diverged_is_said_in_one_sentence(tiny_run, tmp_path, name, optimizer, rate):
    with pytest.raises(TrainingDiverged, match="training has diverged"):
        tiny_run(tmp_path, name, optimizer=optimizer, learning_rate=rate, warmup_steps=0)
