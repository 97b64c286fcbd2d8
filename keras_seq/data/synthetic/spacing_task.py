r"""Strip whitespace and capitals from a text, and restore them from a tag for every character.

    "To be,\n  OR not"  ->  "tobe,ornot",  2 0 1 0 0 3 2 1 0 0         tag = 1 (a space before it) + 2 (a capital)
    restore(*strip_spacing(text)) == collapse_whitespace(text)

Whitespace of any length and kind, line breaks included, counts as one space. A capital is a character whose lower case
is one character, and whose upper case is the capital again; others, such as `İ` (its lower case has two characters),
`ẞ` (the upper case of `ß` is `SS`) and `ǅ`, are unchanged and not tagged.
"""

import numpy as np

from keras_seq.tokenizers.base import TokenizerError, check_ids, check_text

SPACE, CAPITAL = 1, 2
NUM_TAGS = 4


def collapse_whitespace(text: str) -> str:
    r"""Replace every run of whitespace by one space, and remove whitespace at the end.

    >>> collapse_whitespace(" to  be\n")
    ' to be'
    """
    space_first = text[:1].isspace()
    return " " * (space_first and not text.isspace()) + " ".join(text.split())


def strip_spacing(text: str) -> tuple[str, np.ndarray]:
    """Strip whitespace and capitals from a text.

    >>> characters, tags = strip_spacing("Go on")
    >>> characters, tags.tolist()
    ('goon', [2, 0, 1, 0])
    """
    check_text(text)
    lower = {character: _lower(character) for character in set(text)}
    characters, tags, space = [], [], 0
    for character in text:
        if character.isspace():
            space = SPACE
            continue
        characters.append(lower[character])
        tags.append(space + CAPITAL * (lower[character] != character))
        space = 0
    return "".join(characters), np.array(tags, np.int32)


def restore(characters: str, tags: np.ndarray | list[int]) -> str:
    """Insert spaces and capitals according to tags.

    A capital tag has no effect on a character without a capital, so for any tags only spaces and capitals change:
    `strip_spacing(restore(characters, tags))[0] == characters`.

    >>> restore("goon", [2, 0, 1, 0])
    'Go on'
    """
    check_text(characters)
    tags = check_ids(tags, NUM_TAGS, "tag")
    if len(characters) != len(tags):
        raise TokenizerError(f"{len(tags)} tags for {len(characters)} characters; expected one tag for each character.")
    parts = []
    for character, tag in zip(characters, tags, strict=True):
        upper = character.upper()
        is_capital = tag & CAPITAL and len(upper) == 1 and _lower(upper) == character
        parts.append(" " * bool(tag & SPACE) + (upper if is_capital else character))
    return "".join(parts)


def _lower(character: str) -> str:
    """Return the lower case of a character if its upper case is the character again, else the character."""
    lower = character.lower()
    return lower if len(lower) == 1 and lower.upper() == character else character
