"""Convert characters to ids and back by a table in each direction, in NumPy and in TensorFlow graphs.

    encode:  text -> code points --table--> ids          id = index in the sorted characters
    decode:  ids --table--> code points -> text

A character is a Unicode code point, so a flag or an accented letter may be several. Nothing is normalized, and the
round trip is exact. NumPy encodes a whole text once; batches are then slices of its ids (`data/windows.py`). TensorFlow
does the same in `tf.data`, `tf.function` and SavedModels, by lookup tables that are created when they are first needed.
"""

import itertools
import pathlib
from functools import cached_property
from typing import Self

import keras
import numpy as np

from keras_seq import checks
from keras_seq.checks import short_repr
from keras_seq.layers.introspection import check_tokenizer
from keras_seq.tokenizers.base import OOV_TOKEN, Tokenizer, TokenizerError, check_ids, raise_text_error

CHUNK_IDS = 1 << 14  # ids processed at a time: temporary arrays this small need no new pages of memory
REPLACEMENT_CHARACTER = "\ufffd"
ASSET = "tokenizer.json"


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
        if not isinstance(characters, str) or not characters:
            raise TokenizerError(f"characters={short_repr(characters)}; expected a string of at least one character.")
        for first, second in itertools.pairwise(characters):
            if first >= second:
                raise TokenizerError(f"{second!r} follows {first!r}; expected ascending characters.")
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
        return _GraphTables(self._characters, self._outputs)

    @classmethod
    def from_text(cls, text: str, oov_token: str | None = None) -> Self:
        """Create a tokenizer of all characters in a text, at least one; `oov_token` as for the class."""
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
        """Convert ids, integers `[N]` or a scalar, to N characters; U+FFFD for each `[UNK]`.

        >>> CharacterTokenizer.from_text("hello").decode([1, 0, 2, 2, 3])
        'hello'
        """
        array = check_ids(ids, self.vocabulary_size, "character", hint=" (see decode_tensor)")
        code_points = _code_points(self._outputs)
        chunks = (array[start : start + CHUNK_IDS] for start in range(0, len(array), CHUNK_IDS))
        return "".join(code_points[chunk].tobytes().decode("utf-32-le") for chunk in chunks)

    def decode_tensor(self, ids):
        """Convert ids, integers `[..., N]`, dense or ragged, to UTF-8 strings `[...]` by TensorFlow, also in a graph.

        >>> CharacterTokenizer.from_text("ab").decode_tensor([[0, 1], [1, 1]]).numpy().tolist()
        [b'ab', b'bb']
        """
        return self._graph_tables.decode(ids)


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), "<u4")


class _GraphTables:
    """The tables of a `CharacterTokenizer` in TensorFlow, and what uses them."""

    def __init__(self, characters, outputs):
        import tensorflow as tf

        self.allowed, self.num_ids = None if len(outputs) > len(characters) else characters, len(outputs)
        first = len(outputs) - len(characters)
        with tf.init_scope():
            code_points = tf.constant([*map(ord, characters)], tf.int32)
            ids = tf.range(first, len(outputs), dtype=tf.int32)
            initializer = tf.lookup.KeyValueTensorInitializer(code_points, ids)
            id_of = tf.lookup.StaticHashTable(initializer, default_value=first - 1)  # 0 is [UNK], -1 is an error
            ids, texts = tf.range(len(outputs), dtype=tf.int64), tf.constant([*outputs])
            initializer = tf.lookup.KeyValueTensorInitializer(ids, texts)
            self.tables = id_of, tf.lookup.StaticHashTable(initializer, default_value="")

    def encode(self, text):
        import tensorflow as tf

        try:
            text = tf.convert_to_tensor(text, tf.string)
        except (TypeError, ValueError):
            raise TokenizerError(f"text must be a str or a tf.string tensor, not {short_repr(text)}.") from None
        if text.shape.rank is not None and text.shape.rank > 1:
            raise TokenizerError(f"text must be one string or [B] of them, not of shape {tuple(text.shape)}.")
        try:
            code_points = tf.strings.unicode_decode(text, "UTF-8", errors="strict")  # [N], ragged [B, None]
            ids = self.tables[0].lookup(code_points)
            if self.allowed is not None:
                flat_points, flat_ids = (getattr(x, "flat_values", x) for x in (code_points, ids))
                first = tf.where(flat_ids < 0)[:1]  # [0 or 1, 1]
                character = tf.strings.unicode_encode(tf.gather_nd(flat_points, first)[:, None], "UTF-8")
                message = ["The vocabulary lacks the character", character, "at position", first]
                remedy = f"and the tokenizer was created without oov_token={OOV_TOKEN!r}."
                tf.debugging.Assert(tf.equal(tf.size(first), 0), [*message, remedy])
            return ids
        except tf.errors.InvalidArgumentError:  # eager; a graph raises when it runs, with the message of the assertion
            for row, string in enumerate(tf.reshape(text, [-1]).numpy()):
                raise_text_error(string, self.allowed, where=f" of string {row}" if text.shape.rank else "")
            raise

    def decode(self, ids):
        import tensorflow as tf

        ids = ids if isinstance(ids, tf.RaggedTensor) else tf.convert_to_tensor(ids)
        if not ids.dtype.is_integer:
            raise TokenizerError(f"ids must be integers, not {ids.dtype.name}.")
        ids = tf.cast(ids, tf.int64)
        flat = getattr(ids, "flat_values", ids)
        wrong = tf.boolean_mask(flat, (flat < 0) | (flat >= self.num_ids))
        message = ["These ids have no character:", wrong, f"They run from 0 to {self.num_ids - 1}."]
        tf.debugging.Assert(tf.equal(tf.size(wrong), 0), message)
        return tf.strings.reduce_join(self.tables[1].lookup(ids), axis=-1)


@keras.saving.register_keras_serializable(package="keras_seq")
class TextToIds(keras.layers.Layer):
    """Convert strings `[B]` to ids `[B, T]`, where T is the longest length and shorter rows end with zeros.

    The tokenizer is saved as an asset, so a model that takes text is one `.keras` file. There is no padding
    mask: use the layer in causal models, whose outputs do not depend on later positions. It runs on the TensorFlow
    backend only.

    >>> TextToIds(CharacterTokenizer("abc"))(keras.ops.convert_to_tensor(["ca", "b"])).numpy().tolist()
    [[2, 0], [1, 0]]
    """

    def __init__(self, tokenizer: CharacterTokenizer | None = None, **kwargs):
        super().__init__(**{"trainable": False, **kwargs})
        self._set_tokenizer(tokenizer)

    def _set_tokenizer(self, tokenizer):
        self.tokenizer = tokenizer
        self._tables = () if tokenizer is None else tokenizer.tables  # attributes of the layer are exported with it

    def call(self, texts):
        """Convert texts to ids, padded with 0 on the right."""
        if self.tokenizer is None:
            raise TokenizerError("The layer has no tokenizer; pass one, or load the layer with its model.")
        return self.tokenizer.encode(texts).to_tensor()

    def compute_output_spec(self, texts):
        """Return the shape and dtype of the output, int32 `[B, T]`."""
        return keras.KerasTensor((*texts.shape, None), dtype="int32")

    def get_config(self):
        """Return the config without the tokenizer, which is an asset."""
        return super().get_config()

    def save_assets(self, directory: str) -> None:
        """Write the tokenizer into a folder of the model's archive."""
        self.tokenizer.save(pathlib.Path(directory) / ASSET)

    def load_assets(self, directory: str) -> None:
        """Read the tokenizer from a folder of the model's archive."""
        self._set_tokenizer(CharacterTokenizer.load(pathlib.Path(directory) / ASSET))


def with_text_input(model: keras.Model, tokenizer: CharacterTokenizer) -> keras.Model:
    """Create a model that takes strings `[B]` and applies `model` to their ids."""
    checks.tensorflow_backend("A model of texts")
    check_tokenizer(tokenizer, model)
    texts = keras.Input((), dtype="string", name="texts")
    ids = TextToIds(tokenizer, name="text_to_ids")(texts)
    return keras.Model(texts, model(ids), name=f"{model.name}_of_text")
