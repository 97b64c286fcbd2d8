"""Convert characters in TensorFlow graphs (`tf.data`, `tf.function`, SavedModel), by a lookup table in each direction.

    encode:  text --UTF-8--> code points --table--> ids                decode:  ids --table--> characters --join--> text

`CharacterTokenizer` does the same in NumPy for a `str`; it creates these tables when they are first needed.
"""

import tensorflow as tf

from keras_seq.checks import short_repr
from keras_seq.tokenizers.base_tokenizer import OOV_TOKEN
from keras_seq.tokenizers.text_errors import TokenizerError, raise_text_error


class CharacterTables:
    """The tables of a `CharacterTokenizer` and what uses them.

    Args:
        characters: The known characters; their ids are the last ones.
        outputs: The character that each id decodes to: one more than `characters` if there is an `[UNK]`.
    """

    def __init__(self, characters: str, outputs: str):
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

    def encode(self, text) -> tf.Tensor | tf.RaggedTensor:
        """Convert strings to ids; see `CharacterTokenizer.encode`."""
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
                raise_text_error(string, self.allowed, where=f" of string {row}" if text.shape.rank else "")
            raise

    def _lookup_ids(self, text):
        code_points = tf.strings.unicode_decode(text, "UTF-8", errors="strict")
        ids = self.tables[0].lookup(code_points)
        if self.allowed is not None:
            flat_points, flat_ids = (getattr(x, "flat_values", x) for x in (code_points, ids))
            first = tf.where(flat_ids < 0)[:1]  # [0 or 1, 1]
            character = tf.strings.unicode_encode(tf.gather_nd(flat_points, first)[:, None], "UTF-8")
            message = ["The vocabulary lacks the character", character, "at position", first]
            remedy = f"and the tokenizer was created without oov_token={OOV_TOKEN!r}."
            tf.debugging.Assert(tf.equal(tf.size(first), 0), [*message, remedy])
        return ids

    def decode(self, ids) -> tf.Tensor:
        """Convert ids to strings; see `CharacterTokenizer.decode_tensor`."""
        ids = ids if isinstance(ids, tf.RaggedTensor) else tf.convert_to_tensor(ids)
        if not ids.dtype.is_integer:
            raise TokenizerError(f"ids must be integers, not {ids.dtype.name}.")
        ids = tf.cast(ids, tf.int64)
        flat = getattr(ids, "flat_values", ids)
        wrong = tf.boolean_mask(flat, (flat < 0) | (flat >= self.num_ids))
        message = ["These ids have no character:", wrong, f"They run from 0 to {self.num_ids - 1}."]
        tf.debugging.Assert(tf.equal(tf.size(wrong), 0), message)
        return tf.strings.reduce_join(self.tables[1].lookup(ids), axis=-1)
