"""A random Markov chain of order k: a text whose entropy rate is known.

    p(w | c) = rows[c, w],  c the k ids before,  each row drawn from Dirichlet(concentration, ..., concentration)
    pi(c' w) = sum over the first id of c = (a, c') of pi(c) rows[c, w]                    the stationary distribution
    entropy rate = - sum over c, w of pi(c) rows[c, w] log rows[c, w]                      nats per id

No model can have a lower expected loss, whatever it knows of the past. A text begins in the stationary distribution, so
its first k ids have a true loss too: that under the marginals of pi.
"""

import bisect
import math
from dataclasses import dataclass
from functools import cached_property
from numbers import Real

import numpy as np

from keras_seq import checks
from keras_seq.tokenizers.base_tokenizer import check_ids

MAX_TABLE_SIZE = 2**22  # numbers in `rows`
SWEEPS = 10_000  # of the power iteration, at most


@dataclass(frozen=True)
class MarkovChain:
    """A source of ids.

    Args:
        vocabulary_size: V, different ids, at least 2.
        order: k, the ids before that the next one depends on, at least 1; V to the power k + 1 is at most 2**22.
        seed: a whole number; it decides the rows.
        concentration: of the Dirichlet distribution; the smaller, the more certain is the next id.

    Raises:
        ValueError: a number out of its range, or a chain that forgets its start so slowly that its stationary
            distribution cannot be had.

    >>> chain = MarkovChain(vocabulary_size=4, order=2)
    >>> 0 < chain.entropy_rate < math.log(4)
    True
    """

    vocabulary_size: int
    order: int
    seed: int = 0
    concentration: float = 0.5

    def __post_init__(self):
        checks.integer("vocabulary_size", self.vocabulary_size, min_value=2)
        checks.integer("order", self.order, min_value=1)
        checks.integer("seed", self.seed, min_value=0)
        if (self.order + 1) * math.log2(self.vocabulary_size) > math.log2(MAX_TABLE_SIZE):
            table = f"{self.vocabulary_size} ids and order {self.order}"
            raise ValueError(f"{table} make a table of more than 2**22 numbers: take fewer ids or a lower order.")
        if not (isinstance(self.concentration, Real) and 0 < self.concentration < math.inf):
            raise ValueError(f"concentration must be a number above zero, not {self.concentration!r}.")
        _ = self.stationary  # a chain that has none is refused now

    @cached_property
    def rows(self) -> np.ndarray:
        """The probabilities of the next id: float64 `[V**k, V]`, the context's last id the fastest."""
        size = self.vocabulary_size
        return np.random.default_rng(self.seed).dirichlet([self.concentration] * size, size**self.order)

    @cached_property
    def stationary(self) -> np.ndarray:
        """How often each context stands in an endless text: float64 `[V**k]`."""
        rows = self.rows.reshape(self.vocabulary_size, -1, self.vocabulary_size)
        now = np.full(len(self.rows), 1 / len(self.rows))
        for _ in range(SWEEPS):
            before, now = now, np.einsum("ac,acw->cw", now.reshape(self.vocabulary_size, -1), rows).ravel()
            now /= now.sum()
            if np.abs(now - before).sum() < 1e-14:
                return now
        raise ValueError(f"{self} forgets its start too slowly: take a larger concentration or another seed.")

    @property
    def entropy_rate(self) -> float:
        """Nats per id: the least expected loss."""
        logs = np.log(np.where(self.rows > 0, self.rows, 1))
        return float(-self.stationary @ (self.rows * logs).sum(axis=1))

    def ids(self, length, seed) -> np.ndarray:
        """A text: int32 `[length]`, a function of the chain and `seed`."""
        checks.integer("length", length, min_value=0)
        checks.integer("seed", seed, min_value=0)
        size, order = self.vocabulary_size, self.order
        random = np.random.default_rng([self.seed, seed])
        context = int(random.choice(len(self.rows), p=self.stationary))
        ids = [context // size**place % size for place in reversed(range(order))]
        bounds = np.cumsum(self.rows, axis=1)[:, :-1].tolist()  # what is above the last bound is the last id
        for draw in random.random(max(0, length - order)).tolist():
            id = bisect.bisect_right(bounds[context], draw)
            context = (context * size + id) % len(bounds)
            ids.append(id)
        return np.array(ids[:length], "int32")

    def nats(self, ids) -> np.ndarray:
        """The true -log p of each id of a text, given all before it.

        Args:
            ids: integers `[N]` from 0 to V - 1.

        Returns:
            float64 `[N]`, infinite where the chain never goes.

        Raises:
            ValueError: an id out of its range.
        """
        size, order = self.vocabulary_size, self.order
        ids = check_ids(ids, size, "place in the chain").astype("int64")
        nats = np.empty(len(ids))
        with np.errstate(divide="ignore", invalid="ignore"):
            for place in range(min(order, len(ids))):
                starts = self.stationary.reshape(size ** (place + 1), -1).sum(axis=1).reshape(-1, size)
                row = starts[int(ids[:place] @ size ** np.arange(place)[::-1])]
                nats[place] = -np.log(row[ids[place]] / row.sum())
            contexts = sum(
                ids[place : len(ids) - order + place] * size ** (order - 1 - place) for place in range(order)
            )
            nats[order:] = -np.log(self.rows[contexts, ids[order:]])
        return nats
