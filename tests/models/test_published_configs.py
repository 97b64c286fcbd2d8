"""Formulas against what is built; published models against what their papers and their weights say."""

import numpy as np
import pytest

from keras_seq.models import PUBLISHED_CONFIGS, BertConfig, GPT2Config, LlamaConfig, Seq2SeqConfig

KINDS = {
    "gpt2": lambda draw, heads: GPT2Config(heads * draw(5), draw(3), heads, draw(20), draw(9)),
    "llama": lambda draw, heads: LlamaConfig(2 * 2 * heads * draw(4), draw(3), 2 * heads, heads, draw(20), draw(9)),
    "encoder": lambda draw, heads: BertConfig(heads * draw(5), draw(3), heads, draw(20), draw(9), draw(3)),
    "seq2seq": lambda draw, heads: Seq2SeqConfig(heads * draw(5), draw(2), draw(2), heads, draw(20)),
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_the_formula_counts_what_is_built(kind, seed):
    random = np.random.default_rng(seed)

    def draw(most):
        return int(random.integers(1, most + 1))

    config, vocabulary_size = KINDS[kind](draw, draw(3)), draw(50)
    assert config.count_params(vocabulary_size) == config.build_model(vocabulary_size).count_params(), config


@pytest.mark.parametrize("name", PUBLISHED_CONFIGS)
def test_a_published_has_as_many_parameters_as_it_says(name):
    published = PUBLISHED_CONFIGS[name]
    assert published.config.count_params(published.vocabulary_size) == published.num_params


def test_the_published_numbers():
    parameters = {name: published.num_params for name, published in PUBLISHED_CONFIGS.items()}
    assert (parameters["gpt2"], parameters["bert_base"]) == (124_439_808, 109_482_240)
    assert round(parameters["gpt3"] / 1e9) == 175
    assert parameters["transformer_base"] == pytest.approx(65e6, rel=0.03)  # the paper's table 3 rounds


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "bert_base"])
def test_a_published_builds_to_its_size(name):
    published = PUBLISHED_CONFIGS[name]
    assert published.config.build_model(published.vocabulary_size).count_params() == published.num_params
