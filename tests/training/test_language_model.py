import json

import numpy as np
import pytest

from keras_seq.evaluation import Evaluator
from keras_seq.saving.safe_loading import load_untrusted_model
from keras_seq.training import TrainConfig

LENGTH, PART = 5, 41


@pytest.fixture
def capped(eagerly, tiny_run, tmp_path, ids):
    """A run whose validation text is longer than what is scored during training, and an evaluator of its model."""
    result = tiny_run(tmp_path, validation_characters=PART)
    model = load_untrusted_model(tmp_path / "model.keras")
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    (point,) = (line for line in lines if line["split"] == "validation")
    return result, point, Evaluator(model), ids[120:]


def test_the_curve_is_of_the_beginning_of_the_text_and_the_final_scores_are_of_all_of_it(capped, tmp_path):
    result, point, evaluator, ids = capped
    assert len(ids) > PART
    for kind in ("val_loss", "val_loss_streaming"):
        streaming = kind == "val_loss_streaming"
        score = evaluator.streaming_loss if streaming else lambda x: evaluator.chunked_loss(x, LENGTH)
        assert point[kind] == pytest.approx(score(ids[:PART]).mean, rel=1e-6)
        assert result[kind] == pytest.approx(score(ids).mean, rel=1e-6)
        assert abs(result[kind] - point[kind]) > 1e-4
    assert np.load(tmp_path / "val_token_losses.npy").shape == ((len(ids) - 1) // LENGTH, LENGTH)


def test_a_part_that_makes_no_window_is_refused_before_any_work(tiny_run, tmp_path):
    with pytest.raises(ValueError, match=r"5 characters .* at least 6, .*--train.validation-characters"):
        tiny_run(tmp_path, validation_characters=LENGTH)
    assert not any(tmp_path.iterdir())


def test_a_part_is_the_beginning_and_a_shorter_text_is_all_of_it():
    train = TrainConfig(validation_characters=4)
    assert (train.validated_part("abcdef"), train.validated_part("abc")) == ("abcd", "abc")
    assert TrainConfig(validation_characters=None).validated_part("abcdef", min_characters=5) == "abcdef"
    with pytest.raises(ValueError, match=r"--train.validation-characters 4: expected at least 5"):
        train.validated_part("abcdef", min_characters=5)
