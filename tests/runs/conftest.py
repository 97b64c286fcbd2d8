"""Small runs of `keras_seq.train`, each trained once."""

import functools

import pytest

from keras_seq.models import GRUConfig, LSTMConfig
from keras_seq.runs import train
from tests.conftest import functions_run_eagerly

INTERVALS = {"warmup_steps": 2, "log_every": 2, "validate_every": 4, "checkpoint_every": 4, "sample_length": 5}
SIZES = {"tokens": 240, "batch_size": 2, "sequence_length": 12}
OPTIONS = {**SIZES, **INTERVALS}
MODELS = {"lstm": LSTMConfig(embedding_dim=4, units=6), "gru": GRUConfig(embedding_dim=4, units=6)}


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("To be, or not to be, that is the question.\n" * 6, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def trained(text, tmp_path_factory):
    """Return the run of a model; tests leave it as it is."""

    @functools.cache
    def trained(name="lstm"):
        with functions_run_eagerly():
            return train(text, MODELS[name], folder=tmp_path_factory.mktemp("runs") / name, **OPTIONS)

    return trained
