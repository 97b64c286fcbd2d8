"""How much of a validation text stands word for word in its training text, and so can be learned by heart.

    share = characters of the validation text in some stretch of L that is also a stretch of the training text / all

Stretches are compared by a hash of 64 bits, a polynomial in their characters, of all stretches at once: with h_n(i)
that of the n characters from i on,

    h_2n(i) = h_n(i) b^n + h_n(i + n)        six vector operations for L = 64

The training text is taken a part at a time, so that memory does not grow with it. (Lee et al., 2022, "Deduplicating
Training Data Makes Language Models Better", look for such stretches with suffix arrays.)
"""

import numpy as np

from keras_seq import checks
from keras_seq.tokenizers.text_errors import check_text

BASE = 0x9E3779B97F4A7C15  # odd, its bits well mixed
PART = 1 << 20  # characters hashed at once
SPARSE = 4  # bits: of the places of a table one in 16 to 32 is taken
MOST = 1 << 21  # characters of the validation text that are looked at


def verbatim_overlap(train: str, validation: str, length: int = 64) -> float:
    """Give the share of a validation text that is copied from its training text.

    Args:
        train: The training text.
        validation: The validation text; of a longer one, the first 2,097,152 characters.
        length: L, the shortest stretch that counts, in characters; a power of 2.

    Returns:
        The share of characters, from 0 to 1; 0 where one of the texts is shorter than `length`.

    Raises:
        ValueError: `length` is no power of 2.
        VocabularyError: One of the texts is no text.

    >>> verbatim_overlap("to be, or not to be", "that is not to", length=4)
    0.5
    """
    check_text(train)
    check_text(validation)
    checks.integer("length", length, min_value=1)
    if length & (length - 1):
        raise ValueError(f"length={length}; expected a power of 2, such as 64.")
    hashes = _hashes(validation[:MOST], length)
    if not len(hashes):
        return 0.0
    order = np.argsort(hashes)
    known = hashes[order]
    found = np.zeros(len(known), bool)
    shift = np.uint64(64 - SPARSE - len(known).bit_length())
    likely = np.zeros(1 << (64 - int(shift)), bool)  # by the first bits of a hash: most of the others end here
    likely[known >> shift] = True
    for start in range(0, len(train), PART):
        of_part = _hashes(train[start : start + PART + length - 1], length)
        of_part = np.sort(of_part[likely.take((of_part >> shift).view("int64"))])  # sorted, they are found faster
        at = np.minimum(np.searchsorted(known, of_part), len(known) - 1)
        found[at[known[at] == of_part]] = True
    begins = order[found[np.searchsorted(known, known)]]  # of equal hashes the first alone was found
    edges = np.zeros(len(hashes) + length, int)
    edges[begins] += 1
    edges[begins + length] -= 1
    return float(np.mean(np.cumsum(edges[:-1]) > 0))


def _hashes(text, length):
    """Of the stretch from each character on that has `length` of them."""
    hashes = np.frombuffer(text.encode("utf-32-le"), "<u4").astype("uint64")
    done = 1
    while done < length:
        factor = np.uint64(pow(BASE, done, 1 << 64))
        hashes = hashes[:-done] * factor + hashes[done:] if len(hashes) > done else hashes[:0]
        done *= 2
    return hashes
