"""The kinds of tokenizer by name, and whichever of them a file holds."""

import os

from keras_seq.tokenizers.base_tokenizer import Tokenizer
from keras_seq.tokenizers.character_tokenizer import CharacterTokenizer
from keras_seq.tokenizers.subword_tokenizers import BytePairTokenizer, WordPieceTokenizer
from keras_seq.tokenizers.text_errors import TokenizerError, short_repr
from keras_seq.tokenizers.tokenizer_io import read_json
from keras_seq.tokenizers.word_tokenizer import WordTokenizer

TOKENIZERS = {
    "characters": CharacterTokenizer,
    "words": WordTokenizer,
    "wordpiece": WordPieceTokenizer,
    "bpe": BytePairTokenizer,
}


def load_tokenizer(path: str | os.PathLike[str]) -> CharacterTokenizer | Tokenizer:
    """Read what the `save` of any tokenizer wrote.

    Args:
        path: The file. One that names no kind is a `Vocabulary`'s.

    Raises:
        VocabularyError: The file cannot be read, holds no tokenizer, or one of a kind that is not in `TOKENIZERS`.

    >>> Words.from_text("a b").save("vocabulary.json")
    >>> load_tokenizer("vocabulary.json")
    <Words of 4 tokens>
    """
    return read_json(path, _from_config, "tokenizer")


def _from_config(config: dict) -> CharacterTokenizer | Tokenizer:
    kind = config.get("kind", "characters") if isinstance(config, dict) else "characters"
    if not isinstance(kind, str) or kind not in TOKENIZERS:
        raise TokenizerError(f"The kind of a tokenizer is one of {', '.join(TOKENIZERS)}, not {short_repr(kind)}.")
    return TOKENIZERS[kind].from_config(config)
