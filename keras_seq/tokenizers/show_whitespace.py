"""A text with signs for what cannot be seen:  ·  a space,  ⏎  a line break,  ⇥  a tab,  ⟨U+0007⟩  the rest."""

import unicodedata

WHITESPACE_SYMBOLS = {" ": "·", "\n": "⏎", "\t": "⇥"}


def show_whitespace(text) -> str:
    """The text with a sign for each space, line break and tab, and the code of what cannot be seen."""
    return "".join(WHITESPACE_SYMBOLS.get(character) or escape_control(character) for character in text)


def escape_control(character) -> str:
    """The character; its code if it is a control character, or one that turns the direction of reading."""
    return f"⟨U+{ord(character):04X}⟩" if unicodedata.category(character) in ("Cc", "Cf") else character
