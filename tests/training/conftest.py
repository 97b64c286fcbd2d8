"""A tiny text and tiny runs over it; ends.py for those who import it."""

import pathlib
import sys

import keras
import numpy as np
import pytest

from keras_seq.models import LSTM, Transformer
from keras_seq.text import Lanes, RandomCrops, Vocabulary
from keras_seq.training import Train, run

sys.path.append(str(pathlib.Path(__file__).parent))  # ends

CHARACTERS = "\n abcdefg"
BATCH, LENGTH, STEPS = 3, 5, 8
MODELS = {
    "lstm": LSTM(embedding_dim=3, units=4, dropout=0.2),
    "transformer": Transformer(
        embedding_dim=4, num_layers=1, num_heads=2, feed_forward_dim=8, context=LENGTH, dropout=0.2
    ),
}


@pytest.fixture(scope="session")
def ids():
    return np.random.default_rng(0).integers(len(CHARACTERS), size=200).astype("int32")


@pytest.fixture
def tiny_run(ids):
    """Trains a model in a folder, from objects made afresh: the LSTM on carried lanes, the Transformer on crops."""

    def tiny_run(folder, name="lstm", precision="float32", **train):
        keras.utils.set_random_seed(3)
        train = {"warmup_steps": 2, "validate_every": STEPS, "checkpoint_every": 4, "sample_length": 3, **train}
        train = Train(precision=precision, **train)
        sizes = {"batch_size": BATCH, "length": LENGTH, "seed": 1}
        windows = Lanes(ids[:120], restart=0.3, **sizes) if name == "lstm" else RandomCrops(ids[:120], **sizes)
        model = MODELS[name].build(len(CHARACTERS), dtype=train.policy)
        settings = {"model": {"name": name}, "seed": 1}
        vocabulary = Vocabulary(CHARACTERS)
        return run(folder, model, vocabulary, windows, vocabulary.decode(ids[120:]), STEPS, train, settings)

    return tiny_run
