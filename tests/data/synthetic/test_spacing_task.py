import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_seq.data import load_corpus
from keras_seq.data.synthetic.spacing_task import CAPITAL, NUM_TAGS, SPACE, collapse_whitespace, restore, strip_spacing

texts = st.text(
    st.characters(codec="utf-8") | st.sampled_from(" \n\t\u00a0\u2028AaZzİ\u0131ẞßǅǆΣ\u03c3ς\u212a\u2126ﬁŉ'"),
    max_size=40,
)


@given(text=texts)
@settings(max_examples=100)
def test_the_tags_bring_the_text_back_with_its_white_space_as_single_spaces(text):
    assert restore(*strip_spacing(text)) == collapse_whitespace(text)
    assert collapse_whitespace(text) == re.sub(r"\s+", " ", text).rstrip()


@given(text=texts)
@settings(max_examples=100)
def test_what_is_left_has_no_space_and_no_capital_and_is_the_text_but_for_case(text):
    characters, tags = strip_spacing(text)
    assert not any(character.isspace() for character in characters)
    assert len(characters) == len(tags) == len("".join(text.split()))
    again, none = strip_spacing(characters)
    assert again == characters
    assert not none.any()
    for before, after, tag in zip("".join(text.split()), characters, tags, strict=True):
        assert (before == after) is not bool(tag & CAPITAL)
        assert after in (before, before.lower())


@given(text=texts, data=st.data())
@settings(max_examples=100)
def test_wrong_tags_change_nothing_but_spaces_and_capitals(text, data):
    characters, _ = strip_spacing(text)
    count = len(characters)
    tags = data.draw(st.lists(st.integers(0, NUM_TAGS - 1), min_size=count, max_size=count))
    restored = restore(characters, tags)
    assert strip_spacing(restored)[0] == characters
    assert restored.count(" ") == sum(bool(tag & SPACE) for tag in tags)


@pytest.mark.parametrize("character", ["İ", "ẞ", "ǅ", "\u212a", "\u2126", "ß", "ﬁ", "7", "漢"])  # Kelvin, Ohm
def test_what_has_no_way_back_from_its_lower_case_stays(character):
    characters, tags = strip_spacing(f"A{character}a")
    assert (characters, tags.tolist()) == (f"a{character}a", [CAPITAL, 0, 0])
    assert restore(characters, [0, CAPITAL, 0]) == characters


@pytest.mark.parametrize(
    ("text", "characters", "tags"),
    [
        ("", "", []),
        (" \n", "", []),
        ("To be,\n  OR", "tobe,or", [2, 0, 1, 0, 0, 3, 2]),
        (" a\u2003b ", "ab", [1, 1]),
        ("ÉΣЖ", "éσж", [2, 2, 2]),
    ],
)
def test_by_hand(text, characters, tags):
    found = strip_spacing(text)
    assert (found[0], found[1].tolist(), found[1].dtype) == (characters, tags, np.int32)


def test_a_real_text():
    text = load_corpus("pydoc").text
    characters, tags = strip_spacing(text)
    assert restore(characters, tags) == collapse_whitespace(text)
    assert (tags & SPACE).astype(bool).sum() == len(text.split()) - (not text[0].isspace())
    assert (tags & CAPITAL).astype(bool).sum() == sum(character.isupper() for character in text)
