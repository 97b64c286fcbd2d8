r"""Convert words to ids and back: a text is split at its word boundaries, without losing characters.

    "It's -- it is."  ->  It ' s  --  it   is .             re.split(r"\b", text), without the empty strings

Runs of word characters (letters, digits and `_` of any script) alternate with runs of other characters, including
spaces, so the concatenated tokens are the text. Tokens that are not in the vocabulary become `[UNK]`. No text contains
that token, because its brackets are split off.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Self

import numpy as np

from keras_seq import checks
from keras_seq.tokenizers.base import OOV_TOKEN, Tokenizer, TokenizerError, check_text, check_training_texts


def split_words(text: str) -> list[str]:
    """Split a text at its word boundaries; the concatenated tokens are the text.

    >>> split_words("Go on, go!")
    ['Go', ' ', 'on', ', ', 'go', '!']
    """
    check_text(text)
    return re.findall(r"\w+|\W+", text)


class WordTokenizer(Tokenizer):
    """Convert text to ids by words and the characters between them.

    Args:
        vocabulary: `[UNK]`, then the known tokens. `from_text` collects them.

    Raises:
        TokenizerError: The vocabulary does not begin with `[UNK]`, or has a token twice or one that would be split.

    >>> tokenizer = WordTokenizer.from_text("to be or not to be", min_count=2)
    >>> tokenizer.vocabulary
    ['[UNK]', ' ', 'be', 'to']
    >>> tokenizer.decode(tokenizer.encode("to see or to be"))
    'to [UNK] [UNK] to be'
    """

    registry_name = "words"

    def __init__(self, vocabulary: list[str]):
        super().__init__(vocabulary, special_tokens=[OOV_TOKEN])
        for token in vocabulary[1:]:
            if split_words(token) != [token]:
                raise TokenizerError(f"The token {token!r} of vocabulary has a word boundary inside; split it there.")
        self._id_of = {token: id for id, token in enumerate(vocabulary)}

    @classmethod
    def from_text(cls, text: str, vocabulary_size: int | None = None, min_count: int = 1) -> Self:
        """Create a tokenizer of the most frequent tokens of a text.

        Args:
            text: At least one character.
            vocabulary_size: Maximum number of ids, including `[UNK]`; None for no maximum.
            min_count: Minimum number of occurrences of a token.

        Returns:
            A tokenizer whose ids are in descending order of frequency; ties are in code point order.

        Raises:
            TokenizerError: The text is empty or not a text, or no token occurs so often.
            ValueError: `vocabulary_size` is not an integer of at least 2, or `min_count` of at least 1.
        """
        return cls.from_texts([text], vocabulary_size, min_count)

    @classmethod
    def from_texts(cls, texts: Sequence[str], vocabulary_size: int | None = None, min_count: int = 1) -> Self:
        """Create a tokenizer of several texts, such as documents; no token spans two of them. See `from_text`."""
        check_training_texts(texts)
        checks.integer("min_count", min_count, min_value=1)
        if vocabulary_size is not None:
            reason = f"for {OOV_TOKEN} and one token"
            checks.integer("vocabulary_size", vocabulary_size, min_value=2, reason=reason)
        counts = Counter(token for text in texts for token in split_words(text))
        tokens = sorted(counts, key=lambda token: (-counts[token], token))
        frequent = [token for token in tokens if counts[token] >= min_count]
        if not frequent:
            most = max(counts.values())
            raise TokenizerError(f"min_count={min_count}; expected at most {most}, the count of the commonest token.")
        return cls([OOV_TOKEN, *frequent][:vocabulary_size])

    def unknown_parts(self, text: str) -> list[str]:
        """Return the tokens of a text that become `[UNK]`; see the base class."""
        return [token for token in dict.fromkeys(split_words(text)) if token not in self._id_of]

    def _encode(self, text: str) -> list[int]:
        return [self._id_of.get(token, 0) for token in split_words(text)]

    def _encode_with_offsets(self, text: str):
        words = split_words(text)
        ends = np.cumsum([len(word) for word in words], dtype="int64")
        return [self._id_of.get(word, 0) for word in words], np.stack([np.append(0, ends)[:-1], ends], axis=1)

    def _decode(self, ids: list[int]) -> str:
        return "".join([self._vocabulary[id] for id in ids])
