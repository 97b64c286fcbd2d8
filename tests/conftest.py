"""What all tests share. Those outside tests/layers need Keras's TensorFlow backend."""

import gc
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow is imported: its notes are nobody's output

import keras
import numpy as np
import pytest

ANY_BACKEND = pathlib.Path(__file__).parent / "layers"


def pytest_collection_modifyitems(items):
    """Skips what cannot run on the Keras backend at hand."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        return
    for item in items:
        if ANY_BACKEND not in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=f"needs Keras's TensorFlow backend; this is {backend}"))


def pytest_collection_finish():
    """Leave what was imported out of garbage collections: it lives as long as the tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _seeded():
    keras.utils.set_random_seed(0)


@pytest.fixture(scope="session")
def randomize():
    """Gives every weight distinct random values, so that swapping two of them fails a test."""

    def randomize(model, seed=0, scale=0.4):
        random = np.random.default_rng(seed)
        for weight in model.weights:
            if "seed" not in weight.path:
                weight.assign(random.normal(scale=scale, size=weight.shape))
        return model

    return randomize
