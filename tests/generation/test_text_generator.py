import dataclasses

import keras
import numpy as np
import pytest

from keras_seq.evaluation import score_text
from keras_seq.generation import TextGenerator, generate, stream
from keras_seq.layers import RotaryPositions
from keras_seq.models import LANGUAGE_MODELS, LlamaConfig
from keras_seq.tokenizers import BytePairTokenizer, CharacterTokenizer, WordPieceTokenizer
from tests.conftest import randomized
from tests.generation.test_sampling_loop import whole_passes
from tests.models.test_language_model import CONTEXT, SMALL
from tests.models.test_language_model import VOCABULARY as SIZE

VOCABULARY = CharacterTokenizer("\n abcdefghi"[:SIZE])
# within the context, to its end, the least, past a chunk
PROMPTS = ["ab", "abcdefg"[:CONTEXT], "g", 5 * "gfedcba gfedcba\n" + "a"]
MARKS = {"lstm": (), "transformer": pytest.mark.rare}  # the others compile for some seconds each


def made(name, dtype=None, size=VOCABULARY.vocabulary_size):
    """A model with distinct random weights."""
    config = dataclasses.replace(SMALL[name], **({"num_layers": 1} if name in MARKS else {}))
    return randomized(config.build_model(size, dtype=dtype), seed=4, scale=1.0)


@pytest.fixture(scope="module")
def generators():
    """Compiled once for all tests."""
    return {name: TextGenerator(made(name), VOCABULARY) for name in ("lstm", "transformer")}


@pytest.fixture(params=["lstm", pytest.param("transformer", marks=pytest.mark.rare)])
def generator(request, generators):
    return generators[request.param]


def greedy(model, prompt, length):
    """The oracle: a whole pass for every character."""
    ids = VOCABULARY.encode(prompt).tolist()
    return VOCABULARY.decode([*ids, *whole_passes(model, ids, length, 0, 0, {"temperature": 0}, longest=128)])


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS.get(name, pytest.mark.slow)) for name in LANGUAGE_MODELS]
)
def test_greedy_texts_are_the_argmax_of_the_whole_pass(name, generators):
    generator = generators[name] if name in generators else TextGenerator(made(name), VOCABULARY)
    assert generator(PROMPTS, 40, temperature=0) == [greedy(generator.model, prompt, 40) for prompt in PROMPTS]


def test_a_tokenizer_of_ones_own_needs_no_more_than_encode_and_decode(generators):
    class Tokenizer:
        encode, decode = VOCABULARY.encode, VOCABULARY.decode

    model = generators["lstm"].model
    stops = VOCABULARY.encode("a").tolist()
    expected = TextGenerator(model, VOCABULARY)("ab", 8, seed=1, stop_token_ids=stops)
    assert generate(model, Tokenizer(), "ab", 8, seed=1, stop_token_ids=stops) == expected


def test_a_prompt_by_itself_is_written_on_as_among_others(generator):
    texts = generator(PROMPTS, 50, seed=3)
    assert texts[0] == generator(PROMPTS[0], 50, seed=3)
    long = PROMPTS[3][:-2]  # the first row's draws are its own, whatever stands beside it
    assert generator([long, *PROMPTS[1:]], 50, seed=3)[0] == generator(long, 50, seed=3)
    assert [len(text) - len(prompt) for text, prompt in zip(texts, PROMPTS, strict=True)] == 4 * [50]


def test_the_rows_of_a_batch_are_those_of_its_parts(generator):
    prompts = [VOCABULARY.encode(prompt).tolist() for prompt in PROMPTS]
    whole, part = (
        np.concatenate([*generator.sampling_loop(rows, 40, seed=5, first_row=first)], axis=1)
        for rows, first in ((prompts, 0), (prompts[3:], 3))
    )
    np.testing.assert_array_equal(whole[3:], part)
    assert whole.shape == (4, 40)


def test_the_seed_decides_the_text(generator):
    texts = [generator("abc", 30, temperature=2.0, seed=seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert all(text.startswith("abc") and len(text) == 33 for text in texts)


def test_a_beam_of_one_is_greedy_and_a_wider_one_finds_nothing_less_likely(generators):
    generator = generators["lstm"]
    assert generator.beam("abc", 12, num_beams=1) == generator("abc", 12, temperature=0)
    assert generator.contrastive("abc", 12, top_k=1) == generator("abc", 12, temperature=0)

    def loss(text):
        return score_text(generator.model, VOCABULARY, text).bits_per_character

    assert loss(generator.beam("abc", 12, num_beams=8)) <= loss(generator.beam("abc", 12, num_beams=1))


def test_searches_go_no_further_than_the_context(generators):
    for search in (generators["transformer"].beam, generators["transformer"].contrastive):
        assert len(search("abc", CONTEXT - 3)) == CONTEXT
        assert search("abc", 0) == "abc"
        with pytest.raises(ValueError, match=f"context_length={CONTEXT}"):
            search("abc", CONTEXT - 2)


def test_no_length_gives_the_prompt(generators):
    generator = generators["lstm"]
    assert generator("abc", 0) == "abc"
    assert generator(["abc", "a"], 0) == ["abc", "a"]
    assert [*generator.stream("abc", 0)] == []


def test_a_stream_is_the_text_in_pieces(generator):
    pieces = [*generator.stream("abc", 100, seed=4)]
    assert len(pieces) > 2
    assert "abc" + "".join(pieces) == generator("abc", 100, seed=4)


@pytest.mark.parametrize("place", [0, 30, 40, 69])
def test_it_stops_before_a_stop_wherever_that_stands(generator, place):
    whole = generator("abc", 70, temperature=2.0, seed=6)[3:]
    stop = whole[place : place + 5]  # unless it came before
    expected = "abc" + whole[: whole.index(stop)]
    assert generator("abc", 70, temperature=2.0, seed=6, stop_strings=stop) == expected
    assert "abc" + "".join(generator.stream("abc", 70, temperature=2.0, seed=6, stop_strings=("zzz", stop))) == expected
    assert generator(["abc"], 70, temperature=2.0, seed=6, stop_strings=[stop]) == [expected]


@pytest.mark.parametrize("stops", [((3, 30), (20, 22)), ((40, 45), (43, 45)), ((0, 69), (50, 69))])
def test_of_several_stops_the_one_that_is_whole_first_ends_the_text(generator, stops):
    whole = generator("abc", 70, temperature=2.0, seed=6)[3:]
    stops = [whole[slice(*stop)] for stop in stops]
    read = next(whole[:n] for n in range(71) if any(stop in whole[:n] for stop in stops))
    expected = read[: min(read.index(stop) for stop in stops if stop in read)]
    for length in (70, 69, len(read)):
        assert generator("abc", length, temperature=2.0, seed=6, stop_strings=stops) == "abc" + expected
        assert "".join(generator.stream("abc", length, temperature=2.0, seed=6, stop_strings=stops)) == expected


def test_searches_end_before_an_id_that_ends_the_text(generator):
    for search in (generator.beam, generator.contrastive):
        whole = search("a", 6)
        ends = {VOCABULARY.encode(whole[n])[0] for n in (3, 5)}
        found = search("a", 6, stop_token_ids=ends)
        assert not ends & {*VOCABULARY.encode(found[1:]).tolist()}
        if search == generator.contrastive:  # another end may give another beam
            assert whole.startswith(found)
            assert len(found) <= 3


def test_other_prompts_lengths_and_values_are_not_traced_again(generator):
    generator("abc", 40, temperature=0.7, seed=1, top_k=3)
    functions = (generator.sampling_loop._prefill_fn, generator.sampling_loop._sample_fn)
    before = [function.num_traces() for function in functions]
    for prompt, length in (("a", 1), ("abcdefg", 100), ("gfedcba gfedcba", 33)):
        generator(prompt, length, temperature=length / 50, seed=length, top_k=1 + length % 4)
    assert [function.num_traces() for function in functions] == before


def test_positions_and_activations_that_are_set_later_are_those_of_the_next_text(randomize):
    tokenizer = CharacterTokenizer("abcdefghijklmnopqrstuvwxyz")
    model = randomize(LlamaConfig(8, num_layers=1, num_heads=2, context_length=64).build_model(26), scale=0.7)
    kept, block = TextGenerator(model, tokenizer), model.blocks[0]
    texts = [kept("a", 60)]
    block.self_attention_layer.positions = RotaryPositions(scaling="linear", scaling_factor=9.0)
    texts.append(kept("a", 60))
    block.feed_forward_layer.activation = keras.activations.tanh
    texts.append(kept("a", 60))
    assert len({*texts}) == 3
    assert texts[-1] == TextGenerator(model, tokenizer)("a", 60)


@pytest.mark.parametrize("kind", [BytePairTokenizer, pytest.param(WordPieceTokenizer, marks=pytest.mark.rare)])
def test_pieces_of_words_come_back_as_text(kind):
    tokenizer = kind.from_text(
        "to be or not to be, naïve 🎈 as the sea is to the sky", vocabulary_size=300, min_count=1
    )
    generator = TextGenerator(made("lstm", size=tokenizer.vocabulary_size), tokenizer)
    text = generator("to be", 60, seed=1)
    assert text.startswith("to be")
    assert "to be" + "".join(generator.stream("to be", 60, seed=1)) == text
    new = np.concatenate([*generator.sampling_loop([tokenizer.encode("to be").tolist()], 60, seed=1)], axis=1)[0]
    assert text == tokenizer.decode([*tokenizer.encode("to be"), *new])


def test_the_functions_are_the_generator(generators):
    generator = generators["lstm"]
    model = generator.model
    text = generate(model, VOCABULARY, "abc", max_new_tokens=20, seed=3, top_k=4)
    assert text == generator("abc", 20, seed=3, top_k=4)
    assert "abc" + "".join(stream(model, VOCABULARY, "abc", max_new_tokens=20, seed=3, top_k=4)) == text


@pytest.mark.rare
def test_a_model_in_half_precision_writes_too():
    model = made("lstm", dtype="mixed_bfloat16")
    text = TextGenerator(model, VOCABULARY)("a", 10, temperature=0)
    assert len(text) == 11
    assert text[:2] == greedy(model, "a", 1)
