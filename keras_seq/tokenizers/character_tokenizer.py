"""Characters to ids and back, through one lookup table each way.

    encode:  text --UTF-8--> code points --table--> ids          id = place in the sorted characters
    decode:  ids --table--> characters --join--> text

A character is a Unicode code point, so a flag or an accented letter may be several; nothing is normalised, and the
round trip is exact. A text is looked up once, as a whole; from then on batches are slices of its ids (`windows.py`).
"""

import os

import numpy as np
import tensorflow as tf

from keras_seq.tokenizers.base_tokenizer import UNKNOWN, check_ids
from keras_seq.tokenizers.dlpack_buffer import CHUNK_IDS, shared_int32_buffer
from keras_seq.tokenizers.text_errors import TokenizerError, check_characters, raise_text_error, short_repr
from keras_seq.tokenizers.tokenizer_io import read_json, write_json


class CharacterTokenizer(tf.Module):
    """The characters of a text, numbered in code point order.

    Being a `tf.Module`, it exports with `tf.saved_model.save` as an attribute of another. Vocabularies with the same
    characters and policy are equal and hash alike; there is no changing one.

    Args:
        characters: Distinct code points in ascending order. `from_text` finds them.
        unknown: What `encode` does with any other character: `"error"` raises; `"[UNK]"` gives it id 0, which shifts
            the characters to ids 1, 2, ... and decodes to U+FFFD, the replacement character (one id, one character).

    Raises:
        VocabularyError: `characters` is empty, repeats itself, is out of order or holds a surrogate; no such policy.

    >>> vocabulary = Vocabulary.from_text("hello", unknown="[UNK]")
    >>> vocabulary.characters, len(vocabulary)
    ('ehlo', 5)
    >>> vocabulary.decode(vocabulary.encode("help"))
    'hel�'
    """

    def __init__(self, characters: str, unknown: str = "error"):
        super().__init__(name="vocabulary")
        if unknown not in ("error", UNKNOWN):
            raise TokenizerError(f"unknown must be 'error' or {UNKNOWN!r}, not {unknown!r}.")
        check_characters(characters)
        self._characters = characters
        self._unknown = unknown
        labels = ["\ufffd"] * (unknown == UNKNOWN) + list(characters)
        first = len(labels) - len(characters)
        with tf.init_scope():
            self._id_of = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(
                    tf.constant([ord(character) for character in characters], tf.int32),
                    tf.range(first, len(labels), dtype=tf.int32),
                ),
                default_value=first - 1,  # 0 is [UNK], -1 is an error
            )
            self._character_of = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(tf.range(len(labels), dtype=tf.int64), tf.constant(labels)),
                default_value="\ufffd",
            )

    @classmethod
    def from_text(cls, text: str, unknown: str = "error") -> "CharacterTokenizer":
        """The vocabulary of all the characters in a text; for the arguments and errors see the class."""
        if not isinstance(text, str) or not text:
            raise TokenizerError(f"A vocabulary needs a text of at least one character, not {short_repr(text)}.")
        return cls("".join(sorted(set(text))), unknown)

    @property
    def characters(self) -> str:
        """The known characters in the order of their ids, without `[UNK]`."""
        return self._characters

    @property
    def tokens(self) -> list[str]:
        """What each id stands for, the `[UNK]` included."""
        return [UNKNOWN] * (self._unknown == UNKNOWN) + list(self._characters)

    @property
    def unknown(self) -> str:
        """The policy for other characters, `"error"` or `"[UNK]"`."""
        return self._unknown

    @property
    def vocabulary_size(self) -> int:
        """How many ids there are, the `[UNK]` included: `V`."""
        return len(self._characters) + (self._unknown == UNKNOWN)

    @property
    def tables(self) -> tuple[tf.lookup.StaticHashTable, tf.lookup.StaticHashTable]:
        """The tables from code points to ids and from ids to characters, for whoever saves a graph that uses them."""
        return self._id_of, self._character_of

    def __len__(self) -> int:
        return self.vocabulary_size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CharacterTokenizer) and self.get_config() == other.get_config()

    def __hash__(self) -> int:
        return hash((self._characters, self._unknown))

    def __repr__(self) -> str:
        return f"<Vocabulary of {len(self._characters)} characters, unknown={self._unknown!r}>"

    def encode(self, text: str | tf.Tensor) -> tf.Tensor:
        """Look up the ids of a text.

        Args:
            text: A `str`, or a `tf.string` tensor of UTF-8, eager or symbolic (inside `tf.data` or `tf.function`).

        Returns:
            int32 ids: `[N]` for a `str` or a scalar of N characters, a `tf.RaggedTensor` `[B, None]` for B of them.

        Raises:
            UnknownCharacterError: Under the policy `"error"`; it names the character and its position.
            VocabularyError: The text is no text, holds half a surrogate pair, or bytes that are not UTF-8.
            tf.errors.InvalidArgumentError: An unknown character or bytes that are not UTF-8, met when a graph runs.

        >>> Vocabulary.from_text("hello").encode("hole").numpy().tolist()
        [1, 3, 2, 0]
        """
        if isinstance(text, str) and tf.executing_eagerly():
            return self._encode_whole(text)
        try:
            text = tf.convert_to_tensor(text, tf.string)
        except (TypeError, ValueError):
            raise TokenizerError(
                f"text must be a str or a tf.string tensor of UTF-8, not {short_repr(text)}."
            ) from None
        if text.shape.rank is not None and text.shape.rank > 1:
            raise TokenizerError(f"text must be one string or [B] of them, not of shape {tuple(text.shape)}.")
        try:
            return self._look_up(text)
        except tf.errors.InvalidArgumentError:  # eager; a graph raises when it runs, with the message of the assertion
            for row, string in enumerate(tf.reshape(text, [-1]).numpy()):
                self._explain(string, where=f" of string {row}" if text.shape.rank else "")
            raise

    def _encode_whole(self, text: str) -> tf.Tensor:
        # In pieces, for TensorFlow's code points of a whole text would take more room than all else.
        ids, tensor = shared_int32_buffer(len(text))
        for start in range(0, len(text), CHUNK_IDS):
            piece = text[start : start + CHUNK_IDS]
            try:
                ids[start : start + CHUNK_IDS] = self._look_up(tf.constant(piece)).numpy()
            except (ValueError, tf.errors.InvalidArgumentError):  # half a surrogate pair, or unknown
                self._explain(piece, start)
                raise
        return tensor

    def _look_up(self, text: tf.Tensor) -> tf.Tensor:
        code_points = tf.strings.unicode_decode(text, "UTF-8", errors="strict")
        ids = self._id_of.lookup(code_points)
        if self._unknown == "error":
            flat_points, flat_ids = (getattr(x, "flat_values", x) for x in (code_points, ids))
            first = tf.where(flat_ids < 0)[:1]  # [0 or 1, 1]
            character = tf.strings.unicode_encode(tf.gather_nd(flat_points, first)[:, None], "UTF-8")
            message = ["The vocabulary lacks the character", character, "at position", first]
            tf.debugging.Assert(tf.equal(tf.size(first), 0), [*message, f"and was made without unknown={UNKNOWN!r}."])
        return ids

    def _explain(self, text: str | bytes, start: int = 0, where: str = "") -> None:
        raise_text_error(text, None if self._unknown == UNKNOWN else self._characters, start, where)

    def decode(self, ids: tf.Tensor | np.ndarray | list[int]) -> str:
        """The text of a sequence of ids, eagerly.

        Args:
            ids: Integers `[N]` or a scalar: a tensor, an array or a list. For a batch, see `decode_tensor`.

        Returns:
            N characters; U+FFFD for an `[UNK]`.

        Raises:
            VocabularyError: An id has no character, or the ids are not integers along one axis.

        >>> Vocabulary.from_text("hello").decode([1, 0, 2, 2, 3])
        'hello'
        """
        array = check_ids(ids, self.vocabulary_size, "character", hint=" (see decode_tensor)")
        pieces = (array[start : start + CHUNK_IDS] for start in range(0, len(array), CHUNK_IDS))
        return "".join(self.decode_tensor(piece).numpy().decode("utf-8") for piece in pieces)

    def decode_tensor(self, ids: tf.Tensor) -> tf.Tensor:
        """The texts of ids, in a graph or eagerly.

        Args:
            ids: Integers `[..., N]`, dense or ragged.

        Returns:
            UTF-8 strings `[...]`: the last axis is joined.

        Raises:
            VocabularyError: The ids are no integers.
            tf.errors.InvalidArgumentError: An id has no character.

        >>> Vocabulary.from_text("ab").decode_tensor([[0, 1], [1, 1]]).numpy().tolist()
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

    def get_config(self) -> dict[str, str]:
        """The arguments that make this vocabulary again."""
        return {"characters": self._characters, "unknown": self._unknown}

    @classmethod
    def from_config(cls, config: dict[str, str]) -> "CharacterTokenizer":
        """The vocabulary of a `get_config`; a VocabularyError for anything else."""
        if not isinstance(config, dict) or set(config) != {"characters", "unknown"}:
            raise TokenizerError(f"A vocabulary is made from exactly characters and unknown, not {short_repr(config)}.")
        return cls(**config)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the vocabulary as JSON, under a temporary name until it is whole.

        Raises:
            OSError: The file cannot be written; a file that was there before is as it was.
        """
        write_json(path, self.get_config())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "CharacterTokenizer":
        """Read a vocabulary that `save` wrote; a VocabularyError where the file cannot be read or holds none."""
        return read_json(path, cls.from_config, "vocabulary")
