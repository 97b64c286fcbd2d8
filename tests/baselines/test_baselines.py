import bz2
import collections
import lzma
import math
import random

import numpy as np
import pytest

from keras_seq.baselines import COMPRESSORS, KneserNeyNGrams, bzip2, compressed_bits, compute_baselines, xz


@pytest.fixture(scope="module")
def texts():
    words = ["the", "loss", "of", "a", "model", "and", "its", "floor", "\N{SNOWMAN}"]
    text = " ".join(random.Random(0).choices(words, k=3000))
    return text[:10_000], text[10_000:]


def test_every_line_is_there_in_order_and_in_both_units(texts):
    found = compute_baselines(*texts, order=4)
    assert [line.name for line in found] == ["uniform", "unigram", "2-gram", "3-gram", "4-gram", "xz", "bzip2"]
    for line in found:
        assert line.bits_per_character == pytest.approx(line.loss_per_character / math.log(2))


def test_uniform_and_unigram_are_what_counting_says(texts):
    train, validation = texts
    uniform, unigram, *_ = compute_baselines(*texts, order=2)
    assert uniform.loss_per_character == pytest.approx(math.log(len({*train, *validation})))
    seen = collections.Counter(train)
    counted = sum(-math.log(seen[c] / len(train)) for c in validation) / len(validation)
    assert unigram.loss_per_character == pytest.approx(counted, abs=1e-3)


def test_letters_of_known_words_cost_the_choice_of_the_word(texts):
    nats = {line.name: line.loss_per_character for line in compute_baselines(*texts, order=6)}
    words = texts[1].count(" ") + 1
    floor = words * math.log(9) / len(texts[1])
    assert floor < nats["6-gram"] < 1.1 * floor
    assert nats["uniform"] > nats["unigram"] > nats["2-gram"] > nats["3-gram"] > nats["6-gram"]


def test_compressors_are_given_the_training_text(texts):
    nats = {line.name: line.loss_per_character for line in compute_baselines(*texts, order=1)}
    for name in ("xz", "bzip2"):
        assert nats[name] == pytest.approx(compressed_bits(name, *texts) * math.log(2))
        assert nats[name] < compressed_bits(name, "", texts[1]) * math.log(2)


def test_a_character_that_training_never_saw_costs_much_and_not_everything():
    (uniform, *rest) = compute_baselines("abababab" * 20, "abz", order=3)
    assert uniform.loss_per_character == pytest.approx(math.log(3))
    assert all(math.isfinite(line.loss_per_character) for line in rest)


def test_an_empty_text_and_no_order_are_refused():
    for train, validation, name in (("", "a", "training"), ("a", "", "validation")):
        with pytest.raises(ValueError, match=f"The {name} text is empty"):
            compute_baselines(train, validation)
    with pytest.raises(ValueError, match="order=0"):
        compute_baselines("a", "a", order=0)


def test_the_loss_of_stretches_is_of_their_characters_alone():
    train, validation = "abcabcabd" * 30, "abcab" * 20 + "zzzz" * 10
    stretches = np.array([[3, 9], [100, 110], [120, 121]])
    whole, found = (compute_baselines(train, validation, order=3, stretches=s) for s in (None, stretches))
    assert [b.loss_per_character for b in whole] == [b.loss_per_character for b in found]
    assert {b.sample_loss_per_character for b in whole} == {None}
    alphabet, ids = np.unique([*map(ord, train + validation)], return_inverse=True)
    losses = KneserNeyNGrams(ids[: len(train)], 3, len(alphabet)).token_losses(ids[len(train) :])
    chosen = np.concatenate([losses[start:stop] for start, stop in stretches])
    by_name = {b.name: b.sample_loss_per_character for b in found}
    assert by_name["3-gram"] == pytest.approx(chosen.mean())
    assert by_name["xz"] is None  # no compressor says what a character costs


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
