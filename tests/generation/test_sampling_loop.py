"""The compiled loop on every backend against whole passes, the draws of Philox and the formulas in float64."""

import functools
import math

import numpy as np
import pytest
from keras import ops

from keras_seq.generation import SamplingConfig, SamplingLoop
from keras_seq.models import LSTMConfig, MambaConfig, MinGRUConfig, TransformerConfig
from keras_seq.ops.compiled import compiled
from keras_seq.random_draws import uniform_draws
from tests.conftest import functions_run_eagerly, often
from tests.generation.sampling_oracle import sample

pytestmark = pytest.mark.any_backend
V, CONTEXT = 9, 6
MODELS = {
    "lstm": LSTMConfig(embedding_dim=3, units=5),
    "transformer": TransformerConfig(
        embedding_dim=4, num_layers=1, num_heads=2, feed_forward_dim=8, context_length=CONTEXT
    ),
    "mamba": MambaConfig(embedding_dim=4, num_layers=1, state_dim=3),
    "mingru": MinGRUConfig(embedding_dim=4, num_layers=1, feed_forward_dim=8, units=5),
}
QUICK = ("lstm", "transformer")
PROMPTS = [[1, 2], [3, 1, 4, 1, 5, 8, 2, 6], [7]]
SAMPLING = SamplingConfig(temperature=0.9, top_p=0.95)


@pytest.fixture(scope="module")
def looped(randomize):
    """A model by its name and its loop, compiled once for all tests; none changes the weights."""

    @functools.cache
    def looped(name):
        model = randomize(MODELS[name].build_model(V), scale=1.0)
        return model, SamplingLoop(model)

    return looped


@functools.cache
def forward(model):
    return compiled(lambda ids: model(ids, training=False), model)


def whole_passes(model, prompt, count, seed, row, options, penalty=1.0, longest=48):
    """The oracle: a whole pass for every id, and a draw by its row and place. A full window moves by half."""
    window = model.context_length or longest  # one size for all: what stands behind a position cannot change it
    half, ids = window // 2, list(prompt)
    for u in uniform_draws(seed, row, count):
        start = max(0, math.ceil((len(ids) - window) / half)) * half
        padded = np.zeros((1, window), "int32")
        padded[0, : len(ids) - start] = ids[start:]
        logits = ops.convert_to_numpy(forward(model)(padded))[0, len(ids) - start - 1]
        ids.append(sample(logits, u, in_text=ids, penalty=penalty, **options))
    return ids[len(prompt) :]


@often("name", [*MODELS], QUICK)
def test_the_ids_are_those_of_whole_passes_and_of_the_draws_of_their_row(name, looped):
    (model, loop), count = looped(name), 40  # more than the steps of a call
    found = np.concatenate([*loop(PROMPTS, count, SAMPLING, seed=5, first_row=2)], axis=1)
    options = {"temperature": 0.9, "top_p": 0.95}
    expected = [whole_passes(model, prompt, count, 5, 2 + row, options) for row, prompt in enumerate(PROMPTS)]
    assert found.tolist() == expected


def test_the_penalty_counts_the_ids_of_the_text_so_far_and_the_weights_are_the_present_ones(randomize):
    model = MODELS["lstm"].build_model(V)
    loop, sampling, found = SamplingLoop(model), SamplingConfig(temperature=0.8, repetition_penalty=1.7), []
    for seed in (1, 2):
        randomize(model, seed=seed, scale=1.0)
        found.append(np.concatenate([*loop([[1, 2]], 20, sampling, seed=1)], axis=1)[0].tolist())
        assert found[-1] == whole_passes(model, [1, 2], 20, 1, 0, {"temperature": 0.8}, penalty=1.7)
    assert found[0] != found[1]


@pytest.mark.rare
def test_a_loop_takes_other_options_and_other_batches_after_its_first(looped):
    model, loop = looped("transformer")
    calls = [(1, {"top_p": 0.5}), (1, {"top_k": 2}), (3, {"top_k": 3}), (1, {"top_k": 4})]
    for seed, (rows, options) in enumerate(calls):
        found = np.concatenate([*loop(PROMPTS[:rows], 12, SamplingConfig(**options), seed=seed)], axis=1)
        expected = [whole_passes(model, prompt, 12, seed, n, options) for n, prompt in enumerate(PROMPTS[:rows])]
        assert found.tolist() == expected


SETTINGS = {  # settings of a model after its first text, by name
    "lstm": {"document_token": 2},
    "transformer": {"document_token": 2, "context_length": 4},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_after_the_first_text_are_those_of_the_next(name, randomize):
    model = randomize(MODELS[name].build_model(V), scale=1.0)
    loop, options = SamplingLoop(model), SamplingConfig(temperature=0.9)
    before = np.concatenate([*loop(PROMPTS, 20, options)], axis=1)
    for setting, value in SETTINGS[name].items():
        setattr(model, setting, value)
        after = np.concatenate([*loop(PROMPTS, 20, options)], axis=1)
        with functions_run_eagerly():
            expected = np.concatenate([*SamplingLoop(model)(PROMPTS, 20, options)], axis=1)
        np.testing.assert_array_equal(after, expected)
        assert (after != before).any()


def test_most_tokens_take_no_memory_before_they_are_sampled(looped):
    _, loop = looped("transformer")
    first = next(loop(PROMPTS, 2**31 - 1, SAMPLING, seed=3))
    np.testing.assert_array_equal(first, next(loop(PROMPTS, 60, SAMPLING, seed=3))[:, : first.shape[1]])
