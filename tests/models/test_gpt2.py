"""What GPT-2 and Llama are; the laws of all models are in test_language_model.py."""

import dataclasses
import math

import numpy as np
import pytest
from keras import ops

from keras_seq.layers import RotaryPositions
from keras_seq.models import GPT2Config, LlamaConfig
from keras_seq.models.families.transformer import gelu_tanh
from tests.models.conftest import losses_of_training, numpy

CONTEXT, VOCABULARY = 9, 11
SIZES = {"embedding_dim": 8, "num_layers": 2, "feed_forward_dim": 12, "context_length": CONTEXT, "dropout": 0.3}
SMALL = GPT2Config(num_heads=2, **SIZES)
BOTH = {"gpt2": SMALL, "llama": LlamaConfig(num_heads=4, num_key_value_heads=2, **SIZES)}
both = pytest.mark.parametrize("name", BOTH)


def some_ids(batch=2, length=CONTEXT, seed=0):
    return np.random.default_rng(seed).integers(VOCABULARY, size=(batch, length)).astype("int32")


def test_every_field_reaches_its_layers():
    model = SMALL.build_model(VOCABULARY)
    positions, embedding_dropout, *blocks, _ = model.blocks
    assert {positions.length, model.context_length} == {CONTEXT}
    assert {embedding_dropout.rate} | {block.dropout for block in blocks} == {SMALL.dropout}
    assert (len(blocks), model.embedding.output_dim, model.embedding.input_dim) == (2, 8, VOCABULARY)
    for block in blocks:
        assert (block.num_heads, block.feed_forward_dim, block.causal) == (2, 12, True)
        assert (block.norm_first, block.use_bias, block.activation) == (True, True, gelu_tanh)
    assert (model.name, model.head) == ("gpt2", None)


def test_gelu_is_the_tanh_formula():
    x = np.linspace(-4, 4, 33)
    expected = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(numpy(gelu_tanh(x.astype("float32"))), expected, atol=1e-6)
    exact = 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    assert 0 < np.abs(expected - exact).max() < 5e-4


def test_what_is_added_up_over_the_layers_starts_small():
    model = dataclasses.replace(SMALL, embedding_dim=32, feed_forward_dim=64).build_model(VOCABULARY)
    kernels = []
    for block in model.blocks[2:-1]:
        for layer in (block.self_attention_layer, block.feed_forward_layer):
            kernels.append(numpy(layer.output_dense.kernel))
            assert kernels[-1].std() == pytest.approx(0.02 / math.sqrt(4), rel=0.15)
    assert (kernels[0] != kernels[2]).any()  # the same law, not the same numbers


def test_without_biases_matrices_and_gains_are_left():
    config = dataclasses.replace(SMALL, use_bias=False)
    model = config.build_model(VOCABULARY)
    assert not [v.path for v in model.weights if "bias" in v.path or "beta" in v.path]
    assert model.count_params() == config.count_params(VOCABULARY) < SMALL.count_params(VOCABULARY)


@pytest.mark.parametrize("name", ["gpt2", pytest.param("llama", marks=pytest.mark.rare)])
def test_a_few_steps_of_training_lower_the_loss(name):
    one = dataclasses.replace(BOTH[name], num_layers=1, dropout=0.0)
    model, ids = one.build_model(VOCABULARY), some_ids(4, CONTEXT + 1)
    losses = losses_of_training(model, ids[:, :-1], ids[:, 1:], 12, 0.03)
    assert losses[0] == pytest.approx(math.log(VOCABULARY), abs=0.3)
    assert losses[-1] < 0.7 * losses[0]


@both
def test_beyond_its_context_it_says_so(randomize, name):
    model, ids = randomize(BOTH[name].build_model(VOCABULARY)), some_ids(length=CONTEXT + 1)
    with pytest.raises(ValueError, match=f"{CONTEXT + 1} positions; expected at most context_length={CONTEXT}"):
        model(ids)
    _, state = model(ids[:, :CONTEXT], state=model.get_initial_state(2), return_state=True)
    with pytest.raises(ValueError, match=f"capacity={CONTEXT}"):
        model.step(ids[:, -1:], state)


def test_without_a_context_there_is_nothing_to_count():
    with pytest.raises(ValueError, match="GPT2Config: context_length=None; expected a number of positions"):
        GPT2Config().count_params(VOCABULARY)


def test_every_field_of_llama_reaches_its_layers():
    model = BOTH["llama"].build_model(VOCABULARY)
    *blocks, normalization = model.blocks
    assert type(normalization).__name__ == "RMSNormalization"
    assert (model.name, model.head, model.context_length) == ("llama", None, 9)
    assert (len(blocks), model.embedding.output_dim, model.embedding.input_dim) == (2, 8, VOCABULARY)
    for block in blocks:
        assert (block.num_heads, block.num_key_value_heads, block.feed_forward_dim) == (4, 2, 12)
        assert (block.normalization, block.activation, block.positions) == ("rms", "swiglu", RotaryPositions())
        assert (block.causal, block.norm_first, block.use_bias, block.dropout) == (True, True, False, 0.3)


def test_llama_has_no_bias_and_starts_as_its_embedding():
    model, ids = BOTH["llama"].build_model(VOCABULARY), np.arange(9)[None]
    assert not [w.path for w in model.weights if "bias" in w.path or "beta" in w.path]
    e = ops.convert_to_numpy(model.embedding.embeddings).astype("float64")
    x = e[ids] / np.sqrt((e[ids] ** 2).mean(-1, keepdims=True) + 1e-7)  # every block is the identity
    np.testing.assert_allclose(ops.convert_to_numpy(model(ids)), x @ e.T, rtol=1e-3, atol=1e-5)


def test_fewer_heads_of_keys_and_values_make_a_smaller_state():
    sizes = {}
    for heads in (1, 2, 4):
        model = dataclasses.replace(BOTH["llama"], num_key_value_heads=heads).build_model(VOCABULARY)
        sizes[heads] = model.get_initial_state(3)[0]["self_attention"]["key"].shape
    assert sizes == {heads: (3, 9, heads, 2) for heads in (1, 2, 4)}
