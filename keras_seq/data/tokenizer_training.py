"""Train a tokenizer on documents, in bounded memory.

characters               all of the texts, which are read once
words, wordpiece, bpe    the first nine tenths of a sample, since the last tenth of the texts is for validation

The sample is the beginnings of up to some 64 parts of the files at equal distances. It depends on the files and the
number of characters only.
"""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from keras_seq import checks
from keras_seq.data.document_texts import read_texts
from keras_seq.data.documents import DocumentsError, InputFile, Part, divide
from keras_seq.tokenizers import TOKENIZERS, CharacterTokenizer, Tokenizer, WordTokenizer
from keras_seq.tokenizers.base_tokenizer import OOV_TOKEN
from keras_seq.tokenizers.document_token import DOCUMENT_CHARACTER

MAX_PARTS = 64
TRAIN_FRACTION = 0.9
NUM_CODE_POINTS = 0x110000


def character_tokenizer(characters: Iterable[str]) -> CharacterTokenizer:
    """Return the tokenizer of some characters and of the one that begins a document."""
    return CharacterTokenizer("".join(sorted({*characters, DOCUMENT_CHARACTER})))


def distinct_characters(group: Sequence[Part], field: str = "text") -> str:
    """Return the characters of a group of parts, each once.

    Args:
        group: The parts.
        field: As for `read_texts`.

    Raises:
        DocumentsError: The documents cannot be read.
    """
    occurs = np.zeros(NUM_CODE_POINTS, bool)
    for part in group:
        for _, text in read_texts(part, field):
            occurs[np.frombuffer(text.encode("utf-32-le"), "<u4")] = True
    return "".join(map(chr, np.flatnonzero(occurs)))


def train_tokenizer(
    kind: str, files: Sequence[InputFile], field: str = "text", sample_characters: int = 1 << 26, **options: int
) -> Tokenizer:
    """Train a tokenizer that has a token for the beginning of a document.

    Args:
        kind: A key of `TOKENIZERS` other than `characters`.
        files: Files of documents.
        field: As for `read_texts`.
        sample_characters: Most characters to read.
        **options: Further arguments of `from_text`, such as `vocabulary_size`.

    Raises:
        DocumentsError: The documents cannot be read, or have no text.
        ValueError: An option is out of its range.
    """
    texts = training_texts(files, field, sample_characters)
    if not any(text.strip() for text in texts):
        raise DocumentsError(f"{files[0].path}: the documents have no text to train a tokenizer on.")
    if kind != "words":
        return TOKENIZERS[kind].from_texts(texts, **options)
    if "vocabulary_size" in options:
        reason = f"for {OOV_TOKEN}, the token of a document's beginning and one word"
        checks.integer("vocabulary_size", options["vocabulary_size"], min_value=3, reason=reason)
        options["vocabulary_size"] -= 1
    tokenizer = WordTokenizer.from_texts([text.replace(DOCUMENT_CHARACTER, "") for text in texts], **options)
    return WordTokenizer([OOV_TOKEN, DOCUMENT_CHARACTER, *tokenizer.vocabulary[1:]])


def training_texts(files: Sequence[InputFile], field: str, sample_characters: int) -> list[str]:
    """Return the first nine tenths of a sample of documents, cut behind a word or between two.

    Args:
        files: Files of documents.
        field: As for `read_texts`.
        sample_characters: Most characters of the sample.

    Raises:
        DocumentsError: The documents cannot be read.
    """
    groups = divide(files, max(1, sum(file.size for file in files) // MAX_PARTS))
    texts, continues = [], False
    for group in groups:
        sample, is_whole = _sample(group, field, max(1, sample_characters // len(groups)))
        for begins, text in sample:
            if begins or not continues:
                texts.append([])
            texts[-1].append(text)
            continues = True
        continues = continues and is_whole
    joined = ["".join(parts) for parts in texts]
    left = max(1, int(sum(map(len, joined)) * TRAIN_FRACTION))
    for number, text in enumerate(joined):
        if left <= len(text):
            return [*joined[:number], _first(text, left)]
        left -= len(text)
    return joined


def _sample(group, field, count):
    """Return the first characters of a group, as `read_texts` yields them, and whether these are all that it has."""
    sample = []
    for part in group:
        for begins, text in read_texts(part, field):
            if count <= 0:
                return sample, False
            sample.append((begins, _first(text, count)))
            count -= len(text)
    return sample, count >= 0


def _first(text, count):
    """Return the first characters of a text, and more to the end of the word that they end in."""
    end = re.compile(r"\b").search(text, count)
    return text[: end.start() if end else len(text)]
