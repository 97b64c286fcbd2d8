import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_seq.data import load_corpus
from keras_seq.tokenizers import TokenizerError, WordTokenizer, split_words

characters = st.characters(codec="utf-8") | st.sampled_from(" \n.,'-_aab1ée\u0301漢\u200d\x00[]UNK")
texts = st.text(characters, min_size=1, max_size=60)


@given(text=texts)
@settings(max_examples=200)
def test_pieces_are_what_lies_between_word_borders_and_make_up_the_text(text):
    pieces = split_words(text)
    assert "".join(pieces) == text
    assert pieces == [piece for piece in re.split(r"\b", text) if piece]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ("It's -- it is.", ["It", "'", "s", " -- ", "it", " ", "is", "."]),
        ("  naïve_1\n漢字", ["  ", "naïve_1", "\n", "漢字"]),
        ("[UNK]", ["[", "UNK", "]"]),
    ],
)
def test_pieces_by_hand(text, pieces):
    assert split_words(text) == pieces


@given(text=texts)
@settings(max_examples=100)
def test_round_trip_of_any_text_whose_pieces_are_known(text):
    words = WordTokenizer.from_text(text)
    ids = words.encode(text)
    assert words.decode(ids) == text
    assert [words.vocabulary[identity] for identity in ids] == split_words(text)
    assert 0 not in ids


@given(known=texts, text=texts)
@settings(max_examples=100)
def test_an_unknown_piece_is_id_0_and_decodes_to_unk(known, text):
    words = WordTokenizer.from_text(known)
    pieces, ids = split_words(text), words.encode(text)
    assert [identity == 0 for identity in ids] == [piece not in words.vocabulary for piece in pieces]
    assert words.decode(ids) == "".join(piece if piece in words.vocabulary else "[UNK]" for piece in pieces)


@given(text=texts, size=st.none() | st.integers(2, 12), min_count=st.integers(1, 3))
@settings(max_examples=100)
def test_the_tokens_are_the_most_frequent_pieces(text, size, min_count):
    counts = Counter(split_words(text))
    if max(counts.values()) < min_count:
        with pytest.raises(TokenizerError, match=f"min_count={min_count}; expected at most {max(counts.values())}"):
            WordTokenizer.from_text(text, size, min_count)
        return
    unknown, *kept = WordTokenizer.from_text(text, size, min_count).vocabulary
    assert unknown == "[UNK]"
    assert kept == sorted(kept, key=lambda piece: (-counts[piece], piece))
    assert min(counts[piece] for piece in kept) >= min_count
    left = [piece for piece in counts if piece not in kept and counts[piece] >= min_count]
    if size is None or len(kept) < size - 1:
        assert not left
    else:
        assert len(kept) == size - 1
        assert all((-counts[piece], piece) > (-counts[kept[-1]], kept[-1]) for piece in left)


def test_the_tokens_by_hand():
    text = "b a c, b a b"
    assert WordTokenizer.from_text(text).vocabulary == ["[UNK]", " ", "b", "a", ", ", "c"]
    assert WordTokenizer.from_text(text, vocabulary_size=3).vocabulary == ["[UNK]", " ", "b"]
    assert WordTokenizer.from_text(text, min_count=2).vocabulary == ["[UNK]", " ", "b", "a"]
    assert WordTokenizer.from_text(text, vocabulary_size=100, min_count=3).vocabulary == ["[UNK]", " ", "b"]


def test_a_text_cannot_spell_the_unknown_token():
    words = WordTokenizer.from_text("a [UNK]")
    assert words.vocabulary == ["[UNK]", " [", "UNK", "]", "a"]
    assert words.encode(" [UNK]").tolist() == [1, 2, 3]
    assert words.decode([0]) == "[UNK]"


def test_a_real_text():
    text = load_corpus("pydoc").text[:100_000]
    assert WordTokenizer.from_text(text).decode(WordTokenizer.from_text(text).encode(text)) == text
    words = WordTokenizer.from_text(text, min_count=2)
    ids = words.encode(text)
    assert words.vocabulary_size < WordTokenizer.from_text(text).vocabulary_size
    assert 0 < (ids == 0).mean() < 0.2
