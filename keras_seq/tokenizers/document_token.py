r"""The token that begins every document in a folder of token ids, and keeps documents apart in a model.

characters, words    U+001E, ASCII's record separator, which begins each record in a JSON text sequence (RFC 7464)
wordpiece, bpe       [SEP]
"""

import numpy as np

from keras_seq.tokenizers.base import Tokenizer
from keras_seq.tokenizers.subwords import SPECIAL_TOKENS, SubwordTokenizer
from keras_seq.tokenizers.text import DOCUMENT_CHARACTER, TokenizerError


def document_token(tokenizer: Tokenizer) -> int:
    """Return the id of the token that begins a document.

    Args:
        tokenizer: A tokenizer of a class in `TOKENIZERS`; a TokenizerError says if it has no such token.
    """
    if isinstance(tokenizer, SubwordTokenizer):
        return SPECIAL_TOKENS["[SEP]"]
    if DOCUMENT_CHARACTER not in tokenizer.vocabulary:
        raise TokenizerError(
            f"The tokenizer has no token U+001E, which begins a document: train one on the texts with --tokenizer "
            f"{tokenizer.registry_name}, or take one that was."
        )
    return tokenizer.vocabulary.index(DOCUMENT_CHARACTER)


def encode_documents(tokenizer: Tokenizer, text: str) -> np.ndarray:
    """Convert a text to ids, where U+001E begins a document."""
    has_borders = isinstance(tokenizer, SubwordTokenizer) or DOCUMENT_CHARACTER in tokenizer.vocabulary
    if DOCUMENT_CHARACTER not in text or not has_borders:
        return tokenizer.encode(text)
    first, *documents = tokenizer.encode_texts(text.split(DOCUMENT_CHARACTER))
    border = np.array([document_token(tokenizer)], "int32")
    return np.concatenate([first, *(part for ids in documents for part in (border, ids))])


def decode_documents(tokenizer: Tokenizer, ids: np.ndarray) -> str:
    """Convert ids to a text in which U+001E begins a document."""
    ids = np.asarray(ids)
    borders = np.flatnonzero(ids == document_token(tokenizer))
    first, *documents = np.split(ids, borders)
    return DOCUMENT_CHARACTER.join([tokenizer.decode(first), *(tokenizer.decode(part[1:]) for part in documents)])
