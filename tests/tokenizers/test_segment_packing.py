import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_seq.tokenizers import SPECIAL_TOKENS, BytePairTokenizer, WordPieceTokenizer
from keras_seq.tokenizers.subwords import pack_segments, truncated_lengths

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
@settings(max_examples=200, deadline=None)
def test_shares_are_those_of_the_loop(first, second, room):
    assert truncated_lengths(first, second, room) == popped(first, second, room)


@given(data=st.data(), pairs=st.booleans())
@settings(max_examples=100, deadline=None)
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
@settings(max_examples=40, deadline=None)
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


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            {"texts": ["a"], "sequence_length": 1},
            "sequence_length=1; expected an integer of at least 2, for the 2 special tokens of a row",
        ),
        ({"texts": ["a"], "text_pairs": ["b"], "sequence_length": 2}, "at least 3, for the 3 special tokens of a row"),
        ({"texts": ["a"], "sequence_length": 8.0}, "sequence_length=8.0; expected an integer"),
        ({"texts": ["a"], "sequence_length": True}, "sequence_length=True; expected an integer"),
        ({"texts": []}, r"texts=list \[\]; expected a list of at least one text"),
        ({"texts": "the dog"}, "texts=str 'the dog'; expected a list"),
        ({"texts": None}, "texts=NoneType None; expected a list"),
        ({"texts": ["a"], "text_pairs": "b"}, "text_pairs=str 'b'; expected a list"),
        ({"texts": ["a", "b"], "text_pairs": ["b"]}, "text_pairs has 1 texts; expected as many as texts, 2"),
        ({"texts": ["a", None]}, "text must be a str, not NoneType"),
        ({"texts": [["a", "b"]]}, "text must be a str, not list"),
        ({"texts": ["a"], "text_pairs": ["b\ud800"]}, "surrogate"),
    ],
)
def test_bad_batches(tokenizer, arguments, expected):
    with pytest.raises(ValueError, match=expected):
        tokenizer.encode_batch(**arguments)
