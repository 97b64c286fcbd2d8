"""Convert characters to ids and back with one lookup table in each direction.

    encode:  text --UTF-8--> code points --table--> ids          id = index in the sorted characters
    decode:  ids --table--> characters --join--> text

A character is a Unicode code point, so a flag or an accented letter may be several. Nothing is normalized, and the
round trip is exact. A whole text is encoded once; batches are then slices of its ids (`data/windows.py`).
"""

from typing import Self

import numpy as np
import tensorflow as tf

from keras_seq.checks import short_repr
from keras_seq.tokenizers.base_tokenizer import OOV_TOKEN, Tokenizer, check_ids
from keras_seq.tokenizers.dlpack_buffer import CHUNK_IDS, shared_int32_buffer
from keras_seq.tokenizers.text_errors import TokenizerError, check_characters, raise_text_error

REPLACEMENT_CHARACTER = "\ufffd"


class CharacterTokenizer(Tokenizer):
    """Convert text to ids by characters, numbered in code point order.

    `encode` and `decode_tensor` also run inside `tf.data` and `tf.function`. To export such a function with
    `tf.saved_model.save`, make `tables` an attribute of the exported module.

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
        outputs = [REPLACEMENT_CHARACTER] * len(special_tokens) + list(characters)
        first = len(special_tokens)
        with tf.init_scope():
            self._id_of = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(
                    tf.constant([ord(character) for character in characters], tf.int32),
                    tf.range(first, len(outputs), dtype=tf.int32),
                ),
                default_value=first - 1,  # 0 is [UNK], -1 is an error
            )
            self._character_of = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(tf.range(len(outputs), dtype=tf.int64), tf.constant(outputs)),
                default_value=REPLACEMENT_CHARACTER,
            )

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
    def tables(self) -> tuple[tf.lookup.StaticHashTable, tf.lookup.StaticHashTable]:
        """The lookup tables from code points to ids and from ids to characters."""
        return self._id_of, self._character_of

    def encode(self, text: str | tf.Tensor) -> tf.Tensor:
        """Convert a text, or a batch of texts, to ids.

        Args:
            text: A `str`, or a `tf.string` tensor of UTF-8, eager or symbolic (inside `tf.data` or `tf.function`).

        Returns:
            int32 ids: `[N]` for a `str` or a scalar of N characters, a `tf.RaggedTensor` `[B, None]` for B of them.

        Raises:
            UnknownCharacterError: A character is unknown and `oov_token` is None; the error gives its position.
            TokenizerError: The argument is not text, contains half a surrogate pair, or is not UTF-8.
            tf.errors.InvalidArgumentError: As the two above, if it is found when a graph runs.

        >>> CharacterTokenizer.from_text("hello").encode("hole").numpy().tolist()
        [1, 3, 2, 0]
        """
        if isinstance(text, str) and tf.executing_eagerly():
            return self._encode_str(text)
        try:
            text = tf.convert_to_tensor(text, tf.string)
        except (TypeError, ValueError):
            raise TokenizerError(
                f"text must be a str or a tf.string tensor of UTF-8, not {short_repr(text)}."
            ) from None
        if text.shape.rank is not None and text.shape.rank > 1:
            raise TokenizerError(f"text must be one string or [B] of them, not of shape {tuple(text.shape)}.")
        try:
            return self._lookup_ids(text)
        except tf.errors.InvalidArgumentError:  # eager; a graph raises when it runs, with the message of the assertion
            for row, string in enumerate(tf.reshape(text, [-1]).numpy()):
                self._raise_text_error(string, where=f" of string {row}" if text.shape.rank else "")
            raise

    def _encode_str(self, text: str) -> tf.Tensor:
        # In chunks, because the code points of a long text would take most of the memory.
        ids, tensor = shared_int32_buffer(len(text))
        for start in range(0, len(text), CHUNK_IDS):
            chunk = text[start : start + CHUNK_IDS]
            try:
                ids[start : start + CHUNK_IDS] = self._lookup_ids(tf.constant(chunk)).numpy()
            except (ValueError, tf.errors.InvalidArgumentError):  # half a surrogate pair, or unknown
                self._raise_text_error(chunk, start)
                raise
        return tensor

    def _lookup_ids(self, text: tf.Tensor) -> tf.Tensor:
        code_points = tf.strings.unicode_decode(text, "UTF-8", errors="strict")
        ids = self._id_of.lookup(code_points)
        if self._oov_token is None:
            flat_points, flat_ids = (getattr(x, "flat_values", x) for x in (code_points, ids))
            first = tf.where(flat_ids < 0)[:1]  # [0 or 1, 1]
            character = tf.strings.unicode_encode(tf.gather_nd(flat_points, first)[:, None], "UTF-8")
            message = ["The vocabulary lacks the character", character, "at position", first]
            remedy = f"and the tokenizer was created without oov_token={OOV_TOKEN!r}."
            tf.debugging.Assert(tf.equal(tf.size(first), 0), [*message, remedy])
        return ids

    def _raise_text_error(self, text: str | bytes, start: int = 0, where: str = "") -> None:
        raise_text_error(text, self._characters if self._oov_token is None else None, start, where)

    def decode(self, ids: tf.Tensor | np.ndarray | list[int]) -> str:
        """Convert ids to a text, eagerly.

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
        chunks = (array[start : start + CHUNK_IDS] for start in range(0, len(array), CHUNK_IDS))
        return "".join(self.decode_tensor(chunk).numpy().decode("utf-8") for chunk in chunks)

    def decode_tensor(self, ids: tf.Tensor) -> tf.Tensor:
        """Convert ids to texts, in a graph or eagerly.

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
        ids = ids if isinstance(ids, tf.RaggedTensor) else tf.convert_to_tensor(ids)
        if not ids.dtype.is_integer:
            raise TokenizerError(f"ids must be integers, not {ids.dtype.name}.")
        ids = tf.cast(ids, tf.int64)
        flat = getattr(ids, "flat_values", ids)
        wrong = tf.boolean_mask(flat, (flat < 0) | (flat >= self.vocabulary_size))
        message = ["These ids have no character:", wrong, f"They run from 0 to {self.vocabulary_size - 1}."]
        tf.debugging.Assert(tf.equal(tf.size(wrong), 0), message)
        return tf.strings.reduce_join(self._character_of.lookup(ids), axis=-1)
