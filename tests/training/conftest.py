"""A tiny text and tiny runs over it."""

import keras
import numpy as np
import pytest

from keras_seq.data import RandomWindows, StatefulWindows
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.training import TrainConfig, train_language_model
from tests.conftest import functions_run_eagerly

CHARACTERS = "\n abcdefg"
BATCH, LENGTH, STEPS = 3, 5, 8
MODELS = {
    "lstm": LSTMConfig(embedding_dim=3, units=4, dropout=0.2),
    "transformer": TransformerConfig(
        embedding_dim=4, num_layers=1, num_heads=2, feed_forward_dim=8, context_length=LENGTH, dropout=0.2
    ),
}


@pytest.fixture(scope="session")
def ids():
    return np.random.default_rng(0).integers(len(CHARACTERS), size=200).astype("int32")


@pytest.fixture(scope="session")
def tiny_run(ids):
    """Trains a model in a folder, from new objects: the LSTM on stateful windows, the Transformer on random ones."""

    def tiny_run(folder, name="lstm", precision="float32", **train):
        keras.utils.set_random_seed(3)
        train = {"warmup_steps": 2, "log_every": 3, "validate_every": STEPS, "checkpoint_every": 4, **train}
        train = TrainConfig(precision=precision, sample_length=3, **train)
        sizes = {"batch_size": BATCH, "sequence_length": LENGTH, "seed": 1}
        windows = (
            StatefulWindows(ids[:120], reset_prob=0.3, **sizes) if name == "lstm" else RandomWindows(ids[:120], **sizes)
        )
        model = MODELS[name].build_model(len(CHARACTERS), dtype=train.dtype_policy)
        config = {"model": {"name": name}, "seed": 1}
        tokenizer = CharacterTokenizer(CHARACTERS)
        return train_language_model(
            folder, model, tokenizer, windows, tokenizer.decode(ids[120:]), STEPS, train, config
        )

    return tiny_run


@pytest.fixture(scope="session")
def finished_run(tiny_run, tmp_path_factory):
    """The folder of a finished tiny run of the LSTM, for all tests, and its result."""
    folder = tmp_path_factory.mktemp("finished") / "lstm-seed0"
    with functions_run_eagerly():
        return folder, tiny_run(folder)
