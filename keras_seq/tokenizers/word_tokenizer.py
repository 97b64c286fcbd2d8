r"""Words to ids and back: a text is cut at its word borders, and nothing of it is thrown away.

    "It's -- it is."  ->  It ' s  --  it   is .             re.split(r"\b", text), without the empty pieces

Runs of word characters (letters, digits and `_` of any script) alternate with runs of anything else, spaces included,
so the pieces put together are the text. Frequent pieces are tokens; the others become `[UNK]`, which is never a piece
itself, for its brackets are cut off.
"""

import re
from collections import Counter

import tensorflow as tf

from keras_seq.tokenizers.base_tokenizer import UNKNOWN, Tokenizer, check_number, check_training_text
from keras_seq.tokenizers.text_errors import TokenizerError, check_text


def split_words(text: str) -> list[str]:
    r"""The pieces of a text between its word borders; put together, they are the text.

    Raises:
        VocabularyError: It is no text.

    >>> split_words("Go on, go!")
    ['Go', ' ', 'on', ', ', 'go', '!']
    """
    check_text(text)
    return re.findall(r"\w+|\W+", text)


class WordTokenizer(Tokenizer):
    """The pieces of a text between word borders, numbered by one lookup table.

    Args:
        tokens: `[UNK]`, then the known pieces. `from_text` finds them.

    Raises:
        VocabularyError: The tokens are no distinct pieces after `[UNK]`.

    >>> words = Words.from_text("to be or not to be", min_count=2)
    >>> words.tokens
    ['[UNK]', ' ', 'be', 'to']
    >>> words.decode(words.encode("to see or to be"))
    'to [UNK] [UNK] to be'
    """

    kind = "words"

    def __init__(self, tokens: list[str]):
        super().__init__(tokens, special_tokens=[UNKNOWN])
        for token in tokens[1:]:
            if split_words(token) != [token]:
                raise TokenizerError(f"tokens must be pieces between word borders, but {token!r} has one inside.")
        places = tf.range(self.vocabulary_size, dtype=tf.int32)
        self._id_of = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(tf.constant(tokens), places), default_value=0
        )

    @classmethod
    def from_text(cls, text: str, vocabulary_size: int | None = None, min_count: int = 1) -> "WordTokenizer":
        """The most frequent pieces of a text.

        Args:
            text: At least one character.
            size: The most ids there may be, `[UNK]` included; None for no such bound.
            min_count: How often a piece has to occur in the text.

        Returns:
            A tokenizer whose most frequent pieces come first; those that are as frequent stand in code point order.

        Raises:
            VocabularyError: The text is empty or no text, `size` leaves room for no piece, `min_count` is no whole
                number of at least 1, or no piece occurs so often.
        """
        check_training_text(text)
        check_number("min_count", min_count, 1, "the fewest times that a piece can occur")
        if vocabulary_size is not None:
            check_number("size", vocabulary_size, 2, f"for {UNKNOWN} and one piece")
        counts = Counter(split_words(text))
        kept = sorted((piece for piece in counts if counts[piece] >= min_count), key=lambda p: (-counts[p], p))
        if not kept:
            raise TokenizerError(
                f"No piece occurs min_count={min_count} times: the most frequent is there {max(counts.values())} times."
            )
        return cls([UNKNOWN, *kept][:vocabulary_size])

    def _encode(self, text: str) -> tf.Tensor:
        return self._id_of.lookup(tf.constant(split_words(text), tf.string))

    def _decode(self, ids: list[int]) -> str:
        return "".join([self._tokens[identity] for identity in ids])
