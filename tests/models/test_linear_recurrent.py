import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import layers, models
from keras_seq.saving import load_untrusted_model, save_model
from tests.conftest import often

D = 8
V = 7
SIZES = {"embedding_dim": D, "num_layers": 3, "num_heads": 2}
WITH_FEED_FORWARD = {**SIZES, "feed_forward_dim": 5}
SMALL = {
    "mamba2": models.Mamba2Config(**SIZES, state_dim=3),
    "hawk": models.HawkConfig(**WITH_FEED_FORWARD),
    "gla": models.GatedLinearAttentionConfig(**WITH_FEED_FORWARD),
    "gated_deltanet": models.GatedDeltaNetConfig(**WITH_FEED_FORWARD),
    "deltaproduct": models.GatedDeltaProductConfig(**WITH_FEED_FORWARD),
    "kda": models.KimiDeltaAttentionConfig(**WITH_FEED_FORWARD),
    "xlstm": models.XLSTMConfig(**WITH_FEED_FORWARD),
    "rwkv7": models.RWKV7Config(**WITH_FEED_FORWARD, rank=3),
    "hybrid": models.HybridConfig(**WITH_FEED_FORWARD, context_length=6),
    "qwen3_5": models.Qwen35Config(**WITH_FEED_FORWARD, pattern="dda", key_dim=8, context_length=6),
}
each = often("name", [*SMALL], ("mamba2", "gated_deltanet", "xlstm", "rwkv7", "hybrid", "qwen3_5"))


def kinds(model):
    """The mixer of each block, without the feed-forward layers."""
    mixers = [block if isinstance(block, layers.TransformerBlock) else block.layers[0] for block in model.blocks[:-1]]
    return [type(mixer) for mixer in mixers if not isinstance(mixer, layers.FeedForward)]


@each
def test_every_sublayer_starts_as_the_identity_but_slstms(name):
    model = SMALL[name].build_model(V)
    x = np.random.default_rng(0).normal(size=(2, 5, D)).astype("float32")
    *blocks, last = model.blocks
    assert isinstance(last, keras.layers.RMSNormalization)
    expected = np.array(ops.convert_to_numpy(blocks[0].normalizations[0](x))) if name == "rwkv7" else x
    for block in blocks:  # the matrix after an sLSTM belongs to the feed-forward layer that follows it
        if not isinstance(getattr(block, "layers", [None])[0], layers.SLSTM):
            np.testing.assert_array_equal(ops.convert_to_numpy(block(x)), expected)


def test_a_pattern_is_repeated_over_the_blocks():
    model = dataclasses.replace(SMALL["hybrid"], num_layers=5, pattern="ra").build_model(V)
    griffin, attention = layers.GriffinRecurrentBlock, layers.TransformerBlock
    assert kinds(model) == [griffin, attention, griffin, attention, griffin]
    model = dataclasses.replace(SMALL["hybrid"], num_layers=6, pattern="dgkmar").build_model(V)
    linear = [layers.GatedDeltaNet, layers.GatedLinearAttention, layers.KimiDeltaAttention, layers.Mamba2]
    assert kinds(model) == [*linear, attention, griffin]
    assert kinds(SMALL["qwen3_5"].build_model(V)) == [layers.GatedDeltaNet, layers.GatedDeltaNet, attention]
    assert kinds(SMALL["xlstm"].build_model(V)) == [layers.MLSTM, layers.MLSTM, layers.SLSTM]


def test_a_sliding_window_is_that_of_the_attention_blocks():
    model = dataclasses.replace(SMALL["hybrid"], sliding_window=3).build_model(V)
    windows = [block.sliding_window for block in model.blocks if isinstance(block, layers.TransformerBlock)]
    assert windows == [3]


def test_a_hybrid_needs_a_context_length():
    with pytest.raises(ValueError, match="HybridConfig: context_length=None"):
        models.HybridConfig().build_model(V)


@pytest.mark.parametrize("name", ["mamba2", pytest.param("xlstm", marks=pytest.mark.rare)])
def test_widths_are_matched_in_steps_of_the_heads_and_then_exactly(name, monkeypatch):
    monkeypatch.setattr(models.config, "clear_session", lambda **_: None)  # it drops TensorFlow's kernels, too
    target = 5_000
    layers_of = {"num_layers": 2, "pattern": "ms"} if name == "xlstm" else {"num_layers": 1}
    start = dataclasses.replace(SMALL[name], **layers_of)
    matched = models.config.match_parameter_count(start, V, target)
    assert matched.embedding_dim % matched.num_heads == 0
    assert matched.num_heads == 2
    assert matched.build_model(V).count_params() == pytest.approx(target, rel=0.02)


GEMMA = models.RecurrentGemmaConfig(8, num_heads=2, feed_forward_dim=5, lru_width=6, sliding_window=4)


@pytest.fixture(scope="module")
def model(randomize):
    return randomize(dataclasses.replace(GEMMA, logit_soft_cap=0.5).build_model(V))


def some_ids():
    return np.random.default_rng(0).integers(0, V, (2, 11))


def test_recurrent_gemma_starts_as_its_scaled_and_normalized_embedding():
    model = dataclasses.replace(GEMMA, embedding_dim=12, num_heads=3).build_model(V)
    assert np.float32(model.blocks[0].scale) == 3.46875  # the root of 12 in bfloat16
    table = ops.convert_to_numpy(model.embedding.embeddings).astype("float64")
    x = table[some_ids()] * 3.46875
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + GEMMA.epsilon)
    expected = 30 * np.tanh(x @ table.T / 30)
    np.testing.assert_allclose(ops.convert_to_numpy(model(some_ids())), expected, rtol=1e-5, atol=1e-6)


def test_steps_beyond_the_window_equal_the_whole_pass(model):
    whole = ops.convert_to_numpy(model(some_ids()))
    assert 0.3 < np.abs(whole).max() < 0.5
    state = model.get_initial_state(2)
    for t in range(11):
        logits, state = model.step(some_ids()[:, t : t + 1], state)
        np.testing.assert_allclose(ops.convert_to_numpy(logits), whole[:, t], rtol=1e-4, atol=1e-5)


def test_a_file_brings_recurrent_gemma_back(model, tmp_path):
    save_model(model, tmp_path / "model.keras")
    loaded = load_untrusted_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(ops.convert_to_numpy(loaded(some_ids())), ops.convert_to_numpy(model(some_ids())))


def test_the_kinds_of_recurrent_gemma_are_repeated():
    model = dataclasses.replace(GEMMA, num_layers=5).build_model(V)
    blocks = [block for block in model.blocks if block.name.startswith("block_")]
    assert [isinstance(block, layers.TransformerBlock) for block in blocks] == [False, False, True, False, False]
