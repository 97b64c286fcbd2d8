"""What every tokenizer answers to: a text to ids, ids to a text, and a file of its own.

    encode:  text -> pieces -> ids [N]        decode:  ids [N] -> tokens -> text        id = place in `tokens`

`Vocabulary` answers to the same names for characters. A further kind is a subclass with `_encode`, `_decode` and a
`from_text` that trains it; `fields` names the arguments that make it again.
"""

import os
from collections import Counter
from typing import ClassVar, Self

import numpy as np
import tensorflow as tf

from keras_seq.tokenizers.text_errors import TokenizerError, check_text, short_repr
from keras_seq.tokenizers.tokenizer_io import read_json, write_json

UNKNOWN = "[UNK]"


class Tokenizer:
    """What the kinds of tokenizer share. Equal configs make equal tokenizers; there is no changing one.

    Args:
        tokens: Distinct strings, the special ones first. The id of a token is its place.
        specials: The tokens that have to come first.

    Raises:
        VocabularyError: The tokens are no such strings.
    """

    kind: ClassVar[str]
    fields: ClassVar[tuple[str, ...]] = ("tokens",)

    def __init__(self, tokens: list[str], special_tokens: list[str]):
        if not (isinstance(tokens, list) and all(isinstance(token, str) and token for token in tokens)):
            raise TokenizerError(f"tokens must be a list of strings, none of them empty, not {short_repr(tokens)}.")
        if tokens[: len(special_tokens)] != special_tokens:
            raise TokenizerError(f"tokens must begin with {special_tokens}, unlike {short_repr(tokens)}.")
        if len(set(tokens)) < len(tokens):
            [(token, count)] = Counter(tokens).most_common(1)
            raise TokenizerError(f"tokens must be distinct, but {token!r} is there {count} times.")
        check_text("".join(tokens))
        self._tokens = tuple(tokens)

    @property
    def tokens(self) -> list[str]:
        """What each id stands for, the special tokens included."""
        return list(self._tokens)

    @property
    def vocabulary_size(self) -> int:
        """How many ids there are: `V`."""
        return len(self._tokens)

    @property
    def unknown(self) -> str:
        """The policy for pieces that are no tokens, as in `Vocabulary`: they become `[UNK]`."""
        return UNKNOWN

    def __len__(self) -> int:
        return self.vocabulary_size

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.get_config() == other.get_config()

    def __hash__(self) -> int:
        return hash((self.kind, self._tokens))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.vocabulary_size} tokens>"

    def encode(self, text: str) -> tf.Tensor:
        """The ids of a text, int32 `[N]`; a VocabularyError where it is no `str` or holds half a surrogate pair."""
        check_text(text)
        return tf.convert_to_tensor(self._encode(text), tf.int32)

    def decode(self, ids: tf.Tensor | np.ndarray | list[int]) -> str:
        """The text of a sequence of ids, special tokens spelt out.

        Args:
            ids: Integers `[N]` or a scalar: a tensor, an array or a list.

        Raises:
            VocabularyError: An id has no token, or the ids are not integers along one axis.
        """
        return self._decode(check_ids(ids, self.vocabulary_size, "token").tolist())

    def get_config(self) -> dict:
        """The kind of the tokenizer and the arguments that make it again."""
        return {"kind": self.kind, **{name: getattr(self, name) for name in self.fields}}

    @classmethod
    def from_config(cls, config: dict) -> Self:
        """The tokenizer of a `get_config`; a VocabularyError for anything else."""
        names = ["kind", *cls.fields]
        if not isinstance(config, dict) or set(config) != set(names) or config["kind"] != cls.kind:
            raise TokenizerError(
                f"A tokenizer of kind {cls.kind!r} is made from exactly {names}, not {short_repr(config)}."
            )
        return cls(**{name: config[name] for name in cls.fields})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer as JSON, under a temporary name until it is whole; an OSError where it cannot be."""
        write_json(path, self.get_config())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; a VocabularyError where the file cannot be read or holds none of this kind."""
        return read_json(path, cls.from_config, "tokenizer")

    def _encode(self, text: str) -> tf.Tensor | list[int]:
        raise NotImplementedError

    def _decode(self, ids: list[int]) -> str:
        raise NotImplementedError


def check_ids(ids: tf.Tensor | np.ndarray | list[int], size: int, noun: str, hint: str = "") -> np.ndarray:
    """The ids as an array `[N]`; a VocabularyError unless they are integers along one axis from 0 to size - 1."""
    try:
        array = np.atleast_1d(np.asarray(ids))
    except ValueError:  # a list of lists of unequal lengths
        array = np.empty((0, 0))
    if array.ndim > 1 or (array.size and array.dtype.kind not in "iu"):
        raise TokenizerError(f"ids must be integers along one axis{hint}, not {short_repr(ids)}.")
    for position in np.flatnonzero((array < 0) | (array >= size))[:1]:
        raise TokenizerError(
            f"The id {array[position]} at position {position} has no {noun}: ids run from 0 to {size - 1}."
        )
    return array


def check_training_text(text: str) -> None:
    """Raise a VocabularyError unless there is a text to learn from."""
    check_text(text)
    if not text:
        raise TokenizerError("A tokenizer learns from a text of at least one character, not from ''.")


def check_number(name: str, value: int, least: int, why: str) -> None:
    """Raise a VocabularyError unless the value is a whole number of at least `least`, for the reason given."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise TokenizerError(f"{name} must be a whole number of at least {least}, {why}, not {value!r}.")
