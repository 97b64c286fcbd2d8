"""Train a tokenizer on a sample of documents, in bounded memory.

The sample is the beginning of up to 64 groups of files at equal distances. Subwords and words are counted in the first
nine tenths of the groups, since the last tenth is for validation; characters are collected from all of them.
"""

from collections.abc import Sequence

import numpy as np

from keras_seq import checks
from keras_seq.data.document_texts import read_texts
from keras_seq.data.documents import DocumentsError, Part
from keras_seq.tokenizers import TOKENIZERS, CharacterTokenizer, Tokenizer, WordTokenizer
from keras_seq.tokenizers.base_tokenizer import OOV_TOKEN
from keras_seq.tokenizers.document_token import DOCUMENT_CHARACTER

MAX_GROUPS = 64
TRAIN_FRACTION = 0.9


def train_tokenizer(
    kind: str,
    groups: Sequence[Sequence[Part]],
    field: str = "text",
    sample_characters: int = 1 << 26,
    **options: int,
) -> Tokenizer:
    """Train a tokenizer that has a token for the beginning of a document.

    Args:
        kind: A key of `TOKENIZERS`.
        groups: Groups of parts of files, as `divide` returns them.
        field: As for `read_texts`.
        sample_characters: Most characters to train on. If the documents have more, a `CharacterTokenizer` has `[UNK]`
            for the characters that are not in the sample.
        **options: Further arguments of `from_text`, such as `vocabulary_size`.

    Raises:
        DocumentsError: The documents cannot be read, or have no text.
        ValueError: An option is out of its range.
    """
    is_characters = kind == "characters"
    if not is_characters:
        groups = groups[: max(1, round(len(groups) * TRAIN_FRACTION))]
    chosen = [groups[n] for n in np.unique(np.linspace(0, len(groups) - 1, MAX_GROUPS).round().astype(int))]
    samples = [_sample(group, field, sample_characters // len(chosen)) for group in chosen]
    text = "\n\n".join(text for text, _ in samples)
    if len(groups) == 1 and not is_characters:
        text = text[: max(1, int(len(text) * TRAIN_FRACTION))]
    if not text.strip():
        raise DocumentsError(f"{groups[0][0].file.path}: the documents have no text to train a tokenizer on.")
    if is_characters:
        is_whole = len(chosen) == len(groups) and all(is_whole for _, is_whole in samples)
        return CharacterTokenizer("".join(sorted({*text, DOCUMENT_CHARACTER})), None if is_whole else OOV_TOKEN)
    if kind != "words":
        return TOKENIZERS[kind].from_text(text, **options)
    if "vocabulary_size" in options:
        reason = f"for {OOV_TOKEN}, the token of a document's beginning and one word"
        checks.integer("vocabulary_size", options["vocabulary_size"], min_value=3, reason=reason)
        options["vocabulary_size"] -= 1
    tokenizer = WordTokenizer.from_text(text, **options)
    return WordTokenizer([OOV_TOKEN, DOCUMENT_CHARACTER, *tokenizer.vocabulary[1:]])


def _sample(group, field, count):
    """Return the first characters of a group, and whether these are all that it has."""
    texts, size = [], 0
    for part in group:
        for begins, text in read_texts(part, field):
            texts += ["\n\n"] * (begins and bool(texts)) + [text.replace(DOCUMENT_CHARACTER, "")]
            size += len(text)
            if size > count:
                return "".join(texts)[:count], False
    return "".join(texts), True
