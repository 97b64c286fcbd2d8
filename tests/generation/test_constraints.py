"""Constrained texts against brute force: every sequence of tokens, by the definition of constraints.py."""

import itertools
import json
import re

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.generation import SamplingConfig, SamplingLoop, TextGenerator, choices, json_schema, regex
from keras_seq.generation.constraints import ENDED
from keras_seq.models import GPT2Config, LSTMConfig
from keras_seq.tokenizers import (
    BytePairTokenizer,
    CharacterTokenizer,
    PretrainedTokenizer,
    WordPieceTokenizer,
    WordTokenizer,
)

pytest.importorskip("outlines_core")
pytestmark = pytest.mark.any_backend
TOKENIZER = CharacterTokenizer("abcd")
PATTERNS = ["a(b|cd?)*", "ab?c?", "(ab|ba){2}", "[ab]{3}|d", "aé?"]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer"},
        "weight": {"type": "number"},
        "tags": {"type": "array", "items": {"enum": ["new", 'a "b"']}, "maxItems": 3},
        "parent": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
PRINTABLE = CharacterTokenizer.from_text("".join(map(chr, range(32, 127))) + "é猫\n")


def texts_of(pattern, alphabet, most):
    """Every text of a pattern of at most so many characters."""
    every = (map("".join, itertools.product(alphabet, repeat=n)) for n in range(most + 1))
    return {text for text in itertools.chain(*every) if re.fullmatch(pattern, text)}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_automaton_has_the_texts_of_the_pattern(pattern):
    automaton = regex(pattern).automaton(TOKENIZER)
    language, shorter = texts_of(pattern, "abcd", 5), texts_of(pattern, "abcd", 4)
    for text in map("".join, itertools.chain(*(itertools.product("abcd", repeat=n) for n in range(6)))):
        state = 0
        for character in text:
            state = automaton.table[state, "abcd".index(character)] if state >= 0 else -1
        assert (state >= 0 and automaton.distance[state] == 0) == (text in language), text
        shortest = min((len(t) - len(text) for t in shorter if t.startswith(text)), default=None)
        if shortest is not None:
            assert automaton.distance[state] == shortest


def random_pattern(rng, depth=3):
    kind = rng.integers(6) if depth else 0
    if kind == 0:
        return rng.choice(["a", "b", "é", ".", "[bé]", "[^a]"])
    if kind < 3:
        return "".join(random_pattern(rng, depth - 1) for _ in range(rng.integers(1, 4)))
    inner = random_pattern(rng, depth - 1)
    return f"({inner}|{random_pattern(rng, depth - 1)})" if kind == 3 else f"({inner}){rng.choice([*'?*+'])}"


@pytest.mark.parametrize(
    "pattern",
    [
        *("a(bé)?", "(ab)+", "a|ab", r"\w+", ".+", "[^b]*", "a+( a+)*"),
        *map(random_pattern, np.random.default_rng(0).spawn(50)),
    ],
)
def test_a_text_may_go_on_behind_a_whole_match_through_texts_that_are_none(pattern):
    alphabet = "abé "
    automaton = regex(pattern).automaton(CharacterTokenizer.from_text(alphabet))
    language = texts_of(pattern, alphabet, 4)
    for text in map("".join, itertools.chain(*(itertools.product(alphabet, repeat=n) for n in range(5)))):
        state = 0
        for character in text:
            state = automaton.table[state, sorted(alphabet).index(character)] if state >= 0 else -1
        assert (state >= 0 and automaton.distance[state] == 0) == (text in language), text


def probabilities(model, tokens, prompt, pattern, most):
    """The probability of each text, by the definition: renormalized where it cannot end, the rest where it can."""
    result = {}

    def extend(ids, p):
        text = "".join(tokens[n] for n in ids)
        logits = ops.convert_to_numpy(model(np.array([[*prompt, *ids]])))[0, -1].astype("float64")
        q = np.exp(logits - logits.max())
        q /= q.sum()
        left = most - len(ids)
        ends = {len(t) - len(text) for t in texts_of(pattern, "abcd", most) if t.startswith(text)}
        following = {
            n: min((len(t) - len(text) - len(tokens[n]) for t in texts_of(pattern, "abcd", most + 3)
                    if t.startswith(text + tokens[n])), default=99)
            for n in range(len(tokens))
        }  # fmt: skip
        allowed = [n for n, rest in following.items() if rest < left]
        if 0 in ends:
            result[text] = result.get(text, 0) + p * (1 - q[allowed].sum())
        else:
            q = q / q[allowed].sum()
        for n in allowed:
            extend([*ids, n], p * q[n])

    extend([], 1.0)
    return result


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name", ["lstm", pytest.param("gpt2", marks=pytest.mark.rare)])
def test_texts_have_the_probabilities_of_brute_force(name, randomize):
    config = {
        "lstm": LSTMConfig(embedding_dim=3, units=4),
        "gpt2": GPT2Config(embedding_dim=4, num_layers=1, num_heads=1, feed_forward_dim=4, context_length=8),
    }[name]
    model = randomize(config.build_model(4), scale=0.7)
    count, pattern, most = 4000, "a(b|cd?)*|da", 3
    expected = probabilities(model, "abcd", [1, 2], pattern, most)
    assert sum(expected.values()) == pytest.approx(1)
    texts = TextGenerator(model, TOKENIZER)(count * ["bc"], most, constraint=regex(pattern))
    observed = {text: texts.count("bc" + text) for text in expected}
    assert sum(observed.values()) == count
    chi_square = sum((observed[t] - count * p) ** 2 / (count * p) for t, p in expected.items() if p > 0)
    degrees = len(expected) - 1
    assert chi_square < degrees + 4 * np.sqrt(2 * degrees)
    assert degrees >= 5


def written(generator, constraint, count=100, **options):
    """Texts after "x"; as many each time, as another number is compiled anew."""
    return [text[1:] for text in generator(count * ["x"], **options, constraint=constraint)]


@pytest.fixture(scope="module")
def untrained():
    """The generator of a model that was not trained; no test changes it."""
    keras.utils.set_random_seed(0)  # a fixture comes before the seed of its test
    return TextGenerator(LSTMConfig(embedding_dim=4, units=8).build_model(PRINTABLE.vocabulary_size), PRINTABLE)


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.rare)])
def test_what_an_untrained_model_writes_is_json_of_the_schema(untrained, count):
    jsonschema = pytest.importorskip("jsonschema")
    texts = written(untrained, json_schema(SCHEMA), count, max_new_tokens=90)
    assert len(set(texts)) == count
    for text in texts:
        jsonschema.validate(json.loads(text), SCHEMA)
    assert any('"weight"' in text for text in texts)
    assert any("猫" in text or "é" in text for text in texts)


def test_a_text_ends_within_its_tokens_always(untrained):
    shortest = '{"name":"","age":0,"tags":[]}'
    constraint = json_schema(SCHEMA)
    texts = written(untrained, constraint, max_new_tokens=len(shortest))
    assert {re.sub("[1-9]", "0", text) for text in texts} == {shortest}
    message = f"max_new_tokens={len(shortest) - 1}; expected at least {len(shortest)}, the tokens of the shortest"
    with pytest.raises(ValueError, match=message):
        written(untrained, constraint, max_new_tokens=len(shortest) - 1)
    with pytest.raises(ValueError, match=message):  # before the iterator is returned
        untrained.stream("x", len(shortest) - 1, constraint=constraint)


def test_choices_are_chosen_and_signs_are_no_pattern(untrained):
    options = ["a+b", "(x)", "a|b ", "é\n#", "%-&~", "a+", "a+bé"]
    texts = written(untrained, choices(options), max_new_tokens=4)
    longer = {"a+b", "a+bé"}  # an untrained model mostly ends at "a+", as nearly all of its other ids are none of these
    assert set(options) - longer <= set(texts) <= set(options)


def test_the_model_ends_a_text_where_it_would_leave_the_pattern():
    """A model that always writes b after a, and c after b."""
    model = LSTMConfig(embedding_dim=4, units=4).build_model(4)
    model.embedding.set_weights([np.eye(4)])
    follow = keras.ops.convert_to_tensor(100 * np.eye(4)[[1, 2, 3, 0]], "float32")
    model.call = lambda ids, state=None, training=None, return_state=False: (
        (follow_of(ids, follow), state or model.get_initial_state(ids.shape[0]))
        if return_state
        else follow_of(ids, follow)
    )

    def follow_of(ids, follow):
        return ops.take(follow, ids, axis=0)

    generator = TextGenerator(model, TOKENIZER)
    for pattern, expected in (("(a|b)+", "b"), ("[abc]+", "bc"), ("[abc]{3}a", "bcaa"), ("[a-d]+", "bcdabc")):
        assert generator("a", 6, temperature=0, constraint=regex(pattern)) == "a" + expected


def test_a_document_token_is_no_text(randomize):
    model = randomize(LSTMConfig(embedding_dim=3, units=4).build_model(4))
    model.document_token = 1
    texts = TextGenerator(model, TOKENIZER)(50 * ["a"], 3, constraint=regex("[abc]{3}"))
    assert {*"".join(texts)} == {"a", "c"}


@pytest.mark.rare
def test_prompts_of_several_lengths_and_a_full_context(randomize):
    """A row ends by itself, whatever its neighbours do; the cache starts anew in between."""
    config = GPT2Config(embedding_dim=4, num_layers=1, num_heads=1, feed_forward_dim=4, context_length=6)
    generator = TextGenerator(randomize(config.build_model(4)), TOKENIZER)
    prompts = ["a", "abcdabcd", "dd"]
    texts = generator(prompts, 12, constraint=regex("(ab|c)*d"), seed=5)
    for n, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        assert re.fullmatch("(ab|c)*d", text.removeprefix(prompt))
        columns = generator.sampling_loop(
            [TOKENIZER.encode(prompt).tolist()],
            12,
            SamplingConfig(),
            5,
            first_row=n,
            automaton=regex("(ab|c)*d").automaton(TOKENIZER),
        )
        ids = np.concatenate([*columns], axis=1)[0]
        assert TOKENIZER.decode(ids[ids >= 0]) == text.removeprefix(prompt)
        assert ids.shape == (12,)
        assert set(ids[len(text) - len(prompt) :]) <= {ENDED}


@pytest.mark.rare
@pytest.mark.filterwarnings("ignore:.*the slow way")
def test_a_keras_model_without_a_state_writes_the_same(randomize):
    model = randomize(LSTMConfig(embedding_dim=3, units=4).build_model(4))
    ids = keras.Input((None,), dtype="int32")
    plain = keras.Model(ids, model(ids))
    for options in ({}, {"repetition_penalty": 1.5, "top_k": 2}):
        options |= {"max_new_tokens": 7, "constraint": regex("(ab?|cd)+"), "seed": 3}
        prompts = ["a", "bcd"]
        assert TextGenerator(plain, TOKENIZER)(prompts, **options) == TextGenerator(model, TOKENIZER)(
            prompts, **options
        )


def test_a_stream_is_the_text_in_parts(untrained):
    options = {"constraint": json_schema(SCHEMA), "max_new_tokens": 90}
    assert "x" + "".join(untrained.stream("x", **options)) == untrained("x", **options)


@pytest.mark.rare
@pytest.mark.parametrize("tokenizer", [BytePairTokenizer, WordTokenizer])
def test_subwords_and_words_write_the_pattern(tokenizer):
    tokenizer = tokenizer.from_text(
        "a cat, a dog é ", **({"vocabulary_size": 270} if tokenizer is BytePairTokenizer else {})
    )
    model = LSTMConfig(embedding_dim=4, units=8).build_model(tokenizer.vocabulary_size)
    pattern = "a( (cat|dog)){4} é"
    texts = [
        text.removeprefix("a ") for text in TextGenerator(model, tokenizer)(30 * ["a "], 30, constraint=regex(pattern))
    ]
    assert all(re.fullmatch(pattern, text) for text in texts)
    assert len(set(texts)) > 1


def test_a_tokenizer_json_of_bytes_writes_the_texts_of_its_tokenizer():
    tokenizer = BytePairTokenizer.from_text("cat dog")
    model = LSTMConfig(embedding_dim=4, units=8).build_model(tokenizer.vocabulary_size)
    read = PretrainedTokenizer(tokenizer.to_tokenizer_json())
    for constraint in (choices([" dog", " cat"]), regex("[a-z]+  é"), regex("[😀-🙏]")):
        got, expected = (constraint.automaton(each) for each in (read, tokenizer))
        np.testing.assert_array_equal(got.table, expected.table)
        np.testing.assert_array_equal(got.distance, expected.distance)
    assert re.fullmatch("cat[😀-🙏]", TextGenerator(model, read)("cat", 20, constraint=constraint, seed=3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: choices("abc"), "choices='abc'; expected a list"),
        (lambda: choices([]), r"choices=\[\]"),
        (lambda: choices(iter(["a"])), "choices=<list_iterator"),
        (lambda: choices(3), "choices=3; expected a list"),
        (lambda: choices(["a", ""]), r"choices=\['a', ''\]"),
        (lambda: regex(""), "regex=''"),
        (lambda: regex("(").automaton(TOKENIZER), r"The constraint '\(' cannot be used: Failed to build DFA"),
        (lambda: regex("ax").automaton(TOKENIZER), r"cannot be used: .*\[\"x\"\]"),
        (lambda: regex("a").automaton(TOKENIZER, [0]), "cannot be used"),
        (lambda: regex("a").automaton(WordPieceTokenizer.from_text("abc")), "WordPieceTokenizer does not keep white"),
        (
            lambda: regex("a").automaton(PretrainedTokenizer(WordPieceTokenizer.from_text("abc").to_tokenizer_json())),
            "The decoder of the tokenizer.json, WordPiece, does not give each token bytes",
        ),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_constraint_of_another_kind_is_refused(untrained):
    with pytest.raises(ValueError, match="constraint='a'; expected a Constraint"):
        untrained("x", 3, constraint="a")


@pytest.mark.usefixtures("eagerly")
def test_logits_that_are_not_finite_are_an_error():
    model = LSTMConfig(embedding_dim=3, units=4).build_model(4)
    model.head.bias.assign([0, np.nan, 0, 0])
    with pytest.raises(ValueError, match="not finite"):
        [*SamplingLoop(model)([[0]], 3, automaton=regex("[abcd]{3}").automaton(TOKENIZER))]
