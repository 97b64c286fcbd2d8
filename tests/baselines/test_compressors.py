import bz2
import lzma
import random

import pytest

from keras_seq.baselines import COMPRESSORS, compressed_bits
from keras_seq.baselines.compressors import bzip2, xz


def noise(length, seed=0):
    """Text of 6 bits a character that nothing can compress further."""
    alphabet = [chr(48 + n) for n in range(64)]
    return "".join(random.Random(seed).choices(alphabet, k=length))


@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_noise_costs_what_it_holds(compressor):
    bits = compressed_bits(compressor, noise(20_000), noise(20_000, seed=1))
    assert 6 <= bits < 6.4


def test_what_was_said_before_is_free_for_xz_however_long_ago():
    train = noise(300_000)
    assert compressed_bits("xz", train, train[:20_000]) < 0.1
    assert compressed_bits("xz", train, noise(20_000, seed=1)) > 6


def test_bzip2_forgets_at_the_end_of_a_block():
    train = noise(895_000)  # the repetition begins in the first block of 900,000 and goes on in the next
    text = train[:20_000]
    assert compressed_bits("bzip2", text, text) < 0.7 * compressed_bits("bzip2", train, text)


@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_bits_are_per_character_and_not_per_byte(compressor):
    text = noise(20_000)
    two_bytes = "".join(chr(ord(c) + 0x400) for c in text)
    one, two = (compressed_bits(compressor, "", t) for t in (text, two_bytes))
    assert one <= two < 1.4 * one


@pytest.mark.parametrize("data", [b"", b"a", b"to be or not " * 1000])
def test_what_is_compressed_can_be_had_again(data):
    assert lzma.decompress(xz(data)) == data
    assert bz2.decompress(bzip2(data)) == data


def test_no_text_and_no_compressor_are_refused():
    with pytest.raises(ValueError, match="validation text is empty"):
        compressed_bits("xz", "abc", "")
    with pytest.raises(ValueError, match="'zip'; expected xz or bzip2"):
        compressed_bits("zip", "abc", "abc")
