"""Texts and pairs of texts as the rows of a batch, the way BERT wants them (Devlin et al., 2018, figure 2).

    ids       [CLS] a a a [SEP] b b [SEP] [PAD] [PAD]            [CLS] a a a [SEP]       without a second text
    segments    0   0 0 0   0   1 1   1     0     0                0   0 0 0   0
    mask        1   1 1 1   1   1 1   1     0     0                1   1 1 1   1

What is too long loses ids from its end, one at a time, always from the text that is then the longer.
"""

import numpy as np

from keras_seq.checks import MAX_BATCH_IDS
from keras_seq.tokenizers.base_tokenizer import check_number
from keras_seq.tokenizers.text_errors import TokenizerError

SPECIAL_TOKENS = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}


def truncated_lengths(first: int, second: int, room: int) -> tuple[int, int]:
    """How many ids of two texts stay in a room for that many, cut longest-first; of equal texts the second is cut.

    >>> shares(10, 2, room=7), shares(10, 10, room=7)
    ((5, 2), (4, 3))
    """
    kept = min(first, max(room - second, (room + 1) // 2))
    return kept, min(second, room - kept)


def pack_segments(
    firsts: list[list[int]], seconds: list[list[int]] | None, length: int | None
) -> dict[str, np.ndarray]:
    """Lay out texts, or pairs of them, in rows.

    Args:
        firsts: The ids of B texts, B at least 1.
        seconds: The ids of the B second texts, or None.
        length: T, the positions in a row; None for what the longest needs.

    Returns:
        `ids` and `segments`, int32 `[B, T]`, and `mask`, bool `[B, T]`: True for what is not padding.

    Raises:
        VocabularyError: `length` does not hold the special tokens, or makes a batch of 2**31 ids.

    >>> pack([[7, 8], [9]], [[5], [6]], length=7)["ids"].tolist()
    [[2, 7, 8, 3, 5, 3, 0], [2, 9, 3, 6, 3, 0, 0]]
    """
    specials = 2 if seconds is None else 3
    if length is not None:
        check_number("length", length, specials, f"for the {specials} special tokens of a row")
        if length * len(firsts) >= MAX_BATCH_IDS:
            raise TokenizerError(f"length={length} for {len(firsts)} rows; expected fewer than 2**31 ids in a batch.")
    rows, starts = [], []
    for number, first in enumerate(firsts):
        second = [] if seconds is None else seconds[number]
        room = len(first) + len(second) if length is None else length - specials
        of_first, of_second = truncated_lengths(len(first), len(second), room)
        row = [SPECIAL_TOKENS["[CLS]"], *first[:of_first], SPECIAL_TOKENS["[SEP]"]]
        starts.append(len(row))
        if seconds is not None:
            row += [*second[:of_second], SPECIAL_TOKENS["[SEP]"]]
        rows.append(row)
    positions = np.arange(max(map(len, rows)) if length is None else length)
    mask = positions < np.array([len(row) for row in rows])[:, None]
    ids = np.full(mask.shape, SPECIAL_TOKENS["[PAD]"], np.int32)
    ids[mask] = np.concatenate(rows)
    segments = (mask & (positions >= np.array(starts)[:, None])).astype(np.int32)
    return {"ids": ids, "segments": segments, "mask": mask}
