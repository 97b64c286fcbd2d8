"""Pack texts, or pairs of texts, into the rows of a batch for BERT (Devlin et al., 2018, figure 2).

    token_ids     [CLS] a a a [SEP] b b [SEP] [PAD] [PAD]            [CLS] a a a [SEP]       without a second text
    segment_ids     0   0 0 0   0   1 1   1     0     0                0   0 0 0   0
    padding_mask    1   1 1 1   1   1 1   1     0     0                1   1 1 1   1

Rows that are too long lose ids one at a time, always from the end of the text that is the longer then.
"""

import numpy as np

from keras_seq.checks import MAX_BATCH_IDS
from keras_seq.tokenizers.base_tokenizer import check_number
from keras_seq.tokenizers.text_errors import TokenizerError

SPECIAL_TOKENS = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}


def truncated_lengths(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how many ids of two texts fit in `room` positions, cutting the longer first, of equal texts the second.

    Args:
        first: Ids of the first text.
        second: Ids of the second text.
        room: Positions for both.

    Returns:
        The ids to keep of the first and of the second text.

    >>> truncated_lengths(10, 2, room=7), truncated_lengths(10, 10, room=7)
    ((5, 2), (4, 3))
    """
    first_length = min(first, max(room - second, (room + 1) // 2))
    return first_length, min(second, room - first_length)


def pack_segments(
    firsts: list[list[int]], seconds: list[list[int]] | None, length: int | None
) -> dict[str, np.ndarray]:
    """Pack texts, or pairs of texts, into rows.

    Args:
        firsts: The ids of B texts, B at least 1.
        seconds: The ids of the B second texts, or None.
        length: T, the positions of a row; None for the length of the longest row.

    Returns:
        `token_ids` and `segment_ids`, int32 `[B, T]`, and `padding_mask`, bool `[B, T]`, True for non-padding.

    Raises:
        TokenizerError: `length` is too small for the special tokens, or the batch has 2**31 ids or more.

    >>> pack_segments([[7, 8], [9]], [[5], [6]], length=7)["token_ids"].tolist()
    [[2, 7, 8, 3, 5, 3, 0], [2, 9, 3, 6, 3, 0, 0]]
    """
    specials = 2 if seconds is None else 3
    if length is not None:
        check_number("length", length, specials, f"for the {specials} special tokens of a row")
        if length * len(firsts) >= MAX_BATCH_IDS:
            raise TokenizerError(f"length={length} for {len(firsts)} rows; expected fewer than 2**31 ids in a batch.")
    rows, second_starts = [], []
    for number, first in enumerate(firsts):
        second = [] if seconds is None else seconds[number]
        room = len(first) + len(second) if length is None else length - specials
        of_first, of_second = truncated_lengths(len(first), len(second), room)
        row = [SPECIAL_TOKENS["[CLS]"], *first[:of_first], SPECIAL_TOKENS["[SEP]"]]
        second_starts.append(len(row))
        if seconds is not None:
            row += [*second[:of_second], SPECIAL_TOKENS["[SEP]"]]
        rows.append(row)
    positions = np.arange(max(map(len, rows)) if length is None else length)
    padding_mask = positions < np.array([len(row) for row in rows])[:, None]
    token_ids = np.full(padding_mask.shape, SPECIAL_TOKENS["[PAD]"], np.int32)
    token_ids[padding_mask] = np.concatenate(rows)
    segment_ids = (padding_mask & (positions >= np.array(second_starts)[:, None])).astype(np.int32)
    return {"token_ids": token_ids, "segment_ids": segment_ids, "padding_mask": padding_mask}
