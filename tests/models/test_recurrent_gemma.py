import dataclasses

import numpy as np
import pytest
from keras import ops

from keras_seq import layers
from keras_seq.models import RecurrentGemmaConfig
from keras_seq.saving import load_untrusted_model, save_model

V, T = 7, 11
SMALL = RecurrentGemmaConfig(8, num_heads=2, feed_forward_dim=5, lru_width=6, sliding_window=4)


@pytest.fixture(scope="module")
def model(randomize):
    return randomize(dataclasses.replace(SMALL, logit_soft_cap=0.5).build_model(V))


def some_ids():
    return np.random.default_rng(0).integers(0, V, (2, T))


def test_it_starts_as_its_scaled_and_normalized_embedding():
    model = dataclasses.replace(SMALL, embedding_dim=12, num_heads=3).build_model(V)
    assert np.float32(model.blocks[0].scale) == 3.46875  # the root of 12 in bfloat16
    table = ops.convert_to_numpy(model.embedding.embeddings).astype("float64")
    x = table[some_ids()] * 3.46875
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + SMALL.epsilon)
    expected = 30 * np.tanh(x @ table.T / 30)
    np.testing.assert_allclose(ops.convert_to_numpy(model(some_ids())), expected, rtol=1e-5, atol=1e-6)


def test_steps_beyond_the_window_equal_the_whole_pass(model):
    whole = ops.convert_to_numpy(model(some_ids()))
    assert 0.3 < np.abs(whole).max() < 0.5
    state = model.get_initial_state(2)
    for t in range(T):
        logits, state = model.step(some_ids()[:, t : t + 1], state)
        np.testing.assert_allclose(ops.convert_to_numpy(logits), whole[:, t], rtol=1e-4, atol=1e-5)


def test_a_file_brings_it_back(model, tmp_path):
    save_model(tmp_path / "model.keras", model)
    loaded = load_untrusted_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(ops.convert_to_numpy(loaded(some_ids())), ops.convert_to_numpy(model(some_ids())))


def test_its_kinds_are_repeated():
    model = dataclasses.replace(SMALL, num_layers=5).build_model(V)
    blocks = [block for block in model.blocks if block.name.startswith("block_")]
    assert [isinstance(block, layers.TransformerBlock) for block in blocks] == [False, False, True, False, False]
