"""Say which characters of a text each token stands for, as losses per character need it.

    text     "  Été"       ids      [BOS]    Ġ       ĠÃ      ī        t     Ã     ©
                           offsets  (0, 0)  (0, 1)  (1, 3)  (2, 3)  (3, 4) (4, 5) (4, 5)
                           pieces     ""     " "     " É"     ""     "t"    "é"    ""

A token that a tokenizer adds stands for none. Of tokens that are parts of one character, the first one has it. What a
tokenizer drops, such as white space, belongs to the token that follows it, or at the end of a text to the last one.
"""

import numpy as np

DOCUMENT_CHARACTER = "\x1e"  # that begins a document
LOOKAHEAD = 256  # characters in which an unknown tokenizer's token is sought


def piece_ends(text: str, offsets: np.ndarray) -> np.ndarray:
    """Return where the piece of each token ends; they begin where the one before ends, and joined they are the text.

    Args:
        text: The text.
        offsets: `[N, 2]`, of `encode_with_offsets`.

    Returns:
        int64 `[N]`, in ascending order.
    """
    ends = np.minimum(np.maximum.accumulate(offsets[:, 1]), len(text)) if len(offsets) else np.zeros(0, "int64")
    if len(ends):
        ends[np.argmax(ends) :] = len(text)
    return ends


def token_offsets(tokenizer, text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return ids `[N]` and offsets `[N, 2]` of any tokenizer with `encode` and `decode`.

    Args:
        tokenizer: A `Tokenizer`, whose `encode_with_offsets` answers; or another, whose tokens are sought in the text.
        text: The text.
    """
    if hasattr(tokenizer, "encode_with_offsets"):
        return tokenizer.encode_with_offsets(text)
    ids = np.asarray(tokenizer.encode(text))
    return ids, offsets_of_texts([tokenizer.decode([id]) for id in ids.tolist()], text)


def offsets_of_texts(tokens: list[str], text: str) -> np.ndarray:
    """Return the offsets `[N, 2]` of tokens, each where its text comes next; without length where it does not come.

    Args:
        tokens: Text of each token.
        text: The text.
    """
    offsets, position = np.zeros((len(tokens), 2), "int64"), 0
    for row, token in zip(offsets, tokens, strict=True):
        start = text.find(token, position, position + len(token) + LOOKAHEAD)
        row[:] = (position, position) if start < 0 else (start, start + len(token))
        position = int(row[1])
    return offsets


def first_token_characters(tokenizer, text: str) -> int:
    """Return how many characters of a text its first token stands for; 0 for one that the tokenizer adds.

    Args:
        tokenizer: A `Tokenizer`.
        text: The text, in which U+001E may begin a document.
    """
    if text.startswith(DOCUMENT_CHARACTER):
        return 1
    beginning = text.partition(DOCUMENT_CHARACTER)[0]
    for part in (beginning[:LOOKAHEAD], beginning):
        end = int(piece_ends(part, token_offsets(tokenizer, part)[1])[:1].sum())
        if end < len(part):  # else the token may be longer than the part
            break
    return end
