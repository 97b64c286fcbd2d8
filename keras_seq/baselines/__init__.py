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
#     p_m(w | h) = (max(c(h w) - D_m, 0) + D_m types(h) p_m-1(w | h')) / total(h),      p_0 = 1 / V
#     total(h) = sum over w of c(h w),   types(h) = the w with c(h w) > 0,   D_m = n1 / (n1 + 2 n2)
#
# h has m - 1 ids, h' is h without its first id; for a context h without counts, p_m = p_m-1. c counts occurrences in
# the highest order and, in lower orders, the different ids that precede h w; n1 and n2 are the numbers of m-grams with
# c = 1 and c = 2.


class KneserNeyNGrams:
    """An n-gram language model with interpolated Kneser-Ney smoothing.

    The m-grams form a trie: a node of level m is an index into the sorted codes `V parent + id`, so every code is exact
    and below V N for any length of the n-grams.

    Args:
        ids: The training text, integers `[N]` from 0 to V - 1, at least one.
        order: n: an id is predicted from up to n - 1 previous ids.
        vocabulary_size: V; unseen ids share the remaining probability mass equally.

    Raises:
        ValueError: There are no ids, an id is out of its range, or a number is not an integer of at least 1.

    >>> ngrams = KneserNeyNGrams([0, 1, 0, 1, 0, 1, 0, 2], order=2, vocabulary_size=3)
    >>> int(ngrams.distribution([0]).argmax())
    1
    """

    def __init__(self, ids: np.ndarray, order: int, vocabulary_size: int):
        checks.integer("order", order, min_value=1)
        checks.integer("vocabulary_size", vocabulary_size, min_value=1)
        ids = check_ids(ids, vocabulary_size, "token").astype("int64")
        if not len(ids):
            raise ValueError("ids is empty; expected a training text of at least one id.")
        self.order, self.vocabulary_size = order, vocabulary_size
        self._codes, self._counts = [], []  # for each level, by node
        nodes = np.zeros(len(ids) + 1, "int64")  # the m-gram that starts at each position
        for level in range(1, min(order, len(ids)) + 1):
            shorter = nodes
            m_grams = shorter[: len(ids) - level + 1] * vocabulary_size + ids[level - 1 :]
            codes, nodes, counts = np.unique(m_grams, return_inverse=True, return_counts=True)
            if level > 1:  # each different m-gram is one left neighbor of the ids after its first
                suffixes = np.empty(len(codes), "int64")
                suffixes[nodes] = shorter[1:]  # equal for all occurrences; np.unique's return_index is slow
                self._counts[-1] = np.bincount(suffixes, minlength=len(self._codes[-1]))
            self._codes.append(codes)
            self._counts.append(counts)
        self._totals, self._types, self._discounts = [], [], []  # for each level; the first two by parent
        for level, (codes, counts) in enumerate(zip(self._codes, self._counts, strict=True)):
            contexts = len(self._codes[level - 1]) if level else 1
            parents = codes // vocabulary_size
            self._totals.append(np.bincount(parents, counts, contexts))
            self._types.append(np.bincount(parents, counts > 0, contexts))
            self._discounts.append(_discount(counts))

    def token_losses(self, ids: np.ndarray) -> np.ndarray:
        """Compute -log p of each id of a text `[N]`, given up to n - 1 previous ids: nats, float64 `[N]`.

        The first ids have shorter contexts.
        """
        ids = check_ids(ids, self.vocabulary_size, "token").astype("int64")
        p = np.full(len(ids), 1 / self.vocabulary_size)
        contexts = np.zeros(len(ids) + 1, "int64")  # the node of the context that starts at each position, -1 if unseen
        for level, counts in enumerate(self._counts[: len(ids)]):
            contexts = contexts[: len(ids) - level]
            nodes = self._find(level, contexts, ids[level:])
            count = np.where(nodes < 0, 0, counts[nodes])
            p[level:] = self._interpolate(level, contexts, count, p[level:])
            contexts = nodes
        return -np.log(p)

    def distribution(self, context: np.ndarray) -> np.ndarray:
        """Compute the probabilities of the next id after a context `[N]`: float64 `[V]`, above zero, with sum 1."""
        context = check_ids(context, self.vocabulary_size, "token").astype("int64")
        p = np.full(self.vocabulary_size, 1 / self.vocabulary_size)
        for level in range(min(len(self._counts), len(context) + 1)):
            node = np.zeros(1, "int64")
            for depth, id in enumerate(context[len(context) - level :]):
                node = self._find(depth, node, id)
            children = self._find(level, np.repeat(node, self.vocabulary_size), np.arange(self.vocabulary_size))
            count = np.where(children < 0, 0, self._counts[level][children])
            p = self._interpolate(level, np.repeat(node, self.vocabulary_size), count, p)
        return p

    def _find(self, level, parents, ids):
        """Return the child nodes of parent nodes by id, -1 where there is none."""
        child_codes, codes = parents * self.vocabulary_size + ids, self._codes[level]
        nodes = np.minimum(np.searchsorted(codes, child_codes), len(codes) - 1)
        return np.where((parents >= 0) & (codes[nodes] == child_codes), nodes, -1)

    def _interpolate(self, level, contexts, count, lower):
        """Compute p_m from c(h w) and p_m-1."""
        total, discount = np.where(contexts < 0, 0, self._totals[level][contexts]), self._discounts[level]
        p = np.maximum(count - discount, 0) + discount * self._types[level][contexts] * lower
        return np.where(total > 0, p / np.maximum(total, 1), lower)


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
    if not isinstance(compressor, str) or compressor not in COMPRESSORS:
        raise ValueError(f"compressor={compressor!r}; expected {' or '.join(COMPRESSORS)}.")
    check_text(train)
    check_text(validation)
    if not validation:
        raise ValueError("The validation text is empty; expected at least one character to compress.")
    compress = COMPRESSORS[compressor]
    prefix = train.encode()
    return 8 * (len(compress(prefix + validation.encode())) - len(compress(prefix))) / len(validation)
