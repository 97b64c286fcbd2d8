import functools
import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.generation import SamplingConfig, SamplingLoop, SpeculativeLoop
from keras_seq.generation.samplers import probabilities, sample_token
from keras_seq.generation.speculative import accept, can_rewind, rewound, with_free_slots
from keras_seq.models import (
    Ensemble,
    GPT2Config,
    GRUConfig,
    HybridConfig,
    LlamaConfig,
    LSTMConfig,
    MambaConfig,
    TransformerConfig,
)

pytestmark = pytest.mark.any_backend
V = 5
RANDOM = np.random.default_rng(7)
CONFIGS = {
    "lstm": LSTMConfig(embedding_dim=4, units=6),
    "gru": GRUConfig(embedding_dim=4, units=3),
    "mamba": MambaConfig(embedding_dim=4, num_layers=1, state_dim=2),
    "gpt2": GPT2Config(embedding_dim=4, num_layers=1, num_heads=1, feed_forward_dim=4, context_length=16),
    "forgetting": TransformerConfig(4, 1, 1, 4, 16, kernel_size=None, use_forget_gate=True, use_sinks=True),
}


@pytest.fixture(scope="module")
def small(randomize):
    return lambda name, seed=0: randomize(CONFIGS[name].build_model(V), seed=seed, scale=0.8)


@pytest.fixture(scope="module")
def plain_loop(small):
    """The loop of a small model alone, compiled once for all tests; none changes its weights."""
    return functools.cache(lambda name: SamplingLoop(small(name)))


@pytest.fixture(scope="module")
def speculative_loop(small):
    """The loop of two small models and as many proposals, compiled once for all tests; none changes their weights."""
    return functools.cache(lambda model, draft, k, seed=0: SpeculativeLoop(small(model), small(draft, seed), k))


def test_the_probabilities_are_those_that_ids_are_drawn_with():
    logits = RANDOM.normal(size=(1, V)).astype("float32") * 2
    options = {name: ops.convert_to_tensor(v) for name, v in SamplingConfig(0.7, top_k=4, top_p=0.9).options.items()}
    p = ops.convert_to_numpy(probabilities(ops.convert_to_tensor(logits), options))[0]
    draws = (np.arange(20_000, dtype="float32") + 0.5) / 20_000
    rows = ops.convert_to_tensor(np.repeat(logits, len(draws), axis=0))
    ids = ops.convert_to_numpy(sample_token(rows, ops.convert_to_tensor(draws), options))
    np.testing.assert_allclose(np.bincount(ids, minlength=V) / len(draws), p, atol=1e-4)


@pytest.mark.parametrize("k", [1, 3])
def test_accepted_proposals_are_distributed_as_the_model_draws(k):
    """20,000 draws of the first two ids, against p: chi-square. Proposals and p depend on the ids before."""
    p, q = (RANDOM.dirichlet(np.full(V, 0.6), size=(V,)).astype("float32") for _ in range(2))  # [last, next]
    total = 20_000

    def one_round(last):
        draws, rest = np.split(RANDOM.random((total, 2 * k + 1)).astype("float32"), [k], axis=1)
        ids = [last]
        for draw in draws.T:
            cumulative = np.cumsum(q[ids[-1]], axis=1)
            ids.append((cumulative <= draw[:, None] * cumulative[:, -1:]).sum(axis=1))
        ids = np.stack(ids, axis=1)
        tensors = (ops.convert_to_tensor(x) for x in (ids[:, 1:], q[ids[:, :-1]], p[ids], rest))
        count, following = (ops.convert_to_numpy(x) for x in accept(*tensors))
        new = np.pad(ids[:, 1:], ((0, 0), (0, 1)))
        new[np.arange(total), count] = following
        return new, count

    new, count = one_round(np.zeros(total, int))
    first = new[:, 0]
    second = np.where(count > 0, new[:, 1], one_round(first)[0][:, 0])
    counts = np.bincount(V * first + second, minlength=V * V).reshape(V, V)
    expected = total * p[0][:, None] * p
    usual = expected > 5
    chi_square = ((counts - expected) ** 2 / expected)[usual].sum()
    assert chi_square < usual.sum() + 4 * np.sqrt(2 * usual.sum())
    q_only = total * q[0][:, None] * q
    assert ((counts - q_only) ** 2 / q_only)[q_only > 5].sum() > 1000  # not the draft's


@pytest.mark.parametrize(
    ("model", "draft", "k"),
    [
        ("gpt2", "gru", 4),
        *(
            pytest.param(*case, marks=pytest.mark.rare)
            for case in (("forgetting", "gru", 3), ("lstm", "mamba", 1), ("mamba", "gpt2", 4))
        ),
    ],
)
def test_at_temperature_0_the_ids_are_greedy(plain_loop, speculative_loop, model, draft, k):
    prompt = [1, 3, 2]
    (plain,) = np.concatenate([*plain_loop(model)([prompt], 12, SamplingConfig(0.0))], axis=1)
    speculation = speculative_loop(model, draft, k)(prompt, 12, SamplingConfig(0.0))
    assert speculation.ids == plain.tolist()
    assert 12 / (k + 1) <= speculation.model_calls <= 12


@pytest.mark.rare
def test_a_draft_that_is_the_model_is_always_right(small):
    model = small("lstm")
    loop = SpeculativeLoop(model, model, 3)
    assert loop([1], 12, seed=2).model_calls == 3
    assert loop([1], 11, SamplingConfig(0.0)).model_calls == 3


@pytest.mark.rare
def test_texts_have_the_probabilities_of_the_model(small):
    model, draft, prompt, count = small("lstm"), small("gru", seed=1), [1, 2], 1500
    loop = SpeculativeLoop(model, draft, 2)
    texts = [tuple(loop(prompt, 2, seed=n).ids) for n in range(count)]
    chi_square, degrees = 0.0, V**2 - 1
    for text in itertools.product(range(V), repeat=2):
        logits = ops.convert_to_numpy(model(np.array([[*prompt, *text]])))[0, 1:3].astype("float64")
        p = np.exp(logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)))
        expected = count * p[0, text[0]] * p[1, text[1]]
        chi_square += (texts.count(text) - expected) ** 2 / expected
    assert chi_square < degrees + 4 * np.sqrt(2 * degrees)


@pytest.mark.usefixtures("eagerly")
def test_mistakes_are_named(small):
    model = small("gpt2")
    other = GRUConfig(embedding_dim=2, units=2).build_model(V + 1)
    for constructor, arguments, message in (
        ((model, other), ([1], 3), "The draft has 6 ids, the model 5"),
        ((model, keras.Sequential(name="plain")), ([1], 3), "plain.*expected a LanguageModel"),
        ((None, model), ([1], 3), "None; expected a LanguageModel"),
        ((model, model, 0), ([1], 3), "num_draft_tokens=0"),
        ((model, model), ([1], 16), "context_length=16 of gpt2"),
        ((model, model), ([], 3), "prompt is empty"),
        ((model, model), ([9], 3), "ids"),
        ((model, model), ([1.5], 3), r"ids=\[1.5\]"),
        ((model, model), ("ab", 3), "ids='ab'"),
        ((model, model), ([1], 3, None, -1), "seed=-1"),
        ((model, model), ([1], 3, {"temperature": 1}), "sampling="),
        ((model, model), ([1], -1), "max_new_tokens=-1"),
        ((model, model), ([1], 3, SamplingConfig(repetition_penalty=2.0)), "repetition_penalty=2.0"),
    ):
        with pytest.raises(ValueError, match=message):
            SpeculativeLoop(*constructor)(*arguments)
    loop = SpeculativeLoop(model, model)
    assert loop([1], 0).ids == []
    assert len(loop([1], np.int64(3)).ids) == 3
    model.embedding.embeddings.assign(np.full(model.embedding.embeddings.shape, np.nan))
    with pytest.raises(ValueError, match="not finite"):
        loop([1], 2)


@pytest.mark.rare
def test_a_text_may_end_with_the_context(plain_loop, speculative_loop):
    loop = speculative_loop("gpt2", "gpt2", 4, 1)
    for new in (11, 12, 13):  # up to the 16 positions of both models, which have no vectors for more
        (plain,) = np.concatenate([*plain_loop("gpt2")([[1, 3, 2]], new, SamplingConfig(0.0))], axis=1)
        assert loop([1, 3, 2], new, SamplingConfig(0.0)).ids == plain.tolist()


@pytest.mark.rare
def test_a_prompt_may_be_long(plain_loop, speculative_loop):
    prompt = [1, 3, 2, 0, 4, 4, 1] * 10
    (plain,) = np.concatenate([*plain_loop("lstm")([prompt], 9, SamplingConfig(0.0))], axis=1)
    speculation = speculative_loop("lstm", "gru", 2, 1)(prompt, 9, SamplingConfig(0.0))
    assert speculation.ids == plain.tolist()
    assert 3 <= speculation.model_calls <= 9


def test_a_seed_gives_one_text(speculative_loop):
    loop = speculative_loop("gpt2", "gru", 4)
    texts = [loop([1, 2], 12, seed=seed).ids for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]


LLAMA = {"embedding_dim": 8, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 8, "context_length": 16}
REWOUND = {
    "gpt2": (CONFIGS["gpt2"], True),
    "llama": (LlamaConfig(**LLAMA), True),
    "forgetting": (CONFIGS["forgetting"], True),
    "window": (LlamaConfig(**LLAMA, sliding_window=3), False),
    "lstm": (CONFIGS["lstm"], False),
    "hybrid": (HybridConfig(embedding_dim=8, num_heads=2, num_layers=2, pattern="ra", context_length=16), False),
}


@pytest.mark.parametrize("name", REWOUND)
def test_a_rewound_state_is_that_of_fewer_positions(randomize, name):
    """Read 3 ids, then 4 of which 2 count, then 2 more: the logits are those of the 7 ids that count."""
    config, rewinds = REWOUND[name]
    model = randomize(config.build_model(V), seed=1, scale=0.5)
    start, ids, more = (RANDOM.integers(V, size=(1, n)).astype("int32") for n in (3, 4, 2))
    state = with_free_slots(model.get_initial_state(1, *(() if model.context_length is None else (7,))), 2)
    _, before = model(start, state=state, return_state=True)
    assert can_rewind(model, before) == rewinds
    mask = None if rewinds else np.arange(4)[None] < 2
    _, after = model(ids, state=before, return_state=True, mask=mask)
    state = rewound(before, after, ops.convert_to_tensor(2, "int32"))
    logits, _ = model(more, state=state, return_state=True)
    whole = model(np.concatenate([start, ids[:, :2], more], axis=1))
    np.testing.assert_allclose(ops.convert_to_numpy(logits), ops.convert_to_numpy(whole)[:, -2:], rtol=1e-4, atol=1e-4)


def test_documents_and_members_of_an_ensemble_count(randomize):
    model = REWOUND["gpt2"][0].build_model(V)
    lstm = REWOUND["lstm"][0].build_model(V)
    for built, rewinds in ((Ensemble([model]), True), (Ensemble([model, lstm]), False)):
        assert can_rewind(built, built.get_initial_state(1, 7)) == rewinds
    model.document_token = 0
    assert not can_rewind(model, model.get_initial_state(1, 7))
