import keras
import numpy as np
import pytest

from keras_seq.generation import Generator
from keras_seq.models import LSTM, Transformer
from keras_seq.text import UnknownCharacterError, Vocabulary

VOCABULARY = Vocabulary("\n abcdefg")
CONTEXT = 6
MODELS = {
    "lstm": LSTM(embedding_dim=3, units=5),
    "transformer": Transformer(embedding_dim=4, num_layers=1, num_heads=2, feed_forward_dim=8, context=CONTEXT),
}


@pytest.fixture(scope="module", params=MODELS)
def generator(request):
    """A model with distinct random weights; its step is traced once for all tests."""
    model = MODELS[request.param].build(VOCABULARY.size)
    random = np.random.default_rng(4)
    for weight in model.trainable_variables:
        weight.assign(random.normal(size=weight.shape))
    return Generator(model, VOCABULARY)


def greedy(model, prompt, length):
    """The oracle: a whole pass for every character. What has a context sees what its last cache was started with."""
    ids = VOCABULARY.encode(prompt).numpy().tolist()
    start = 0
    for _ in range(length):
        if model.context is not None and len(ids) - start > model.context:
            start = len(ids) - model.context // 2
        ids.append(int(np.argmax(model(np.array([ids[start:]]))[0, -1])))
    return VOCABULARY.decode(ids)


@pytest.mark.parametrize(
    ("prompt", "length"),
    [("ab", 4), ("abcdef", 1), ("abcdef", 8), ("g", 20), ("gfedcba gfedcba\nabc", 9)],
    ids=["within the context", "to its end", "past it", "far past it", "from a longer prompt"],
)
def test_greedy_text_is_the_argmax_of_the_whole_pass(generator, prompt, length):
    text = generator(prompt, length, temperature=0)
    assert text == greedy(generator.model, prompt, length)
    assert len(text) == len(prompt) + length


def test_one_candidate_is_greedy_at_any_temperature(generator):
    assert generator("abc", 12, temperature=3.0, top_k=1, seed=5) == generator("abc", 12, temperature=0)


def test_the_seed_decides_the_text(generator):
    texts = [generator("abc", 30, temperature=2.0, seed=seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert all(text.startswith("abc") and len(text) == 33 for text in texts)


def test_no_length_gives_the_prompt(generator):
    assert generator("abc", 0) == "abc"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": ""}, "The prompt is empty"),
        ({"length": -1}, "length=-1"),
        ({"temperature": -0.1}, "temperature=-0.1"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"temperature": float("inf")}, "temperature=inf"),
        ({"top_k": 0}, "top_k=0"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_what_is_out_of_its_range_is_refused_by_name(generator, options, message):
    with pytest.raises(ValueError, match=message):
        generator(**{"prompt": "abc", "length": 2, **options})


def test_a_character_that_the_vocabulary_lacks_is_named(generator):
    with pytest.raises(UnknownCharacterError, match=r"'Z' \(U\+005A\) at position 1"):
        generator("aZ", 2)


def test_the_training_backend_keeps_its_policy(generator):
    """Half precision ends in float64 before anything is drawn."""
    model = LSTM(embedding_dim=3, units=5).build(VOCABULARY.size, dtype="mixed_bfloat16")
    assert keras.backend.standardize_dtype(model.compute_dtype) == "bfloat16"
    assert Generator(model, VOCABULARY)("a", 3, temperature=0) == greedy(model, "a", 3)
