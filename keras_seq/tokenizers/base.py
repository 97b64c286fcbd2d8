"""The base class of all tokenizers, and what each of them needs to know of texts.

    encode:  text -> tokens -> ids [N]        decode:  ids [N] -> tokens -> text        id = index in `vocabulary`
    file:    {"schema": 2, "registry_name": "words", "vocabulary": ["[UNK]", " ", "the", ...]}          JSON in ASCII

    text     "  Été"       ids      [BOS]    Ġ       ĠÃ      ī        t     Ã     ©
                           offsets  (0, 0)  (0, 1)  (1, 3)  (2, 3)  (3, 4) (4, 5) (4, 5)
                           pieces     ""     " "     " É"     ""     "t"    "é"    ""

A character is a Unicode code point except the surrogates U+D800 to U+DFFF, halves of UTF-16 pairs: a Python `str` can
contain a single one (JSON and `errors="surrogateescape"` produce them), UTF-8 cannot. A token that a tokenizer adds
stands for no character. Of tokens that are parts of one character, the first one has it. What a tokenizer drops, such
as white space, belongs to the token that follows it, or at the end of a text to the last one.
"""

import errno
import json
import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from keras_seq.checks import short_repr
from keras_seq.files import check_regular, write_text

DOCUMENT_CHARACTER = "\x1e"  # that begins a document
LOOKAHEAD = 256  # characters in which an unknown tokenizer's token is sought
WHITESPACE_SYMBOLS = {" ": "·", "\n": "⏎", "\t": "⇥"}


class TokenizerError(ValueError):
    """A tokenizer cannot be created, read or applied."""


class UnknownCharacterError(TokenizerError):
    """A text has a character that is not in the vocabulary, and the tokenizer has no `oov_token`."""


def check_text(text: str) -> None:
    """Raise a TokenizerError unless a value is a `str` that can be encoded as UTF-8."""
    if not isinstance(text, str):
        raise TokenizerError(f"text must be a str, not {short_repr(text)}.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise_text_error(text[error.start], None, error.start)


def raise_text_error(text: str | bytes, allowed: str | None, start: int = 0, where: str = "") -> None:
    """Raise the error for the first invalid character of a text, if there is one."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise TokenizerError(f"The text is not UTF-8: see the byte at offset {error.start}{where}.") from None
    allowed = None if allowed is None else set(allowed)
    for position, character in enumerate(text, start):
        name, place = _code_point(character), f"at position {position}{where}"
        if _is_surrogate(character):
            raise TokenizerError(f"The text has {name}, half a surrogate pair, {place}: repair the text.")
        if allowed is not None and character not in allowed:
            remedy = "train on a text that contains it, or with oov_token='[UNK]'"
            raise UnknownCharacterError(f"The vocabulary lacks the character {name} {place}: {remedy}.")


def _is_surrogate(character: str) -> bool:
    return "\ud800" <= character <= "\udfff"


def _code_point(character: str) -> str:
    return f"{character!r} (U+{ord(character):04X})"


def piece_ends(text: str, offsets: np.ndarray) -> np.ndarray:
    """Return where the piece of each token ends; they begin where the one before ends, and joined they are the text."""
    ends = np.minimum(np.maximum.accumulate(offsets[:, 1]), len(text)) if len(offsets) else np.zeros(0, "int64")
    if len(ends):
        ends[np.argmax(ends) :] = len(text)
    return ends


def token_offsets(tokenizer, text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return ids `[N]` and offsets `[N, 2]` of any tokenizer with `encode` and `decode`."""
    if hasattr(tokenizer, "encode_with_offsets"):
        return tokenizer.encode_with_offsets(text)
    ids = np.asarray(tokenizer.encode(text))
    return ids, offsets_of_texts([tokenizer.decode([id]) for id in ids.tolist()], text)


def offsets_of_texts(tokens: list[str], text: str) -> np.ndarray:
    """Return the offsets `[N, 2]` of tokens, each where its text comes next; without length where it does not come."""
    offsets, position = np.zeros((len(tokens), 2), "int64"), 0
    for row, token in zip(offsets, tokens, strict=True):
        start = text.find(token, position, position + len(token) + LOOKAHEAD)
        row[:] = (position, position) if start < 0 else (start, start + len(token))
        position = int(row[1])
    return offsets


def first_token_characters(tokenizer, text: str) -> int:
    """Return how many characters of a text its first token stands for; 0 for one that the tokenizer adds."""
    if text.startswith(DOCUMENT_CHARACTER):
        return 1
    beginning = text.partition(DOCUMENT_CHARACTER)[0]
    for part in (beginning[:LOOKAHEAD], beginning):
        end = int(piece_ends(part, token_offsets(tokenizer, part)[1])[:1].sum())
        if end < len(part):  # else the token may be longer than the part
            break
    return end


def show_whitespace(text: str) -> str:
    """Replace spaces, line breaks and tabs by visible symbols, and control characters by their code points."""
    return "".join(WHITESPACE_SYMBOLS.get(character) or escape_control(character) for character in text)


def escape_control(character: str) -> str:
    """Return the code point of a control or text-direction character, and any other character unchanged."""
    return f"⟨U+{ord(character):04X}⟩" if unicodedata.category(character) in ("Cc", "Cf") else character


# A new tokenizer is a subclass with `_encode`, `_decode` and a class method `from_text` that trains it; `config_fields`
# names the constructor arguments that are saved.

OOV_TOKEN = "[UNK]"
SCHEMA = 2  # version of the file format
MAX_TOKENIZER_BYTES = 1 << 26  # enough for a million tokens


class Tokenizer:
    """Convert text to ids and back; immutable, and equal if the configs are equal.

    Args:
        vocabulary: Distinct strings, the special tokens first. The id of a token is its index.
        special_tokens: The tokens that must come first.

    Raises:
        TokenizerError: The vocabulary is not a list of such strings.
    """

    registry_name: ClassVar[str]
    config_fields: ClassVar[tuple[str, ...]] = ("vocabulary",)

    def __init__(self, vocabulary: list[str], special_tokens: list[str]):
        if not (isinstance(vocabulary, list) and all(isinstance(token, str) and token for token in vocabulary)):
            raise TokenizerError(f"vocabulary={short_repr(vocabulary)}; expected a list of non-empty strings.")
        if vocabulary[: len(special_tokens)] != special_tokens:
            raise TokenizerError(f"vocabulary must begin with {special_tokens}, unlike {short_repr(vocabulary)}.")
        if len(set(vocabulary)) < len(vocabulary):
            [(token, count)] = Counter(vocabulary).most_common(1)
            raise TokenizerError(f"The tokens of vocabulary must be distinct, but {token!r} occurs {count} times.")
        check_text("".join(vocabulary))
        self._vocabulary = tuple(vocabulary)

    @property
    def vocabulary(self) -> list[str]:
        """The token of each id, including the special tokens."""
        return list(self._vocabulary)

    @property
    def vocabulary_size(self) -> int:
        """V, the number of ids."""
        return len(self._vocabulary)

    @property
    def oov_token(self) -> str | None:
        """The token for unknown text, `"[UNK]"`; None if unknown text is an error."""
        return OOV_TOKEN

    def __len__(self) -> int:
        """Return the vocabulary size."""
        return self.vocabulary_size

    def __eq__(self, other: object) -> bool:
        """Return whether class and config are equal."""
        return type(other) is type(self) and self.get_config() == other.get_config()

    def __hash__(self) -> int:
        """Return a hash that equal tokenizers share."""
        return hash((self.registry_name, self._vocabulary))

    def __repr__(self) -> str:
        """Return the class and the vocabulary size."""
        return f"<{type(self).__name__} of {self.vocabulary_size} tokens>"

    def encode(self, text: str) -> np.ndarray:
        """Convert a text to ids, int32 `[N]`.

        Raises:
            TokenizerError: `text` is not a `str`, or contains half a surrogate pair.
        """
        check_text(text)
        return np.array(self._encode(text), np.int32)

    def encode_with_offsets(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Convert a text to ids, int32 `[N]`, and offsets, int64 `[N, 2]`: the token stands for `text[start:end]`.

        Start and end are equal for tokens that the tokenizer adds. Tokens that are parts of one character all have that
        character.

        >>> from keras_seq.tokenizers import WordTokenizer
        >>> WordTokenizer(["[UNK]", " ", "be"]).encode_with_offsets("to be")[1].tolist()
        [[0, 2], [2, 3], [3, 5]]
        """
        check_text(text)
        ids, offsets = self._encode_with_offsets(text)
        return np.array(ids, np.int32), np.array(offsets, np.int64).reshape(-1, 2)

    def encode_texts(self, texts: list[str]) -> list[np.ndarray]:
        """Convert several texts to ids, int32 `[N]` each, one after the other or in parallel."""
        return [self.encode(text) for text in texts]

    def unknown_parts(self, text: str) -> list[str]:
        """Return the parts of a text that become the `oov_token`, each once, in the order of the text."""
        check_text(text)
        return []

    def decode(self, ids: np.ndarray | list[int]) -> str:
        """Convert ids, integers `[N]` or a scalar, to a text, special tokens included as their names.

        Raises:
            TokenizerError: An id has no token, or the ids are not integers along one axis.
        """
        return self._decode(check_ids(ids, self.vocabulary_size, "token").tolist())

    def get_config(self) -> dict:
        """Return the name of the class in `TOKENIZERS` and the constructor arguments."""
        return {"registry_name": self.registry_name, **{name: getattr(self, name) for name in self.config_fields}}

    @classmethod
    def from_config(cls, config: dict) -> Self:
        """Create a tokenizer from the result of `get_config`; a TokenizerError names what is wrong with it."""
        keys = ["registry_name", *cls.config_fields]
        if not isinstance(config, dict) or set(config) != set(keys) or config["registry_name"] != cls.registry_name:
            raise TokenizerError(
                f"config={short_repr(config)}; expected exactly the keys {', '.join(keys)}, with "
                f"registry_name={cls.registry_name!r}."
            )
        return cls(**{name: config[name] for name in cls.config_fields})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer to a JSON file, atomically."""
        write_text(path, json.dumps({"schema": SCHEMA, **self.get_config()}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a tokenizer of this class from the file that `save` wrote, or raise a TokenizerError."""
        return read_tokenizer(path, cls.from_config)

    def __reduce__(self):
        """Pickle and copy the config: tables and pipelines are made again."""
        return type(self).from_config, (self.get_config(),)

    def _encode_with_offsets(self, text: str):
        ids = self.encode(text)
        return ids, offsets_of_texts([self.decode([id]) for id in ids.tolist()], text)

    def _encode(self, text: str) -> list[int]:
        raise NotImplementedError

    def _decode(self, ids: list[int]) -> str:
        raise NotImplementedError


def check_ids(ids: np.ndarray | list[int], size: int, noun: str, hint: str = "") -> np.ndarray:
    """Return ids as an array `[N]`, after checking their type and range."""
    try:
        array = np.atleast_1d(np.asarray(ids))
    except ValueError:  # a list of lists of unequal lengths
        array = np.empty((0, 0))
    if array.ndim > 1 or (array.size and array.dtype.kind not in "iu"):
        raise TokenizerError(f"ids must be integers along one axis{hint}, not {short_repr(ids)}.")
    for position in np.flatnonzero((array < 0) | (array >= size))[:1]:
        where = f"{array[position]} at position {position}"
        raise TokenizerError(f"The id {where} has no {noun}; expected ids from 0 to {size - 1}.")
    return array


def check_training_texts(texts: Sequence[str]) -> None:
    """Raise a TokenizerError unless values are texts with at least one character in all."""
    for text in texts:
        check_text(text)
    if not any(texts):
        raise TokenizerError("text=''; expected at least one character to train a tokenizer on.")


def read_tokenizer(path: str | os.PathLike[str], from_config: Callable[[dict], object]) -> object:
    """Create a tokenizer from the JSON in a file."""
    if not isinstance(path, str | os.PathLike):
        raise TokenizerError(f"path={path!r}; expected the path of a tokenizer file.")
    try:
        if (size := check_regular(path).st_size) > MAX_TOKENIZER_BYTES:
            raise OSError(errno.EFBIG, f"it has {size} bytes; expected at most {MAX_TOKENIZER_BYTES}")
        config = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise TokenizerError(f"The tokenizer file {str(path)!r} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"The tokenizer file {str(path)!r} is not JSON: {error}.") from None
    if not isinstance(config, dict):
        raise TokenizerError(f"The tokenizer file {str(path)!r} does not contain a JSON object.")
    schema = config.pop("schema", None)
    if schema != SCHEMA:
        raise TokenizerError(
            f"The tokenizer file {str(path)!r} has schema={str(schema)[:40]}; expected {SCHEMA}: an older version of "
            "keras_seq or another library wrote it, so create the tokenizer again and save it."
        )
    try:
        return from_config(config)
    except ValueError as error:  # a TokenizerError, or of another argument
        raise TokenizerError(f"The tokenizer file {str(path)!r} is invalid: {error}") from None
