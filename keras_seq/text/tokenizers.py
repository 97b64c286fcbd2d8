"""The kinds of tokenizer by name, and whichever of them a file holds."""

import os

from keras_seq.text.characters import VocabularyError, brief
from keras_seq.text.files import read_json
from keras_seq.text.interface import Tokenizer
from keras_seq.text.subwords import BytePairs, WordPiece
from keras_seq.text.vocabulary import Vocabulary
from keras_seq.text.words import Words

TOKENIZERS = {"characters": Vocabulary, "words": Words, "wordpiece": WordPiece, "bpe": BytePairs}


def load_tokenizer(path: str | os.PathLike[str]) -> Vocabulary | Tokenizer:
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


def _from_config(config: dict) -> Vocabulary | Tokenizer:
    kind = config.get("kind", "characters") if isinstance(config, dict) else "characters"
    if not isinstance(kind, str) or kind not in TOKENIZERS:
        raise VocabularyError(f"The kind of a tokenizer is one of {', '.join(TOKENIZERS)}, not {brief(kind)}.")
    return TOKENIZERS[kind].from_config(config)
