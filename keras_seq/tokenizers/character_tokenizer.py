"""Convert characters to ids and back by a table in each direction.

    encode:  text -> code points --table--> ids          id = index in the sorted characters
    decode:  ids --table--> code points -> text

A character is a Unicode code point, so a flag or an accented letter may be several. Nothing is normalized, and the
round trip is exact. A whole text is encoded once, in NumPy; batches are then slices of its ids (`data/windows.py`).
TensorFlow's tables for graphs are in `character_tables.py`.
"""

from functools import cached_property
from typing import Self

import numpy as np

from keras_seq.checks import short_repr
from keras_seq.tokenizers.base_tokenizer import OOV_TOKEN, Tokenizer, check_ids
from keras_seq.tokenizers.text_errors import TokenizerError, check_characters, raise_text_error

CHUNK_IDS = 1 << 14  # ids processed at a time: temporary arrays this small need no new pages of memory
REPLACEMENT_CHARACTER = "\ufffd"


class CharacterTokenizer(Tokenizer):
    """Convert text to ids by characters, numbered in code point order.

    `encode` of a tensor and `decode_tensor` need TensorFlow, and run inside `tf.data` and `tf.function`. To export such
    a function with `tf.saved_model.save`, make `tables` an attribute of the exported module.

    Args:
        characters: Distinct code points in ascending order. `from_text` collects them.
        oov_token: None makes `encode` raise for any other character. `"[UNK]"` gives other characters id 0, which
            shifts the known characters to ids 1, 2, ... and decodes to U+FFFD, the replacement character.

    Raises:
        TokenizerError: `characters` is empty, not ascending or contains a surrogate, or `oov_token` is another value.

    >>> tokenizer = CharacterTokenizer.from_text("hello", oov_token="[UNK]")
    >>> tokenizer.characters, len(tokenizer)
    ('ehlo', 5)
    >>> tokenizer.decode(tokenizer.encode("help"))
    'hel�'
    """

    registry_name = "characters"
    config_fields = ("characters", "oov_token")

    def __init__(self, characters: str, oov_token: str | None = None):
        if oov_token not in (None, OOV_TOKEN):
            raise TokenizerError(f"oov_token={short_repr(oov_token)}; expected None or {OOV_TOKEN!r}.")
        check_characters(characters)
        special_tokens = [] if oov_token is None else [OOV_TOKEN]
        super().__init__([*special_tokens, *characters], special_tokens)
        self._characters = characters
        self._oov_token = oov_token
        self._outputs = REPLACEMENT_CHARACTER * len(special_tokens) + characters  # of each id

    @cached_property
    def _id_of_code_point(self):
        """Ids by code point, int32; the last one is that of all further code points."""
        first = len(self._outputs) - len(self._characters)
        ids = np.full(ord(self._characters[-1]) + 2, first - 1, np.int32)  # 0 is [UNK], -1 is an error
        ids[_code_points(self._characters)] = np.arange(first, len(self._outputs))
        return ids

    @cached_property
    def _graph_tables(self):
        from keras_seq.tokenizers.character_tables import CharacterTables

        return CharacterTables(self._characters, self._outputs)

    @classmethod
    def from_text(cls, text: str, oov_token: str | None = None) -> Self:
        """Create a tokenizer of all characters in a text.

        Args:
            text: At least one character.
            oov_token: As for the class: None, or `"[UNK]"`.

        Raises:
            TokenizerError: The text is empty, not a `str` or contains a surrogate, or `oov_token` is another value.
        """
        if not isinstance(text, str) or not text:
            raise TokenizerError(f"text={short_repr(text)}; expected a str of at least one character.")
        return cls("".join(sorted(set(text))), oov_token)

    @property
    def characters(self) -> str:
        """The known characters in the order of their ids, without `[UNK]`."""
        return self._characters

    @property
    def oov_token(self) -> str | None:
        """The token for unknown characters, `"[UNK]"`; None if they are an error."""
        return self._oov_token

    @property
    def tables(self) -> tuple:
        """The `tf.lookup.StaticHashTable`s from code points to ids and from ids to characters."""
        return self._graph_tables.tables

    def encode(self, text) -> np.ndarray:
        """Convert a text, or a batch of texts, to ids.

        Args:
            text: A `str`; or, with TensorFlow, a `tf.string` tensor of UTF-8, eager or symbolic (inside `tf.data` or
                `tf.function`).

        Returns:
            int32 ids: an array `[N]` for a `str` of N characters; a tensor `[N]` for a scalar, and a `tf.RaggedTensor`
            `[B, None]` for B strings.

        Raises:
            UnknownCharacterError: A character is unknown and `oov_token` is None; the error gives its position.
            TokenizerError: The argument is not text, contains half a surrogate pair, or is not UTF-8.
            tf.errors.InvalidArgumentError: As the two above, if it is found when a graph runs.

        >>> CharacterTokenizer.from_text("hello").encode("hole").tolist()
        [1, 3, 2, 0]
        """
        if not isinstance(text, str):
            return self._graph_tables.encode(text)
        table, ids = self._id_of_code_point, np.empty(len(text), np.int32)
        for start in range(0, len(text), CHUNK_IDS):  # in chunks, because code points take as much memory as ids
            chunk, chunk_ids = text[start : start + CHUNK_IDS], ids[start : start + CHUNK_IDS]
            try:
                table.take(_code_points(chunk), mode="clip", out=chunk_ids)
            except UnicodeEncodeError:  # half a surrogate pair
                chunk_ids[:] = -1
            if chunk_ids.min() < 0:
                raise_text_error(chunk, None if self._oov_token else self._characters, start)
        return ids

    def unknown_parts(self, text: str) -> list[str]:
        """Return the characters of a text that become `[UNK]`; see the base class."""
        self.encode(text)
        known = {*self._characters}
        return [character for character in dict.fromkeys(text) if character not in known]

    def _encode_with_offsets(self, text: str):
        starts = np.arange(len(text))
        return self.encode(text), np.stack([starts, starts + 1], axis=1)

    def decode(self, ids: np.ndarray | list[int]) -> str:
        """Convert ids to a text.

        Args:
            ids: Integers `[N]` or a scalar: a tensor, an array or a list. For a batch, see `decode_tensor`.

        Returns:
            N characters; U+FFFD for each `[UNK]`.

        Raises:
            TokenizerError: An id has no character, or the ids are not integers along one axis.

        >>> CharacterTokenizer.from_text("hello").decode([1, 0, 2, 2, 3])
        'hello'
        """
        array = check_ids(ids, self.vocabulary_size, "character", hint=" (see decode_tensor)")
        code_points = _code_points(self._outputs)
        chunks = (array[start : start + CHUNK_IDS] for start in range(0, len(array), CHUNK_IDS))
        return "".join(code_points[chunk].tobytes().decode("utf-32-le") for chunk in chunks)

    def decode_tensor(self, ids):
        """Convert ids to texts by TensorFlow, in a graph or eagerly.

        Args:
            ids: Integers `[..., N]`, dense or ragged.

        Returns:
            UTF-8 strings `[...]`: the last axis is joined.

        Raises:
            TokenizerError: The ids are not integers.
            tf.errors.InvalidArgumentError: An id has no character.

        >>> CharacterTokenizer.from_text("ab").decode_tensor([[0, 1], [1, 1]]).numpy().tolist()
        [b'ab', b'bb']
        """
        return self._graph_tables.decode(ids)


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), "<u4")
