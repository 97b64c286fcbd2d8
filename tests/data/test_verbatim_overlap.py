import importlib
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_seq.data import verbatim_overlap
from keras_seq.tokenizers import TokenizerError

MODULE = importlib.import_module("keras_seq.data.download")  # the package has the function under this name


def naive(train, validation, length):
    known = {train[i : i + length] for i in range(len(train) - length + 1)}
    copied = set()
    for i in range(len(validation) - length + 1):
        if validation[i : i + length] in known:
            copied |= set(range(i, i + length))
    return len(copied) / len(validation) if copied else 0.0


@given(
    train=st.text("ab\U0001f600", max_size=120),
    validation=st.text("ab\U0001f600", max_size=60),
    length=st.sampled_from([1, 2, 4, 8, 16]),
    chunk=st.sampled_from([1, 7, 50, 1000]),
)
@settings(max_examples=200, deadline=None)
def test_it_is_what_counting_finds(train, validation, length, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "CHUNK_CHARS", chunk)
        assert verbatim_overlap(train, validation, length) == pytest.approx(naive(train, validation, length))


def test_a_copy_counts_from_its_first_to_its_last_character():
    page = "".join(map(chr, range(1000, 1100)))
    rest = "".join(map(chr, range(2000, 2100)))
    assert verbatim_overlap("x" * 999 + page + "y" * 50, rest + page) == 0.5
    assert verbatim_overlap(page[:64], rest + page[:64]) == 64 / 164
    assert verbatim_overlap(page[:63], rest + page) == 0.0
    assert verbatim_overlap(page, page[:63]) == 0.0
    assert verbatim_overlap("", rest) == verbatim_overlap(rest, "") == 0.0


def test_memory_does_not_grow_with_the_training_text():
    train, validation = "abcdefghijklmnop" * 500_000, "ponmlkjihgfedcba" * 100
    tracemalloc.start()
    try:
        assert verbatim_overlap(train, validation) == 0.0
        assert tracemalloc.get_traced_memory()[1] < 60_000_000  # where all hashes at once have 64
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", [0, -1, 3, 63, 2.0, True, None])
def test_a_length_is_a_power_of_two(length):
    with pytest.raises(ValueError, match="length"):
        verbatim_overlap("ab", "ab", length)


@pytest.mark.parametrize("texts", [(b"ab", "ab"), ("ab", None), ("\ud800", "ab")])
def test_texts_are_texts(texts):
    with pytest.raises(TokenizerError):
        verbatim_overlap(*texts)
