"""List the tokenizer classes by name, load a tokenizer from its file, and tell documents apart by a token.

The token begins every document in a folder of token ids. It is U+001E of characters and words, ASCII's record
separator, which begins each record in a JSON text sequence (RFC 7464), and [SEP] of WordPiece and byte pairs.
"""

import os

import numpy as np

from keras_seq.checks import short_repr
from keras_seq.tokenizers.base import DOCUMENT_CHARACTER, Tokenizer, TokenizerError, read_tokenizer
from keras_seq.tokenizers.characters import CharacterTokenizer
from keras_seq.tokenizers.pretrained import PretrainedTokenizer
from keras_seq.tokenizers.subwords import SPECIAL_TOKENS, BytePairTokenizer, SubwordTokenizer, WordPieceTokenizer
from keras_seq.tokenizers.words import WordTokenizer

_OF_A_TEXT = CharacterTokenizer, WordTokenizer, WordPieceTokenizer, BytePairTokenizer
TOKENIZERS = {kind.registry_name: kind for kind in _OF_A_TEXT}
"""Classes of tokenizers that are made for a text, by their `registry_name`, the word in a tokenizer's file."""
_IN_FILES = TOKENIZERS | {"pretrained": PretrainedTokenizer}


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Load a tokenizer of any class from the file that its `save` wrote.

    Raises:
        TokenizerError: The file cannot be read, or an older version of keras_seq or another program wrote it.

    >>> WordTokenizer.from_text("a b").save("tokenizer.json")
    >>> load_tokenizer("tokenizer.json")
    <WordTokenizer of 4 tokens>
    """
    return read_tokenizer(path, tokenizer_from_config)


def tokenizer_from_config(config: dict) -> Tokenizer:
    """Return the tokenizer of any class whose `get_config` this is; what `load_tokenizer` raises says what is wrong."""
    name = config.get("registry_name")
    if not isinstance(name, str) or name not in _IN_FILES:
        raise TokenizerError(f"registry_name={short_repr(name)}; expected one of {', '.join(_IN_FILES)}.")
    return _IN_FILES[name].from_config(config)


def document_token(tokenizer: Tokenizer) -> int:
    """Return the id of the token that begins a document; a TokenizerError says if a tokenizer has no such token."""
    if isinstance(tokenizer, SubwordTokenizer):
        return SPECIAL_TOKENS["[SEP]"]
    if DOCUMENT_CHARACTER not in tokenizer.vocabulary:
        kind = tokenizer.registry_name if tokenizer.registry_name in TOKENIZERS else "bpe"
        remedy = f"train one on the texts with --tokenizer {kind}, or take one that was"
        raise TokenizerError(f"The tokenizer has no token U+001E, which begins a document: {remedy}.")
    return tokenizer.vocabulary.index(DOCUMENT_CHARACTER)


def encode_documents(tokenizer: Tokenizer, text: str) -> np.ndarray:
    """Convert a text to ids, where U+001E begins a document."""
    if DOCUMENT_CHARACTER not in text or not _has_borders(tokenizer):
        return tokenizer.encode(text)
    first, *documents = tokenizer.encode_texts(text.split(DOCUMENT_CHARACTER))
    border = np.array([document_token(tokenizer)], "int32")
    return np.concatenate([first, *(part for ids in documents for part in (border, ids))])


def decode_documents(tokenizer: Tokenizer, ids: np.ndarray) -> str:
    """Convert ids to a text in which U+001E begins a document."""
    if not _has_borders(tokenizer):
        return tokenizer.decode(ids)
    ids = np.asarray(ids)
    borders = np.flatnonzero(ids == document_token(tokenizer))
    first, *documents = np.split(ids, borders)
    return DOCUMENT_CHARACTER.join([tokenizer.decode(first), *(tokenizer.decode(part[1:]) for part in documents)])


def _has_borders(tokenizer):
    return isinstance(tokenizer, SubwordTokenizer) or DOCUMENT_CHARACTER in tokenizer.vocabulary
