r"""A text without its white space and capitals, and what has to be known to put them back: a tag for every character.

    "To be,\n  OR not"  ->  "tobe,ornot",  2 0 1 0 0 3 2 1 0 0         tag = 1 (a space before it) + 2 (a capital)
    restore(*squeeze(text)) == one_space(text)

White space of any length and kind counts as one space, a line break too: nothing in the letters says where a line was
broken. A capital is a character that has a lower case of one character which leads back to it; any other, such as `İ`
(whose lower case is two characters), `ẞ` (`ß` leads elsewhere) and `ǅ`, stays as it is and has no tag for it.
"""

import numpy as np

from keras_seq.tokenizers.base_tokenizer import check_ids
from keras_seq.tokenizers.text_errors import TokenizerError, short_repr

SPACE, CAPITAL = 1, 2
NUM_TAGS = 4


def one_space(text: str) -> str:
    r"""The text with every run of white space as one space, and none at its end.

    >>> one_space(" to  be\n")
    ' to be'
    """
    space_first = text[:1].isspace()
    return " " * (space_first and not text.isspace()) + " ".join(text.split())


def squeeze(text: str) -> tuple[str, np.ndarray]:
    """Strip white space and capitals.

    Args:
        text: Any text.

    Returns:
        The N characters that are left, and their tags, int32 `[N]`.

    >>> characters, tags = squeeze("Go on")
    >>> characters, tags.tolist()
    ('goon', [2, 0, 1, 0])
    """
    _check_text(text)
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
    """Put spaces and capitals where the tags say.

    A capital tag does nothing to a character that has no capital, so whatever the tags are, nothing but spaces and
    capitals is changed: `squeeze(restore(characters, tags))[0] == characters`.

    Args:
        characters: N characters as `squeeze` leaves them.
        tags: N numbers from 0 to 3.

    Raises:
        VocabularyError: Not as many tags as characters, or other numbers than 0 to 3.

    >>> restore("goon", [2, 0, 1, 0])
    'Go on'
    """
    _check_text(characters)
    tags = check_ids(tags, NUM_TAGS, "meaning")
    if len(characters) != len(tags):
        raise TokenizerError(f"{len(tags)} tags for {len(characters)} characters; expected one for each.")
    pieces = []
    for character, tag in zip(characters, tags, strict=True):
        upper = character.upper()
        capital = tag & CAPITAL and len(upper) == 1 and _lower(upper) == character
        pieces.append(" " * bool(tag & SPACE) + (upper if capital else character))
    return "".join(pieces)


def _check_text(text):
    if not isinstance(text, str):
        raise TokenizerError(f"text must be a str, not {short_repr(text)}.")


def _lower(character: str) -> str:
    """Its lower case where that leads back to it, else the character."""
    lower = character.lower()
    return lower if len(lower) == 1 and lower.upper() == character else character
