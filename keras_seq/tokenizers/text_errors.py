"""Check characters and texts, and describe invalid ones in error messages; no tensors here.

A character is a Unicode code point from U+0000 to U+10FFFF except the surrogates U+D800 to U+DFFF. Surrogates are
halves of UTF-16 pairs: a Python `str` can contain a single one (JSON and `errors="surrogateescape"` produce them),
UTF-8 cannot.
"""

import itertools

from keras_seq.checks import short_repr


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
            raise TokenizerError(
                f"characters must be distinct and ascending, but {_code_point(second)} follows {_code_point(first)}; "
                "CharacterTokenizer.from_text sorts them."
            )
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
    """Raise the error for the first invalid character of a text, if there is one.

    Args:
        text: The text, or its UTF-8.
        allowed: The characters that it may contain; None allows all.
        start: Position of its first character, for the message.
        where: Clause that follows the position in the message.

    Raises:
        UnknownCharacterError: A character is not among `allowed`.
        TokenizerError: The text is not UTF-8, or contains half a surrogate pair.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise TokenizerError(f"The text is not UTF-8: see the byte at offset {error.start}{where}.") from None
    allowed = None if allowed is None else set(allowed)
    for position, character in enumerate(text, start):
        if _is_surrogate(character):
            raise TokenizerError(
                f"The text has {_code_point(character)}, half a surrogate pair, at position {position}{where}: "
                "repair the text."
            )
        if allowed is not None and character not in allowed:
            raise UnknownCharacterError(
                f"The vocabulary lacks the character {_code_point(character)} at position {position}{where}: create it "
                "from a text that contains the character, or with oov_token='[UNK]'."
            )


def _is_surrogate(character: str) -> bool:
    return "\ud800" <= character <= "\udfff"


def _code_point(character: str) -> str:
    return f"{character!r} (U+{ord(character):04X})"
