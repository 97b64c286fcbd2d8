import itertools
import math

import numpy as np
import pytest

from keras_seq.baselines import KneserNeyNGrams
from keras_seq.data.synthetic import Grammar, bracket_grammar

SMALL = Grammar(
    {
        "S": {"(": (0.5, ("A", "S")), "x": (0.3, ()), "y": (0.2, ("A",))},
        "A": {"x": (0.6, ()), "(": (0.1, ("S", "A")), "z": (0.3, ("B",))},
        "B": {".": (1.0, ())},
    },
    "S",
)
SHORT = Grammar(  # long sentences are so rare that all that matter can be listed
    {"S": {"(": (0.1, ("S", "E")), "a": (0.8, ()), "b": (0.1, ("E",))}, "E": {")": (0.85, ()), "-": (0.15, ("S",))}},
    "S",
)


def sentences(grammar, least):
    """All sentences of at least this probability, by rewriting the first nonterminal."""
    open_ones, done = [("", (grammar.start,), 1.0)], {}
    while open_ones:
        text, stack, p = open_ones.pop()
        if not stack:
            assert text not in done, "two ways to one sentence"
            done[text] = p
            continue
        for terminal, (share, rest) in grammar.rules[stack[0]].items():
            if p * share >= least:
                open_ones.append((text + terminal, rest + stack[1:], p * share))
    return done


def ids(grammar, text):
    return [grammar.terminals.index(sign) for sign in text]


def spelled(grammar, some):
    return "".join(grammar.terminals[n] for n in some)


@pytest.fixture(scope="module")
def listed():
    return sentences(SHORT, 1e-10)


def test_entropy_and_length_are_those_of_all_sentences(listed):
    assert sum(listed.values()) == pytest.approx(1, abs=1e-5)
    length = sum(p * len(text) for text, p in listed.items())
    entropy = -sum(p * math.log(p) for p in listed.values())
    assert SHORT.sentence_length == pytest.approx(length, rel=1e-4)
    assert SHORT.entropy_rate == pytest.approx(entropy / length, rel=1e-4)


def test_the_true_loss_is_what_an_id_costs_given_how_the_sentence_begins(listed):
    begun = {}
    for text, p in listed.items():
        for end in range(len(text) + 1):
            begun[text[:end]] = begun.get(text[:end], 0) + p
    checked = [text for text, p in begun.items() if p > 1e-3]
    assert len(checked) > 20
    for text in checked:
        expected = [-math.log(begun[text[: end + 1]] / begun[text[:end]]) for end in range(len(text))]
        np.testing.assert_allclose(SHORT.token_losses(ids(SHORT, text)), expected, atol=2e-3)


def test_no_sentence_begins_another_and_each_ends_where_it_ends():
    found = sorted(sentences(SMALL, 1e-4))
    assert len(found) > 50
    assert not any(after.startswith(before) for before, after in itertools.pairwise(found))


def test_a_text_is_sentences_side_by_side():
    one, other = "yx", "(xx"
    both = SMALL.token_losses(ids(SMALL, one + other))
    np.testing.assert_allclose(both, [*SMALL.token_losses(ids(SMALL, one)), *SMALL.token_losses(ids(SMALL, other))])


def test_texts_are_drawn_from_the_grammar(listed):
    some = SHORT.sample(30_000, seed=0)
    assert some.dtype == "int32"
    nats = SHORT.token_losses(some)
    assert nats.mean() == pytest.approx(SHORT.entropy_rate, abs=6 * nats.std() / math.sqrt(len(nats)))
    cut, text = [], ""
    for sign in spelled(SHORT, some):  # no sentence begins another, so the first that is listed is it
        text += sign
        if text in listed:
            cut.append(text)
            text = ""
    assert len(cut) > 10_000
    for text, p in listed.items():
        if p > 0.01:
            assert cut.count(text) / len(cut) == pytest.approx(p, abs=5 * math.sqrt(p / len(cut)))


def test_a_text_is_a_function_of_the_seed():
    np.testing.assert_array_equal(SMALL.sample(100, 3), SMALL.sample(100, 3))
    np.testing.assert_array_equal(SMALL.sample(30, 3), SMALL.sample(100, 3)[:30])
    assert (SMALL.sample(100, 3) != SMALL.sample(100, 4)).any()
    assert len(SMALL.sample(0, 3)) == 0


def test_brackets_close_as_they_open():
    grammar = bracket_grammar(num_letters=5)
    pairs, stack, deepest, longest = {")": "(", "]": "[", "}": "{", ">": "<"}, [], 0, 0
    for place, sign in enumerate(spelled(grammar, grammar.sample(20_000, seed=0))):
        if sign in pairs.values():
            stack.append((sign, place))
            deepest = max(deepest, len(stack))
        elif sign in pairs:
            opened, where = stack.pop()
            assert opened == pairs[sign]
            longest = max(longest, place - where)
        else:
            assert sign in "abcde"
            assert stack
    assert deepest > 5
    assert longest > 100
    assert grammar.sentence_length == pytest.approx(1 + 1 / (0.24 - 0.16))


def test_near_signs_do_not_tell_what_comes():
    grammar = bracket_grammar()
    train, text = grammar.sample(200_000, 0), grammar.sample(10_000, 1)
    true = grammar.token_losses(text).mean()
    for order in (2, 4, 6):
        assert KneserNeyNGrams(train, order, grammar.vocabulary_size).token_losses(text).mean() > 1.1 * true


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"S": {"a": (0.5, ())}}, "expected a sum of 1"),
        ({"S": {"a": (1.5, ()), "b": (-0.5, ())}}, "expected a sum of 1"),
        ({"S": {"a": (1.0, ("B",))}}, r"no rules for the nonterminals \['B'\]"),
        ({"T": {"a": (1.0, ())}}, r"no rules for the nonterminals \['S'\]"),
        ({"S": {"ab": (1.0, ())}}, "one character each"),
        ({"S": {"(": (0.5, ("S", "S")), ".": (0.5, ())}}, "no finite expected length"),
        ({"S": {"a": (1.0, ("S",))}}, "no finite expected length"),
    ],
)
def test_what_makes_no_grammar_is_refused(rules, message):
    with pytest.raises(ValueError, match=message):
        Grammar(rules, "S")
