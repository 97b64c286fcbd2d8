"""Texts as they really come: each goes the whole way from its file to batches, references and back, or is refused."""

import subprocess
import sys

import numpy as np
import pytest

from keras_seq.baselines import COMPRESSORS, compute_baselines
from keras_seq.data import CorpusError, RandomWindows, SequentialWindows, StatefulWindows, load_corpus
from keras_seq.tokenizers import BytePairTokenizer, CharacterTokenizer, WordPieceTokenizer, WordTokenizer
from keras_seq.tokenizers.text import show_whitespace

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"  # one emoji of five characters
ODD = {
    "Windows line ends": "to be\r\nor not\r\n" * 4,
    "old Mac line ends": "to be\ror not\r" * 4,
    "a byte order mark": "\ufeffto be or not to be, to be or not",
    "zero bytes": "a\0b\0\0c" * 9,
    "control characters": "".join(map(chr, range(32))) * 2,
    "emoji": f"{FAMILY} \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd\ufe0f " * 5,
    "right to left": "\u05e9\u05dc\u05d5\u05dd \u202e\u0645\u0631\u062d\u0628\u0627\u202c \u200f" * 4,
    "marks on marks": "a\u0301\u0302\u0303e\u0308" * 9,
    "other spaces": "a\u2028b\u2029c\u00a0d\u3000e\u200b" * 5,
    "beyond Unicode's first plane": "\U0001d49c\U00020000\U0010ffff" * 12,
    "no characters": "\ufffe\uffff\ufdd0" * 12,
    "one character, repeated": "a" * 40,
    "newlines alone": "\n" * 40,
}
NO_WORD = ("control characters", "newlines alone")  # to WordPiece, which drops both
LENGTH = 3


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_the_whole_way_and_back(tmp_path, text):
    path = tmp_path / "text"
    path.write_bytes(text.encode())
    corpus = load_corpus(path)
    assert corpus.text == text.removeprefix("\ufeff").replace("\r\n", "\n")
    train, validation = corpus.split(0.7, min_length=LENGTH + 1)
    assert train + validation == corpus.text

    vocabulary = CharacterTokenizer.from_text(corpus.text)
    vocabulary.save(tmp_path / "tokenizer.json")
    vocabulary = CharacterTokenizer.load(tmp_path / "tokenizer.json")
    ids = vocabulary.encode(corpus.text)
    assert ids.shape == (len(corpus.text),)
    assert vocabulary.decode(ids) == corpus.text

    for windows in (StatefulWindows(ids, 2, LENGTH), RandomWindows(ids, 2, LENGTH), SequentialWindows(ids, 2, LENGTH)):
        x, y = windows.batch(1)
        for row, behind in zip(x, y, strict=True):
            assert vocabulary.decode([*row, behind[-1]]) in corpus.text
            np.testing.assert_array_equal(row[1:], behind[:-1])

    found = {
        reference.name: reference.loss_per_character for reference in compute_baselines(train, validation, order=3)
    }
    assert np.isfinite([*found.values()]).all()
    assert all(nats >= 0 for name, nats in found.items() if name not in COMPRESSORS)  # those may even shrink by a byte
    assert found["uniform"] == pytest.approx(np.log(vocabulary.vocabulary_size))
    assert "\0" not in show_whitespace(corpus.text)
    assert "\u202e" not in show_whitespace(corpus.text)


@pytest.mark.parametrize("name", NO_WORD)
def test_a_text_without_a_word_has_no_pieces_of_words(name):
    with pytest.raises(ValueError, match="word"):
        WordPieceTokenizer.from_text(ODD[name])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (kind, ODD[name])
        for kind in (WordTokenizer, BytePairTokenizer, WordPieceTokenizer)
        for name in ODD
        if kind != WordPieceTokenizer or name not in NO_WORD
    ],
)
def test_tokenizers_keep_what_they_promise(tmp_path, kind, text):
    tokenizer = kind.from_text(text)
    tokenizer.save(tmp_path / "tokenizer.json")
    assert kind.load(tmp_path / "tokenizer.json") == tokenizer
    ids = tokenizer.encode(text)
    back = tokenizer.decode(ids)
    if kind is not WordPieceTokenizer:
        assert back == text
    assert tokenizer.encode(back).tolist() == ids.tolist()


@pytest.mark.parametrize("text", ["a", "ab", "\n", FAMILY[0]])
def test_a_text_shorter_than_a_window_is_refused(refuses, tmp_path, text):
    (tmp_path / "text").write_text(text, encoding="utf-8")
    corpus = load_corpus(tmp_path / "text")
    refuses(lambda: corpus.split(min_length=4), "too short")
    ids = CharacterTokenizer.from_text(text).encode(text)
    for windows in (StatefulWindows, RandomWindows, SequentialWindows):
        refuses(lambda windows=windows: windows(ids, 2, 4), "ids")


@pytest.fixture
def refuses():
    def refuses(call, word):
        with pytest.raises(ValueError, match=word):
            call()

    return refuses


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe\0\0", b"caf\xe9", b"\xed\xa0\x80", b"\xc0\x80", "\u20ac".encode()[:-1], b"\xf4\x90\x80\x80"],
)
def test_what_is_no_utf_8_is_refused(tmp_path, content):
    (tmp_path / "text").write_bytes(content)
    with pytest.raises(CorpusError, match=r"UTF-8|empty"):
        load_corpus(tmp_path / "text")


LARGE = """
import sys
from keras_seq.data import StatefulWindows, load_corpus
from keras_seq.tokenizers import CharacterTokenizer

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

def windows(path):
    corpus = load_corpus(path)
    ids = CharacterTokenizer.from_text(corpus.text).encode(corpus.text)
    return corpus, StatefulWindows(ids, 8, 64)

windows(sys.argv[1])[1].batch(3)[0]
before = peak()
corpus, large = windows(sys.argv[2])
large.batch(3)[0]
print((peak() - before) / len(corpus.text))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "To be, or not to be, that is the question.\n",
        "Sein oder Nichtsein \u2014 \u00e4hm.\n",
        "\U0001f44d\U0001f3fd\ufe0f",
    ],
)
def test_a_large_text_takes_less_than_12_bytes_a_character(tmp_path, line):
    """From the file to ids and windows, at the moment when it takes most. 200 MB; a process of its own."""
    (tmp_path / "small").write_text(line * 500, encoding="utf-8")
    with (tmp_path / "large").open("w", encoding="utf-8") as file:
        for _ in range(200):
            file.write(line * (1_000_000 // len(line.encode())))
    done = subprocess.run(
        [sys.executable, "-c", LARGE, tmp_path / "small", tmp_path / "large"],
        capture_output=True,
        text=True,
        check=True,
    )
    bytes_per_character = float(done.stdout)
    print(f"\n{bytes_per_character:.2f} bytes a character")
    assert bytes_per_character < 12
