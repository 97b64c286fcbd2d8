"""Readers of files, given files that are changed at random; `python -m tests.fuzz.long` goes on as long as wanted."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from experiments import word_lm
from experiments.compare import __main__ as compare
from keras_seq.data import RandomWindows, ShuffledWindows, StatefulWindows
from keras_seq.tokenizers import BytePairTokenizer, CharacterTokenizer, WordTokenizer
from tests.fuzz.targets import TARGETS, survives

FEW, MANY = 12, 1500
RELAXED = {"suppress_health_check": [*HealthCheck]}
NUMBERS = st.one_of(st.integers(), st.floats(), st.sampled_from([2**31, 2**63, -1, 0, 1e308]))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=8,
)


def places(value, path=()):
    """The path to each part of a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def replaced(value, path, new):
    """The value with another part at a path."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


@st.composite
def changed(draw, seeds):
    """A file that is nearly one of the seeds: a few bytes or, of JSON, a part are others, or it ends too early."""
    seed = draw(st.sampled_from(seeds))
    way = draw(st.sampled_from(["part", "part", "bytes", "cut", "any"]))
    if way == "any":
        return draw(st.binary(max_size=200))
    if way == "cut":
        return seed[: draw(st.integers(0, len(seed)))]
    if way == "part":
        try:
            value = json.loads(seed)
        except ValueError:
            way = "bytes"
        else:
            path = draw(st.sampled_from([*places(value)]))
            return json.dumps(replaced(value, path, draw(VALUES))).encode()
    data = bytearray(seed)
    for _ in range(draw(st.integers(1, 4))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


def fuzzed(name, examples):
    @settings(max_examples=examples, **RELAXED)
    @given(changed(TARGETS[name][1]))
    def run(data):
        said = survives(name, data)
        assert said is None or (said and "Traceback" not in said)

    run()


@pytest.mark.parametrize("name", [name for name in TARGETS if not name.startswith("archive")])
def test_a_reader_survives_a_few_files(name):
    fuzzed(name, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_reader_survives_many_files(name):
    fuzzed(name, MANY if not name.startswith("archive") else 150)


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_whole_is_read(name):
    reader, seeds = TARGETS[name]
    for seed in seeds:
        reader(seed)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


@settings(max_examples=FEW, **RELAXED)
@given(TEXTS, TEXTS)
@example("a", "b")
def test_texts_come_back_from_their_ids(text, other):
    pairs = BytePairTokenizer.from_text(text)
    assert pairs.decode(pairs.encode(other)) == other
    assert WordTokenizer.from_text(text).decode(WordTokenizer.from_text(text).encode(text)) == text
    vocabulary = CharacterTokenizer.from_text(text, oov_token="[UNK]")
    assert vocabulary.decode(vocabulary.encode(text)) == text
    assert len(vocabulary.decode(vocabulary.encode(other))) == len(other)


@settings(max_examples=40, **RELAXED)
@given(st.integers(-2, 70), st.integers(-1, 9), st.integers(-1, 9), st.integers(-1, 2**63), st.integers(0, 2**62))
def test_batches_are_slices_of_the_text_or_are_refused(length, batch_size, row, seed, step):
    ids = np.arange(max(0, length))
    for kind in (StatefulWindows, RandomWindows, ShuffledWindows):
        try:
            x, y = kind(ids, batch_size, row, seed=seed).batch(step)
        except ValueError:
            continue
        assert x.shape == (batch_size, row)
        np.testing.assert_array_equal(x + 1, y)
        np.testing.assert_array_equal(np.diff(x, axis=1), 1)


WORDS = st.one_of(
    st.sampled_from(
        ["--models", "--seeds", "--train.log-every", "--lstm.units", "--corpus", "lstm", "-1", "nan", "--"]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9),
)


@settings(max_examples=FEW, **RELAXED)
@given(st.lists(WORDS, max_size=4).filter(lambda words: not {"-h", "--help"} & {*words}))
def test_a_command_line_ends_with_status_2(tmp_path_factory, words_given):
    folder = tmp_path_factory.mktemp("fuzzed")
    for script in (compare, word_lm):
        with pytest.raises(SystemExit) as stop:
            script.main([*words_given, "--log-dir", str(folder), "--corpus", str(folder / "missing")])
        assert stop.value.code == 2
        assert [*folder.iterdir()] == []
