"""Pack texts, or pairs of texts, into rows with special tokens, as in BERT (Devlin et al., 2018, figure 2).

    token_ids     [CLS] a a a [SEP] b b [SEP] [PAD] [PAD]            [CLS] a a a [SEP]       without a second text
    segment_ids     0   0 0 0   0   1 1   1     0     0                0   0 0 0   0
    padding_mask    1   1 1 1   1   1 1   1     0     0                1   1 1 1   1

Texts that are too long lose ids from their end, one at a time, always from the text that is then longer.
"""

import numpy as np

from keras_seq import checks
from keras_seq.tokenizers.text_errors import TokenizerError

SPECIAL_TOKENS = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
"""Special tokens of subword tokenizers, and their ids."""


def truncated_lengths(first: int, second: int, max_length: int) -> tuple[int, int]:
    """Compute how many ids of two texts fit, if the longer text is cut first.

    Args:
        first: Number of ids of the first text.
        second: Number of ids of the second text, which is cut if both are equally long.
        max_length: Number of ids that fit.

    >>> truncated_lengths(10, 2, max_length=7), truncated_lengths(10, 10, max_length=7)
    ((5, 2), (4, 3))
    """
    first_length = min(first, max(max_length - second, (max_length + 1) // 2))
    return first_length, min(second, max_length - first_length)


def pack_segments(
    firsts: list[list[int]], seconds: list[list[int]] | None, sequence_length: int | None
) -> dict[str, np.ndarray]:
    """Pack texts, or pairs of texts, into rows with special tokens and padding.

    Args:
        firsts: The ids of B texts, B at least 1.
        seconds: The ids of the B second texts, or None.
        sequence_length: T, the positions of a row; None for the length of the longest row.

    Returns:
        `token_ids` and `segment_ids`, int32 `[B, T]`, and `padding_mask`, bool `[B, T]`: True at non-padding positions.

    Raises:
        ValueError: `sequence_length` is smaller than the number of special tokens, or a batch has 2**31 ids.

    >>> pack_segments([[7, 8], [9]], [[5], [6]], sequence_length=7)["token_ids"].tolist()
    [[2, 7, 8, 3, 5, 3, 0], [2, 9, 3, 6, 3, 0, 0]]
    """
    num_special = 2 if seconds is None else 3
    if sequence_length is not None:
        reason = f"for the {num_special} special tokens of a row"
        checks.integer("sequence_length", sequence_length, min_value=num_special, reason=reason)
        if sequence_length * len(firsts) >= checks.MAX_BATCH_IDS:
            raise TokenizerError(
                f"sequence_length={sequence_length} for {len(firsts)} rows; expected fewer than 2**31 ids in a batch."
            )
    rows, second_starts = [], []
    for number, first in enumerate(firsts):
        second = [] if seconds is None else seconds[number]
        max_length = len(first) + len(second) if sequence_length is None else sequence_length - num_special
        first_length, second_length = truncated_lengths(len(first), len(second), max_length)
        row = [SPECIAL_TOKENS["[CLS]"], *first[:first_length], SPECIAL_TOKENS["[SEP]"]]
        second_starts.append(len(row))
        if seconds is not None:
            row += [*second[:second_length], SPECIAL_TOKENS["[SEP]"]]
        rows.append(row)
    positions = np.arange(max(map(len, rows)) if sequence_length is None else sequence_length)
    padding_mask = positions < np.array([len(row) for row in rows])[:, None]
    token_ids = np.full(padding_mask.shape, SPECIAL_TOKENS["[PAD]"], np.int32)
    token_ids[padding_mask] = np.concatenate(rows)
    segment_ids = (padding_mask & (positions >= np.array(second_starts)[:, None])).astype(np.int32)
    return {"token_ids": token_ids, "segment_ids": segment_ids, "padding_mask": padding_mask}
