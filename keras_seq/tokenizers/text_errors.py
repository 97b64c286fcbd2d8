"""What can be wrong with characters, in words; no tensors here.

A character is a Unicode code point from U+0000 to U+10FFFF but for the surrogates U+D800 to U+DFFF. These are halves of
UTF-16 pairs: a Python `str` can hold one alone (JSON and `errors="surrogateescape"` produce them), UTF-8 cannot.
"""

import itertools


class TokenizerError(ValueError):
    """A vocabulary that cannot be made, read or applied."""


class UnknownCharacterError(TokenizerError):
    """A character that the vocabulary lacks, under the policy `unknown="error"`."""


def check_characters(characters: str) -> None:
    """Raise a VocabularyError unless these are distinct characters in ascending order, and at least one."""
    if not isinstance(characters, str) or not characters:
        raise TokenizerError(f"characters must be a string of at least one character, not {short_repr(characters)}.")
    for before, after in itertools.pairwise(characters):
        if before >= after:
            raise TokenizerError(
                f"characters must be distinct and ascending, but {_code_point(after)} comes after {_code_point(before)}; "
                "Vocabulary.from_text sorts them."
            )
    for character in filter(_is_surrogate, characters):
        raise TokenizerError(f"{_code_point(character)} is half a surrogate pair, not a character: mend the text.")


def check_text(text: str) -> None:
    """Raise a VocabularyError unless this is a `str` that UTF-8 can hold."""
    if not isinstance(text, str):
        raise TokenizerError(f"text must be a str, not {short_repr(text)}.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise_text_error(text[error.start], None, error.start)


def raise_text_error(text: str | bytes, known: str | None, start: int = 0, where: str = "") -> None:
    """Raise the error for the first thing that is wrong with a text, if anything is.

    Args:
        text: The text, or its UTF-8.
        known: The characters that it may hold; any, where this is None.
        start: The position of its first character, for the message.
        where: Added to the position in the message.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise TokenizerError(f"The text is not UTF-8: see the byte at offset {error.start}{where}.") from None
    known = None if known is None else set(known)
    for position, character in enumerate(text, start):
        if _is_surrogate(character):
            raise TokenizerError(
                f"The text has {_code_point(character)}, half a surrogate pair, at position {position}{where}: mend it."
            )
        if known is not None and character not in known:
            raise UnknownCharacterError(
                f"The vocabulary lacks the character {_code_point(character)} at position {position}{where}: make it from a "
                "text that has it, or with unknown='[UNK]'."
            )


def short_repr(value: object) -> str:
    """A value for a message, with its type, cut to a line."""
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:77] + '...'}"


def _is_surrogate(character: str) -> bool:
    return "\ud800" <= character <= "\udfff"


def _code_point(character: str) -> str:
    return f"{character!r} (U+{ord(character):04X})"
