import json

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.common.tasks import run_task
from experiments.optimizers import OptimizersConfig
from keras_seq import training
from keras_seq.data import ArrayBatches
from keras_seq.models import BiLSTMConfig
from keras_seq.reports.tables import percent_interval
from keras_seq.tracking import Summaries


class ParityTask:
    """Tag each bit with itself: the smallest task."""

    loss, diagnostics, tokens_per_step = None, (), 32

    def __init__(self):
        keras.utils.set_random_seed(0)
        bits = np.random.default_rng(0).integers(1, 3, (40, 8))
        self.model = BiLSTMConfig(units=4).build_model(3)
        self.dataset = ArrayBatches((bits, bits - 1), batch_size=4).dataset

    def validate(self):
        return Summaries({"val_loss": 1.0, "accuracy": 0.5}, {"sample": "a sample"})

    def test(self):
        return {"accuracy": 0.75, "groups": [{"group": 8, "trained": True, "examples": 40, "accuracy": 0.75}]}


@pytest.mark.usefixtures("eagerly")
def test_a_run_on_a_task_holds_what_the_test_says(tmp_path):
    settings, config = OptimizersConfig(seed=7, tokens=32, batch_size=4, sequence_length=8), BiLSTMConfig(units=4)
    train = training.TrainConfig(learning_rate=0.25)
    result = run_task(tmp_path, settings, "bilstm", config, lambda name: ParityTask(), train)
    assert result.pop("run") == "bilstm-seed7"
    assert (result["model"], result["accuracy"], result["val_loss"], result["sample"]) == (
        "bilstm",
        0.75,
        1,
        "a sample",
    )
    assert result["train_tokens"] == settings.steps * 32
    assert training.load_result(tmp_path / "bilstm-seed7") == result
    saved = json.loads((tmp_path / "bilstm-seed7/config.json").read_text(encoding="utf-8"))
    assert (saved["seed"], saved["model"]["units"], saved["train"]["learning_rate"]) == (7, 4, 0.25)


@given(st.integers(0, 500), st.integers(1, 500))
def test_an_interval_holds_the_fraction_and_stays_between_none_and_all(hits, misses):
    text = percent_interval(hits / (hits + misses), hits + misses)
    fraction, low, _, high = (float(word.strip("(%)")) if word != "to" else 0 for word in text.split())
    assert 0 <= low <= fraction <= high <= 100
    assert high - low < 100 / np.sqrt(hits + misses) * 2


def test_an_interval_by_hand():
    assert percent_interval(0.81, 100) == "81.0% (72.2 to 87.5%)"
    with pytest.raises(ZeroDivisionError):
        percent_interval(0.5, 0)
