"""Texts as they really come: each goes the whole way from its file to batches, references and back."""

import numpy as np
import pytest

from keras_seq.baselines import COMPRESSORS, compute_baselines
from keras_seq.data import RandomWindows, SequentialWindows, StatefulWindows, load_corpus
from keras_seq.tokenizers import BytePairTokenizer, CharacterTokenizer, WordPieceTokenizer, WordTokenizer
from keras_seq.tokenizers.base import show_whitespace

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
    ids = vocabulary.encode(corpus.text)
    assert ids.shape == (len(corpus.text),)
    assert vocabulary.decode(ids) == corpus.text
    for windows in (StatefulWindows(ids, 2, LENGTH), RandomWindows(ids, 2, LENGTH), SequentialWindows(ids, 2, LENGTH)):
        x, y = windows.batch(1)
        for row, behind in zip(x, y, strict=True):
            assert vocabulary.decode([*row, behind[-1]]) in corpus.text
            np.testing.assert_array_equal(row[1:], behind[:-1])

    found = {one.name: one.loss_per_character for one in compute_baselines(train, validation, order=3)}
    assert np.isfinite([*found.values()]).all()
    assert all(nats >= 0 for name, nats in found.items() if name not in COMPRESSORS)  # those may even shrink by a byte
    assert found["uniform"] == pytest.approx(np.log(vocabulary.vocabulary_size))
    assert not {"\0", "\u202e"} & {*show_whitespace(corpus.text)}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("kind", [CharacterTokenizer, WordTokenizer, BytePairTokenizer, WordPieceTokenizer])
def test_tokenizers_keep_what_they_promise(tmp_path, kind, name):
    text = ODD[name]
    if kind is WordPieceTokenizer and name in NO_WORD:
        with pytest.raises(ValueError, match="word"):
            kind.from_text(text)
        return
    tokenizer = kind.from_text(text)
    tokenizer.save(tmp_path / "tokenizer.json")
    assert kind.load(tmp_path / "tokenizer.json") == tokenizer
    ids = tokenizer.encode(text)
    back = tokenizer.decode(ids)
    assert back == text or kind is WordPieceTokenizer
    assert tokenizer.encode(back).tolist() == ids.tolist()
