"""Interpolated Kneser-Ney n-grams over ids (Kneser & Ney, 1995; Chen & Goodman, 1999): a floor that needs no training.

    p_m(w | h) = (max(c(h w) - D_m, 0) + D_m types(h) p_m-1(w | h')) / total(h),      p_0 = 1 / V
    total(h) = sum over w of c(h w),   types(h) = the w with c(h w) > 0,   D_m = n1 / (n1 + 2 n2)

h has m - 1 ids, h' lacks the first of them; where nothing ever stood behind h, p_m = p_m-1. c counts occurrences in the
highest order and, below it, the different ids that stood before h w; n1 and n2 are how many m-grams have c = 1 and 2.
"""

import numpy as np

from keras_seq import checks
from keras_seq.tokenizers.base_tokenizer import check_ids


class KneserNeyNGrams:
    """What n-grams of a training text say of another.

    Args:
        ids: the training text, integers `[N]` from 0 to V - 1, at least one.
        order: n, the longest n-gram: an id is predicted from up to n - 1 ids before it.
        vocabulary_size: V; ids that were never seen share what the rest leaves to them.

    Raises:
        ValueError: no id at all, an id out of its range, or a number that is not whole or below 1.

    The m-grams are a trie: a node of level m is its place among the sorted codes `V parent + id`, so that every code is
    exact and below V N, however long the n-grams are.

    >>> ngrams = NGrams([0, 1, 0, 1, 0, 1, 0, 2], order=2, vocabulary_size=3)
    >>> int(ngrams.distribution([0]).argmax())
    1
    """

    def __init__(self, ids, order, vocabulary_size):
        checks.integer("order", order, min_value=1)
        checks.integer("vocabulary_size", vocabulary_size, min_value=1)
        ids = check_ids(ids, vocabulary_size, "token").astype("int64")
        if not len(ids):
            raise ValueError("No ids to count; n-grams need a training text of at least 1.")
        self.order, self.vocabulary_size = order, vocabulary_size
        self._codes, self._counts = [], []  # of each level, by node
        nodes = np.zeros(len(ids) + 1, "int64")  # of the m-gram that starts at each position
        for level in range(1, min(order, len(ids)) + 1):
            shorter = nodes
            codes, first, nodes, counts = np.unique(
                shorter[: len(ids) - level + 1] * vocabulary_size + ids[level - 1 :],
                return_index=True,
                return_inverse=True,
                return_counts=True,
            )
            if level > 1:  # each different m-gram is one left neighbour of what follows its first id
                self._counts[-1] = np.bincount(shorter[first + 1], minlength=len(self._codes[-1]))
            self._codes.append(codes)
            self._counts.append(counts)
        self._totals, self._types, self._discounts = [], [], []  # of each level; the first two by parent
        for level, (codes, counts) in enumerate(zip(self._codes, self._counts, strict=True)):
            contexts = len(self._codes[level - 1]) if level else 1
            parents = codes // vocabulary_size
            self._totals.append(np.bincount(parents, counts, contexts))
            self._types.append(np.bincount(parents, counts > 0, contexts))
            self._discounts.append(_discount(counts))

    def nats(self, ids) -> np.ndarray:
        """-log p of each id, from up to n - 1 ids before it; the text begins with shorter contexts.

        Args:
            ids: a text, integers `[N]`.

        Returns:
            float64 `[N]`.

        Raises:
            ValueError: an id out of its range.
        """
        ids = check_ids(ids, self.vocabulary_size, "token").astype("int64")
        p = np.full(len(ids), 1 / self.vocabulary_size)
        contexts = np.zeros(len(ids) + 1, "int64")  # the node of the context that starts at each position, or -1
        for level, counts in enumerate(self._counts[: len(ids)]):
            contexts = contexts[: len(ids) - level]
            nodes = self._find(level, contexts, ids[level:])
            count = np.where(nodes < 0, 0, counts[nodes])
            p[level:] = self._mixed(level, contexts, count, p[level:])
            contexts = nodes
        return -np.log(p)

    def distribution(self, context) -> np.ndarray:
        """The probability of each id behind a context.

        Args:
            context: integers `[N]`; the last n - 1 of them count, and there may be none.

        Returns:
            float64 `[V]`, above zero, of sum 1.
        """
        context = check_ids(context, self.vocabulary_size, "token").astype("int64")
        p = np.full(self.vocabulary_size, 1 / self.vocabulary_size)
        for level in range(min(len(self._counts), len(context) + 1)):
            node = np.zeros(1, "int64")
            for depth, id in enumerate(context[len(context) - level :]):
                node = self._find(depth, node, id)
            children = self._find(level, np.repeat(node, self.vocabulary_size), np.arange(self.vocabulary_size))
            count = np.where(children < 0, 0, self._counts[level][children])
            p = self._mixed(level, np.repeat(node, self.vocabulary_size), count, p)
        return p

    def _find(self, level, parents, ids):
        """The nodes below the given ones, -1 where there is none."""
        wanted, codes = parents * self.vocabulary_size + ids, self._codes[level]
        nodes = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
        return np.where((parents >= 0) & (codes[nodes] == wanted), nodes, -1)

    def _mixed(self, level, contexts, count, lower):
        """p_m from c(h w) and p_m-1."""
        total, discount = np.where(contexts < 0, 0, self._totals[level][contexts]), self._discounts[level]
        mixed = np.maximum(count - discount, 0) + discount * self._types[level][contexts] * lower
        return np.where(total > 0, mixed / np.maximum(total, 1), lower)


def _discount(counts):
    """D, between 0 and 1; a half where too few counts are 1 or 2 for the estimate, so that nothing is impossible."""
    once, twice = (counts == 1).sum(), (counts == 2).sum()
    return float(once / (once + 2 * twice)) if once and twice else 0.5
