"""Compute losses without training: n-gram models and general-purpose compressors.

    uniform      log V, V the number of different characters of both texts
    unigram      the frequencies of characters in the training text
    n-gram       interpolated Kneser-Ney with a context of n - 1 characters
    xz, bzip2    8 (|C(train + validation)| - |C(train)|) / characters of validation      bits, of UTF-8 bytes

All are nats per character, averaged over the whole validation text. They have all text before a character to predict it
from, as models have in `val_loss_streaming`. But bzip2 sorts blocks of 900 kB independently: of the training text it
uses only the part that shares a block with the validation text.
"""

import bz2
import dataclasses
import lzma
import math
from collections.abc import Sequence

import numpy as np

from keras_seq import checks
from keras_seq.tokenizers.base import check_ids, check_text

__all__ = [
    "COMPRESSORS",
    "Baseline",
    "KneserNeyNGrams",
    "compressed_bits",
    "compute_baselines",
]


# Interpolated Kneser-Ney n-grams of ids (Kneser & Ney, 1995; Chen & Goodman, 1999).
#
#     p_m(w | h) = discounted(h w) + backoff(h) p_m-1(w | h'),      p_0 = 1 / V
#     discounted(h w) = max(c(h w) - D_m, 0) / total(h),            total(h) = sum over w of c(h w)
#     backoff(h) = D_m types(h) / total(h),                         types(h) = the w with c(h w) > 0
#
# h has m - 1 ids, h' is h without its first id; for a context h without counts, p_m = p_m-1. c counts occurrences in
# the highest order and, in lower orders, the different ids that precede h w; D_m = n1 / (n1 + 2 n2) for n1 and n2
# m-grams with c = 1 and c = 2. An n-gram that is left out leaves its probability to backoff(h).


class KneserNeyNGrams:
    """An n-gram language model with interpolated Kneser-Ney smoothing.

    The m-grams form a trie. Its nodes are numbered from 0, the root, length by length; node i > 0 has the code
    `codes[i - 1]`, which is `V parent + id`. The codes rise, so the child of a node by an id is found by its code; it
    is exact for any n.

    Args:
        ids: The training text, integers `[N]` from 0 to V - 1, at least one.
        order: n: an id is predicted from up to n - 1 previous ids.
        vocabulary_size: V; unseen ids share the remaining probability mass equally.
        min_counts: How often the n-grams of each length, from 1 to n, have to occur to be stored, numbers that do not
            fall; None stores all. Rare long n-grams are most of the memory, and help little.

    Attributes:
        codes: The codes of all nodes but the root, integers that rise `[E]`.
        discounted: What each of these n-grams has of the probability of its last id, `[E]`.
        backoff: The factor of the shorter context's probabilities, of each node that is a context, `[C]`.

    Raises:
        ValueError: There are no ids, an id is out of its range, a number is not an integer of at least 1, or min_counts
            are not n numbers or fall.

    >>> ngrams = KneserNeyNGrams([0, 1, 0, 1, 0, 1, 0, 2], order=2, vocabulary_size=3)
    >>> int(ngrams.distribution([0]).argmax())
    1
    """

    def __init__(self, ids: np.ndarray, order: int, vocabulary_size: int, min_counts: Sequence[int] | None = None):
        checks.integer("order", order, min_value=1)
        checks.positive_integer("vocabulary_size", vocabulary_size)
        min_counts = [1] * order if min_counts is None else np.atleast_1d(min_counts).tolist()
        for count in min_counts:
            checks.integer("min_counts", count, min_value=1)
        if len(min_counts) != order or min_counts != sorted(min_counts):
            raise ValueError(f"min_counts={min_counts}; expected order={order} numbers that do not fall.")
        ids = check_ids(ids, vocabulary_size, "token").astype("int64")
        if not len(ids):
            raise ValueError("ids is empty; expected a training text of at least one id.")
        most = int(np.bincount(ids).max())
        if most < min_counts[0]:
            raise ValueError(f"min_counts={min_counts}, but no id occurs more than {most} times; expected less.")
        self.order, self.vocabulary_size = order, vocabulary_size
        self._store(_count(ids, order, vocabulary_size), min_counts)

    def _store(self, levels, min_counts):
        """Set the arrays of the n-grams that occur often enough, from all that were counted."""
        codes, discounted, backoff = [], [], []
        numbers, first = np.zeros(1, "int64"), 1  # of the nodes of the length before, -1 for those left out
        for min_count, (level_codes, occurrences, counts) in zip(min_counts, levels, strict=False):
            parents, ids = np.divmod(level_codes, self.vocabulary_size)
            discount, sums = _discount(counts), np.bincount(parents, counts, len(numbers))
            totals = np.maximum(sums, 1)
            is_stored = occurrences >= min_count  # where it is, its context is: that occurs as often
            # what is left of the counts: no difference, which would round
            left = np.bincount(parents, np.where(is_stored, np.minimum(counts, discount), counts), len(numbers))
            backoff.append(np.where(sums > 0, left / totals, 1.0)[numbers >= 0])
            codes.append(numbers[parents[is_stored]] * self.vocabulary_size + ids[is_stored])
            discounted.append((np.maximum(counts - discount, 0) / totals[parents])[is_stored])
            numbers = np.where(is_stored, first + np.cumsum(is_stored) - 1, -1)
            first += len(codes[-1])
        self.codes, self.discounted, self.backoff = map(np.concatenate, (codes, discounted, backoff))

    def token_losses(self, ids: np.ndarray) -> np.ndarray:
        """Compute -log p of each id of a text `[N]`, given up to n - 1 previous ids: nats, float64 `[N]`.

        The first ids have shorter contexts.
        """
        ids = check_ids(ids, self.vocabulary_size, "token").astype("int64")
        p = np.full(len(ids), 1 / self.vocabulary_size)
        contexts = np.zeros(len(ids) + 1, "int64")  # the node of the context that starts at each position, or -1
        for length in range(min(self.order, len(ids))):
            contexts = contexts[: len(ids) - length]
            nodes = self._find(contexts, ids[length:])
            stored = np.where(nodes < 0, 0, self.discounted[np.maximum(nodes, 1) - 1])
            has_context = (contexts >= 0) & (contexts < len(self.backoff))
            p[length:] = np.where(
                has_context, stored + self.backoff[np.where(has_context, contexts, 0)] * p[length:], p[length:]
            )
            contexts = nodes
        return -np.log(p)

    def distributions(self, ids: np.ndarray) -> np.ndarray:
        """Compute the probabilities of the id after the first 0, 1, ..., N ids of a text `[N]`: float64 `[N + 1, V]`.

        All are above zero, and a row has the sum 1.
        """
        ids = check_ids(ids, self.vocabulary_size, "token").astype("int64")
        p = np.full((len(ids) + 1, self.vocabulary_size), 1 / self.vocabulary_size)
        contexts = np.zeros(len(ids) + 1, "int64")
        for length in range(min(self.order, len(ids) + 1)):
            rows = np.flatnonzero((contexts >= 0) & (contexts < len(self.backoff)))
            p[length + rows] *= self.backoff[contexts[rows], None]
            begin, end = (np.searchsorted(self.codes, (contexts[rows] + n) * self.vocabulary_size) for n in (0, 1))
            sizes = end - begin  # the numbers of children of each context
            children = np.arange(sizes.sum()) + np.repeat(begin - np.cumsum(sizes) + sizes, sizes)
            p[length + np.repeat(rows, sizes), self.codes[children] % self.vocabulary_size] += self.discounted[children]
            contexts = self._find(contexts[: len(ids) - length], ids[length:])
        return p

    def distribution(self, context: np.ndarray) -> np.ndarray:
        """Compute the probabilities of the next id after a context `[N]`: float64 `[V]`, above zero, with sum 1."""
        context = check_ids(context, self.vocabulary_size, "token")
        return self.distributions(context[max(0, len(context) - self.order + 1) :])[-1]

    def _find(self, parents, ids):
        """Return the child nodes of parent nodes by id, -1 where there is none."""
        child_codes = parents * self.vocabulary_size + ids
        index = np.minimum(np.searchsorted(self.codes, child_codes), len(self.codes) - 1)
        return np.where((parents >= 0) & (self.codes[index] == child_codes), index + 1, -1)


def _count(ids, order, vocabulary_size):
    """Return for each length the codes of the m-grams of ids `[N]`, their occurrences and their counts c.

    A code is `V parent + id`, where the parent is an index into the codes of the length before.
    """
    levels = []
    nodes = np.zeros(len(ids) + 1, "int64")  # the m-gram that starts at each position
    for length in range(1, min(order, len(ids)) + 1):
        shorter = nodes
        m_grams = shorter[: len(ids) - length + 1] * vocabulary_size + ids[length - 1 :]
        codes, nodes, occurrences = np.unique(m_grams, return_inverse=True, return_counts=True)
        if length > 1:  # each different m-gram is one left neighbor of the ids after its first
            suffixes = np.empty(len(codes), "int64")
            suffixes[nodes] = shorter[1:]  # equal for all occurrences; np.unique's return_index is slow
            levels[-1][2] = np.bincount(suffixes, minlength=len(levels[-1][0]))
        levels.append([codes, occurrences, occurrences])
    return levels


def _discount(counts):
    """Estimate D, between 0 and 1; 1/2 if no count is 1 or no count is 2, so that no probability is zero."""
    once, twice = (counts == 1).sum(), (counts == 2).sum()
    return float(once / (once + 2 * twice)) if once and twice else 0.5


MIN_DICTIONARY_BYTES = 4096  # the minimum of LZMA
CHUNK_BYTES = 2**18


@dataclasses.dataclass(frozen=True)
class Baseline:
    """The loss of a baseline on a validation text.

    Args:
        name: Name of the baseline, such as "unigram".
        loss_per_character: Mean loss in nats per character.
        sample_loss_per_character: The mean over some stretches of the text; None if none were given, and for
            compressors, which have no loss of a character.
    """

    name: str
    loss_per_character: float
    sample_loss_per_character: float | None = None

    @property
    def bits_per_character(self) -> float:
        """The mean loss in bits per character."""
        return self.loss_per_character / math.log(2)


def compute_baselines(
    train_text: str, validation_text: str, order: int = 6, stretches: np.ndarray | None = None
) -> tuple[Baseline, ...]:
    """Compute the losses of n-gram models and compressors on a validation text.

    Args:
        train_text: The text to count n-grams in, which compressors read first.
        validation_text: The text to score.
        order: Maximum n of the n-gram models, at least 1.
        stretches: Where the stretches of the validation text begin and end whose mean loss is wanted too, integers
            `[K, 2]`: those of a validation during training.

    Returns:
        The baselines "uniform", "unigram", "2-gram", ..., "xz", "bzip2", in this order.

    Raises:
        ValueError: A text is empty, or the order is not an integer of at least 1.
    """
    for name, text in (("training", train_text), ("validation", validation_text)):
        check_text(text)
        if not text:
            raise ValueError(f"The {name} text is empty; expected at least one character.")
    checks.positive_integer("order", order)
    characters = np.frombuffer((train_text + validation_text).encode("utf-32-le"), "<u4")
    alphabet, ids = np.unique(characters, return_inverse=True)
    train_ids, validation_ids = ids[: len(train_text)], ids[len(train_text) :]
    spans = [] if stretches is None else [slice(*span) for span in np.asarray(stretches).tolist()]
    uniform = math.log(len(alphabet))
    baselines = [Baseline("uniform", uniform, uniform if spans else None)]
    for n in range(1, order + 1):
        name = "unigram" if n == 1 else f"{n}-gram"
        losses = KneserNeyNGrams(train_ids, n, len(alphabet)).token_losses(validation_ids)
        sample_loss = float(np.concatenate([losses[span] for span in spans]).mean()) if spans else None
        baselines.append(Baseline(name, float(losses.mean()), sample_loss))
    for name in COMPRESSORS:
        baselines.append(Baseline(name, compressed_bits(name, train_text, validation_text) * math.log(2)))
    return tuple(baselines)


def xz(data: bytes) -> bytes:
    """Compress with LZMA: preset 9 extreme, and a dictionary at least as large as the data."""
    size = max(MIN_DICTIONARY_BYTES, 1 << len(data).bit_length())
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": size}]
    return _compress_in_chunks(lzma.LZMACompressor(format=lzma.FORMAT_XZ, filters=filters), data)


def bzip2(data: bytes) -> bytes:
    """Compress with bzip2 in blocks of 900 kB, the maximum."""
    return _compress_in_chunks(bz2.BZ2Compressor(9), data)


def _compress_in_chunks(compressor, data):
    """Compress in chunks, between which Python handles Ctrl-C; the result is the same."""
    chunks = (data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES))
    return b"".join([*map(compressor.compress, chunks), compressor.flush()])


COMPRESSORS = {"xz": xz, "bzip2": bzip2}
"""Functions from bytes to compressed bytes, by name."""


def compressed_bits(compressor: str, train: str, validation: str) -> float:
    """Compute the bits per character of a validation text that is compressed after a training text.

    Args:
        compressor: "xz" or "bzip2".
        train: The training text; may be empty.
        validation: The text to measure, not empty.

    >>> compressed_bits("xz", "to be or not to be, " * 50, "to be or not to be, " * 50) < 0.1
    True
    """
    compress = COMPRESSORS[checks.one_of("compressor", compressor, COMPRESSORS)]
    check_text(train)
    check_text(validation)
    if not validation:
        raise ValueError("The validation text is empty; expected at least one character to compress.")
    prefix = train.encode()
    return 8 * (len(compress(prefix + validation.encode())) - len(compress(prefix))) / len(validation)
