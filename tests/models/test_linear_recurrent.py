import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import layers
from keras_seq.models import (
    GatedDeltaNetConfig,
    GatedLinearAttentionConfig,
    HawkConfig,
    HybridConfig,
    Mamba2Config,
    RWKV7Config,
    XLSTMConfig,
    config,
)

D, V = 8, 7
SIZES = {"embedding_dim": D, "num_layers": 3, "num_heads": 2}
WITH_FEED_FORWARD = {**SIZES, "feed_forward_dim": 5}
SMALL = {
    "mamba2": Mamba2Config(**SIZES, state_dim=3),
    "hawk": HawkConfig(**WITH_FEED_FORWARD),
    "gla": GatedLinearAttentionConfig(**WITH_FEED_FORWARD),
    "gated_deltanet": GatedDeltaNetConfig(**WITH_FEED_FORWARD),
    "xlstm": XLSTMConfig(**WITH_FEED_FORWARD),
    "rwkv7": RWKV7Config(**WITH_FEED_FORWARD, rank=3),
    "hybrid": HybridConfig(**WITH_FEED_FORWARD, context_length=6),
}
each = pytest.mark.parametrize("name", SMALL)


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
    model = dataclasses.replace(SMALL["hybrid"], num_layers=5, pattern="dgmar").build_model(V)
    assert kinds(model) == [layers.GatedDeltaNet, layers.GatedLinearAttention, layers.Mamba2, attention, griffin]
    assert kinds(SMALL["xlstm"].build_model(V)) == [layers.MLSTM, layers.MLSTM, layers.SLSTM]


def test_a_sliding_window_is_that_of_the_attention_blocks():
    model = dataclasses.replace(SMALL["hybrid"], sliding_window=3).build_model(V)
    windows = [block.sliding_window for block in model.blocks if isinstance(block, layers.TransformerBlock)]
    assert windows == [3]


def test_a_hybrid_needs_a_context_length():
    with pytest.raises(ValueError, match="HybridConfig: context_length=None"):
        HybridConfig().build_model(V)


@pytest.mark.parametrize("name", ["mamba2", pytest.param("xlstm", marks=pytest.mark.rare)])
def test_widths_are_matched_in_steps_of_the_heads_and_then_exactly(name, monkeypatch):
    monkeypatch.setattr(config, "clear_session", lambda **_: None)  # it drops TensorFlow's kernels, too
    target = 5_000
    layers_of = {"num_layers": 2, "pattern": "ms"} if name == "xlstm" else {"num_layers": 1}
    start = dataclasses.replace(SMALL[name], **layers_of)
    matched = config.match_parameter_count(start, V, target)
    assert matched.embedding_dim % matched.num_heads == 0
    assert matched.num_heads == 2
    assert matched.build_model(V).count_params() == pytest.approx(target, rel=0.02)
