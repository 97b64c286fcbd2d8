"""What is Modern's own; the laws that it shares with GPT are in test_gpt.py."""

import dataclasses

import numpy as np
from keras import ops

from keras_seq.layers import RotaryPositions
from keras_seq.models import LlamaConfig

VOCABULARY = 11
SMALL = LlamaConfig(
    embedding_dim=8,
    num_layers=2,
    num_heads=4,
    num_key_value_heads=2,
    feed_forward_dim=12,
    context_length=9,
    dropout=0.3,
)


def test_every_field_reaches_its_layers():
    model = SMALL.build_model(VOCABULARY)
    *blocks, normalization = model.blocks
    assert type(normalization).__name__ == "RMSNormalization"
    assert (model.name, model.head, model.context_length) == ("llama", None, 9)
    assert (len(blocks), model.embedding.output_dim, model.embedding.input_dim) == (2, 8, VOCABULARY)
    for block in blocks:
        assert (block.num_heads, block.num_key_value_heads, block.feed_forward_dim) == (4, 2, 12)
        assert (block.normalization, block.activation, block.positions) == ("rms", "swiglu", RotaryPositions())
        assert (block.causal, block.norm_first, block.use_bias, block.dropout) == (True, True, False, 0.3)


def test_it_has_no_bias_and_starts_as_its_embedding():
    model, ids = SMALL.build_model(VOCABULARY), np.arange(9)[None]
    assert not [w.path for w in model.weights if "bias" in w.path or "beta" in w.path]
    e = ops.convert_to_numpy(model.embedding.embeddings).astype("float64")
    x = e[ids] / np.sqrt((e[ids] ** 2).mean(-1, keepdims=True) + 1e-7)  # every block is the identity
    np.testing.assert_allclose(ops.convert_to_numpy(model(ids)), x @ e.T, rtol=1e-3, atol=1e-5)


def test_fewer_heads_of_keys_and_values_make_a_smaller_state():
    sizes = {}
    for heads in (1, 2, 4):
        model = dataclasses.replace(SMALL, num_key_value_heads=heads).build_model(VOCABULARY)
        sizes[heads] = model.get_initial_state(3)[0]["self_attention"]["key"].shape
    assert sizes == {heads: (3, 9, heads, 2) for heads in (1, 2, 4)}
