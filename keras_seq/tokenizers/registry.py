"""List the tokenizer classes by name, and load a tokenizer of any of them from its file."""

import os

from keras_seq.checks import short_repr
from keras_seq.tokenizers.base import Tokenizer, read_tokenizer
from keras_seq.tokenizers.characters import CharacterTokenizer
from keras_seq.tokenizers.pretrained import PretrainedTokenizer
from keras_seq.tokenizers.subwords import BytePairTokenizer, WordPieceTokenizer
from keras_seq.tokenizers.text import TokenizerError
from keras_seq.tokenizers.words import WordTokenizer

TOKENIZERS = {
    "characters": CharacterTokenizer,
    "words": WordTokenizer,
    "wordpiece": WordPieceTokenizer,
    "bpe": BytePairTokenizer,
}
"""Classes of tokenizers that are made for a text, by their `registry_name`, the word in a tokenizer's file."""
_IN_FILES = TOKENIZERS | {"pretrained": PretrainedTokenizer}


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Load a tokenizer of any class from the file that its `save` wrote.

    Args:
        path: Path of the file.

    Raises:
        TokenizerError: The file cannot be read, or an older version of keras_seq or another program wrote it.

    >>> WordTokenizer.from_text("a b").save("tokenizer.json")
    >>> load_tokenizer("tokenizer.json")
    <WordTokenizer of 4 tokens>
    """
    return read_tokenizer(path, _from_config)


def _from_config(config: dict) -> Tokenizer:
    name = config.get("registry_name")
    if not isinstance(name, str) or name not in _IN_FILES:
        raise TokenizerError(f"registry_name={short_repr(name)}; expected one of {', '.join(_IN_FILES)}.")
    return _IN_FILES[name].from_config(config)
