"""Check texts, find the characters that each token stands for, and make white space visible.

    text     "  Été"       ids      [BOS]    Ġ       ĠÃ      ī        t     Ã     ©
                           offsets  (0, 0)  (0, 1)  (1, 3)  (2, 3)  (3, 4) (4, 5) (4, 5)
                           pieces     ""     " "     " É"     ""     "t"    "é"    ""

A character is a Unicode code point except the surrogates U+D800 to U+DFFF, halves of UTF-16 pairs: a Python `str` can
contain a single one (JSON and `errors="surrogateescape"` produce them), UTF-8 cannot. A token that a tokenizer adds
stands for no character. Of tokens that are parts of one character, the first one has it. What a tokenizer drops, such
as white space, belongs to the token that follows it, or at the end of a text to the last one.
"""

import itertools
import unicodedata

import numpy as np

from keras_seq.checks import short_repr

DOCUMENT_CHARACTER = "\x1e"  # that begins a document
LOOKAHEAD = 256  # characters in which an unknown tokenizer's token is sought
WHITESPACE_SYMBOLS = {" ": "·", "\n": "⏎", "\t": "⇥"}


class TokenizerError(ValueError):
    """A tokenizer cannot be created, read or applied."""


class UnknownCharacterError(TokenizerError):
    """A text has a character that is not in the vocabulary, and the tokenizer has no `oov_token`."""


def check_characters(characters: str) -> None:
    """Raise a TokenizerError unless a string has at least one character, all distinct and in ascending order."""
    if not isinstance(characters, str) or not characters:
        raise TokenizerError(f"characters={short_repr(characters)}; expected a string of at least one character.")
    for first, second in itertools.pairwise(characters):
        if first >= second:
            raise TokenizerError(f"{_code_point(second)} follows {_code_point(first)}; expected ascending characters.")
    for character in filter(_is_surrogate, characters):
        raise TokenizerError(f"{_code_point(character)} is half a surrogate pair, not a character: repair the text.")


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
