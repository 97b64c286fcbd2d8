import re

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_seq.data import load_corpus
from keras_seq.tokenizers import SPECIAL_TOKENS, BytePairTokenizer, TokenizerError, WordPieceTokenizer
from keras_seq.tokenizers.subwords import pack_segments

PYDOC = load_corpus("pydoc").text[:30_000]
PAIRS = BytePairTokenizer.from_text(PYDOC, vocabulary_size=600)
PIECES = WordPieceTokenizer.from_text(PYDOC, vocabulary_size=600)
ODD = ["the ", "function", " ", "\n\n", "é", "e\u0301", "漢字", "👩‍👩‍👧", "\x00", "\r", "'s", "\ufffd", *SPECIAL_TOKENS]
any_texts = st.text(st.characters(codec="utf-8"), max_size=40) | st.lists(st.sampled_from(ODD)).map("".join)
unk = SPECIAL_TOKENS["[UNK]"]


def test_special_tokens_have_the_first_ids():
    assert [*SPECIAL_TOKENS.values()] == [0, 1, 2, 3, 4]
    for tokenizer in (PAIRS, PIECES):
        assert tokenizer.vocabulary[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        assert tokenizer.decode([2, 4, 3]).replace(" ", "") == "[CLS][MASK][SEP]"


@given(text=any_texts)
@settings(max_examples=100)
def test_byte_pairs_give_any_text_back_and_never_an_unknown(text):
    ids = PAIRS.encode(text).tolist()
    assert PAIRS.decode(ids) == text
    assert not set(SPECIAL_TOKENS.values()) & set(ids)
    assert len(ids) <= len(text.encode())


@given(text=st.text(st.characters(codec="utf-8"), min_size=1, max_size=40), other=any_texts)
@settings(max_examples=40)
def test_byte_pairs_of_any_text_give_any_other_back(text, other):
    pairs = BytePairTokenizer.from_text(text, min_count=1)
    for given_text in (text, other):
        assert pairs.decode(pairs.encode(given_text)) == given_text
    assert BytePairTokenizer(pairs.merges) == pairs


def test_byte_pairs_by_hand():
    pairs = BytePairTokenizer([["l", "o"], ["lo", "w"], ["Ġ", "low"]])
    assert pairs.vocabulary_size == 5 + 256 + 3
    assert pairs.vocabulary[-3:] == ["lo", "low", "Ġlow"]
    assert [pairs.vocabulary[i] for i in pairs.encode("low low lo lö")] == [
        *("low", "Ġlow", "Ġ", "lo", "Ġ", "l"),
        "Ã",
        "¶",
    ]
    assert pairs.decode(pairs.encode("ö")[:1]) == "\ufffd"  # half of a character


def test_two_ways_to_one_token_share_an_id():
    pairs = BytePairTokenizer([["a", "b"], ["b", "c"], ["ab", "c"], ["a", "bc"]])
    assert pairs.vocabulary[-3:] == ["ab", "bc", "abc"]
    assert len(pairs.merges) == 4
    assert BytePairTokenizer.from_config(pairs.get_config()) == pairs


def test_learned_byte_pairs_pack_the_text_and_stop_at_the_size():
    assert PAIRS.vocabulary_size == 600
    assert len(PAIRS.encode(PYDOC)) < 0.5 * len(PYDOC)
    assert BytePairTokenizer.from_text("ab ab ab").vocabulary[5 + 256 :] == ["ab", "Ġab"]
    assert BytePairTokenizer.from_text("ab ab ab", vocabulary_size=262).vocabulary[5 + 256 :] == ["ab"]
    assert BytePairTokenizer.from_text("ab cd", min_count=2).vocabulary_size == 5 + 256
    assert "Ġcd" in BytePairTokenizer.from_text("ab cd", min_count=1).vocabulary


def test_word_pieces_by_hand():
    pieces = WordPieceTokenizer([*SPECIAL_TOKENS, "un", "##aff", "##able", "able", "##a"])
    assert [pieces.vocabulary[i] for i in pieces.encode("unaffable able")] == ["un", "##aff", "##able", "able"]
    assert pieces.decode(pieces.encode("unaffable\n  able")) == "unaffable able"
    assert pieces.encode("una unx able").tolist() == [5, 9, unk, 8]
    assert pieces.decode(pieces.encode("unx able")) == "[UNK] able"
    assert pieces.encode("un" + 100 * "a").tolist() == [unk]  # as in BERT, more than 100 characters


@given(text=any_texts)
@settings(max_examples=150)
def test_word_pieces_of_what_they_decode_to_are_the_same_pieces(text):
    ids = PIECES.encode(text).tolist()
    if unk not in ids:
        assert PIECES.encode(PIECES.decode(ids)).tolist() == ids


@given(words=st.lists(st.text(st.sampled_from("abcdefgilmnorst"), min_size=1, max_size=8)))
@settings(max_examples=100)
def test_words_of_known_characters_come_back(words):
    text = " ".join(words)
    assert PIECES.decode(PIECES.encode(f"\n {text}\t")) == text


def test_learned_word_pieces_know_their_text_and_stop_at_the_size():
    assert PIECES.vocabulary_size == 600
    ids = PIECES.encode(PYDOC)
    assert unk not in ids
    assert re.sub(r"\s", "", PIECES.decode(ids)) == re.sub(r"\s", "", PYDOC)
    assert "##ing" in PIECES.vocabulary
    assert PIECES.encode("漢").tolist() == [unk]


def test_lowercase_loses_case_and_accents():
    cased, uncased = (
        WordPieceTokenizer.from_text("Naïve NAÏVE naive", lowercase=lowercase) for lowercase in (False, True)
    )
    assert cased.decode(cased.encode("Naïve")) == "Naïve"
    assert uncased.decode(uncased.encode("Naïve")) == "naive"
    assert (cased.lowercase, uncased.lowercase) == (False, True)
    assert WordPieceTokenizer(uncased.vocabulary, lowercase=False) != uncased


@pytest.mark.parametrize("kind", [WordPieceTokenizer, BytePairTokenizer])
def test_training_is_the_same_each_time(kind):
    text = "Wel come to the Tok en izers libr ary, " + PYDOC[:2000]  # many pairs are as frequent as others
    assert len({tuple(kind.from_text(text, vocabulary_size=300, min_count=1).vocabulary) for _ in range(8)}) == 1


@pytest.mark.parametrize(
    "tokenizer", [WordPieceTokenizer.from_text("[CLS] a [UNK]"), BytePairTokenizer.from_text("[CLS] a [UNK]" * 9)]
)
def test_a_text_cannot_spell_special_tokens(tokenizer):
    for text in ("[CLS]", "a [UNK]", "[CLS][UNK]a"):
        ids = tokenizer.encode(text).tolist()
        assert not set(SPECIAL_TOKENS.values()) & set(ids)
        assert tokenizer.decode(ids).replace(" ", "") == text.replace(" ", "")


def test_ids_are_those_of_the_library():
    pipeline = tokenizers.Tokenizer(tokenizers.models.BPE())
    pipeline.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600,
        min_frequency=2,
        special_tokens=[*SPECIAL_TOKENS],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pipeline.train_from_iterator([PYDOC], trainer)
    assert pipeline.get_vocab() == {token: place for place, token in enumerate(PAIRS.vocabulary)}
    assert pipeline.encode(PYDOC).ids == PAIRS.encode(PYDOC).tolist()


@pytest.mark.parametrize("size", [260, 5, 0, -1, 1e4, None, True])
def test_byte_pairs_need_room_for_specials_and_bytes(size):
    with pytest.raises(
        ValueError, match=rf"vocabulary_size={size!r}; .* at least 261, for 5 special tokens and 256 bytes"
    ):
        BytePairTokenizer.from_text("ab", vocabulary_size=size)
    assert BytePairTokenizer.from_text("ab", vocabulary_size=261).vocabulary_size == 261


@pytest.mark.parametrize("size", [9, 5, 0, 1e4, None])
def test_word_pieces_need_room_for_specials_and_characters(size):
    with pytest.raises(ValueError, match="at least 10, for 5 special tokens and the characters of this text"):
        WordPieceTokenizer.from_text("ab ac", vocabulary_size=size)  # a, b, c, ##b and ##c
    assert WordPieceTokenizer.from_text("ab ac", vocabulary_size=10).vocabulary_size == 10


@pytest.mark.parametrize("text", [" \n\t ", "\x00\x01"])
def test_word_pieces_need_a_word(text):
    with pytest.raises(TokenizerError, match="at least one word"):
        WordPieceTokenizer.from_text(text)
    assert BytePairTokenizer.from_text(text).decode(BytePairTokenizer.from_text(text).encode(text)) == text


PAD, _, CLS, SEP, _ = SPECIAL_TOKENS.values()
TOKENIZERS = [
    BytePairTokenizer.from_text("the dog and the fox " * 3),
    WordPieceTokenizer.from_text("the dog and the fox " * 3),
]
rows = st.lists(st.integers(5, 50), max_size=12)
texts = st.lists(st.sampled_from(["", "the", "the dog", "fox and dog and fox", "[SEP] [PAD]", "é漢\x00"]), min_size=1)


def popped(first, second, room):
    """The two counts as the loop of BERT's `_truncate_seq_pair` finds them."""
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


@given(first=st.integers(0, 40), second=st.integers(0, 40), room=st.integers(0, 90))
@settings(max_examples=100)
def test_shares_are_those_of_the_loop(first, second, room):
    ids = pack_segments([[5] * first], [[6] * second], room + 3)["token_ids"]
    assert ((ids == 5).sum(), (ids == 6).sum()) == popped(first, second, room)


@given(data=st.data(), pairs=st.booleans())
@settings(max_examples=100)
def test_every_row_is_the_texts_between_specials_and_padding(data, pairs):
    firsts = data.draw(st.lists(rows, min_size=1, max_size=5))
    seconds = data.draw(st.lists(rows, min_size=len(firsts), max_size=len(firsts))) if pairs else None
    specials = 3 if pairs else 2
    length = data.draw(st.none() | st.integers(specials, 30))
    batch = pack_segments(firsts, seconds, length)
    ids, segments, mask = batch["token_ids"], batch["segment_ids"], batch["padding_mask"]
    longest = max(len(f) + len(s) + specials for f, s in zip(firsts, seconds or [[]] * len(firsts), strict=True))
    assert ids.shape == segments.shape == mask.shape == (len(firsts), longest if length is None else length)
    assert (ids.dtype, segments.dtype, mask.dtype) == (np.int32, np.int32, np.bool_)
    for number, first in enumerate(firsts):
        second = seconds[number] if pairs else []
        a, b = popped(len(first), len(second), ids.shape[1] - specials)
        row = [CLS, *first[:a], SEP] + ([*second[:b], SEP] if pairs else [])
        padding = ids.shape[1] - len(row)
        assert ids[number].tolist() == row + [PAD] * padding
        assert segments[number].tolist() == [0] * (a + 2) + [1] * (len(row) - a - 2) + [0] * padding
        assert mask[number].tolist() == [True] * len(row) + [False] * padding


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@given(firsts=texts, data=st.data(), pairs=st.booleans())
@settings(max_examples=40)
def test_a_batch_of_texts(tokenizer, firsts, data, pairs):
    seconds = data.draw(st.permutations(firsts)) if pairs else None
    length = data.draw(st.none() | st.integers(3, 20))
    batch = tokenizer.encode_batch(firsts, seconds, length)
    ids, segments, mask = batch["token_ids"], batch["segment_ids"], batch["padding_mask"]
    assert ids.shape[0] == len(firsts)
    assert length is None or ids.shape[1] == length
    assert (ids[:, 0] == CLS).all()
    assert ((ids == CLS).sum(1) == 1).all()
    assert ((ids == SEP).sum(1) == 1 + pairs).all()  # whatever the texts spell
    assert ((ids == PAD) == ~mask).all()
    assert (ids[np.arange(len(ids)), mask.sum(1) - 1] == SEP).all()
    assert (segments.max(1) == pairs).all()
    assert (np.diff(segments, axis=1)[mask[:, 1:]] >= 0).all()
    if length is None:
        for row, kept, text in zip(ids, segments == 0, firsts, strict=True):
            assert [CLS, *tokenizer.encode(text), SEP] == row[kept & (row != PAD)].tolist()


def test_a_pair_by_hand():
    pieces = WordPieceTokenizer([*SPECIAL_TOKENS, "my", "dog", "is", "cute", "he", "likes", "play", "##ing"])
    batch = pieces.encode_batch(["my dog is cute", "he likes"], ["he likes playing", "dog"], sequence_length=12)
    spelt = [" ".join(pieces.vocabulary[identity] for identity in row) for row in batch["token_ids"]]
    assert spelt == [
        "[CLS] my dog is cute [SEP] he likes play ##ing [SEP] [PAD]",
        "[CLS] he likes [SEP] dog [SEP] [PAD] [PAD] [PAD] [PAD] [PAD] [PAD]",
    ]
    assert batch["segment_ids"].tolist() == [[0] * 6 + [1] * 5 + [0], [0] * 4 + [1] * 2 + [0] * 6]
    assert batch["padding_mask"].sum(1).tolist() == [11, 6]
    cut = pieces.encode_batch(["my dog is cute"], ["he likes playing"], sequence_length=8)["token_ids"][0]
    assert " ".join(pieces.vocabulary[identity] for identity in cut) == "[CLS] my dog is [SEP] he likes [SEP]"


def test_texts_come_as_lists_tuples_or_arrays():
    for tokenizer in TOKENIZERS:
        expected = tokenizer.encode_batch(["the dog", "fox"])
        for given_texts in (("the dog", "fox"), np.array(["the dog", "fox"])):
            for name, value in tokenizer.encode_batch(given_texts).items():
                np.testing.assert_array_equal(value, expected[name])
