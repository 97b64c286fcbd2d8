"""Make whitespace and control characters visible:  ·  a space,  ⏎  a line break,  ⇥  a tab,  ⟨U+0007⟩  others."""

import unicodedata

WHITESPACE_SYMBOLS = {" ": "·", "\n": "⏎", "\t": "⇥"}


def show_whitespace(text: str) -> str:
    """Replace spaces, line breaks and tabs by visible symbols, and control characters by their code points."""
    return "".join(WHITESPACE_SYMBOLS.get(character) or escape_control(character) for character in text)


def escape_control(character: str) -> str:
    """Return the code point of a control or text-direction character, and any other character unchanged."""
    return f"⟨U+{ord(character):04X}⟩" if unicodedata.category(character) in ("Cc", "Cf") else character
