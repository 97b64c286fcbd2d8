"""Sample texts from a random Markov chain of order k, whose entropy rate is known.

    p(w | c) = P[c, w],  c the k previous ids,  each row of P drawn from Dirichlet(concentration, ..., concentration)
    pi(c' w) = sum over the first id of c = (a, c') of pi(c) P[c, w]                       the stationary distribution
    entropy rate = - sum over c, w of pi(c) P[c, w] log P[c, w]                            nats per id

The entropy rate is the lowest possible expected loss of a model. A text starts in the stationary distribution, so the
true loss of its first k ids is known too, from the marginals of pi.
"""

import bisect
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from keras_seq import checks
from keras_seq.tokenizers.base import check_ids

MAX_TABLE_SIZE = 2**22  # numbers in `transition_probs`
MAX_POWER_ITERATIONS = 10_000


@dataclass(frozen=True)
class MarkovChain:
    """A source of ids with known transition probabilities.

    Args:
        vocabulary_size: V, the number of ids, at least 2.
        order: k, the number of previous ids that the next one depends on, at least 1; V**(k + 1) is at most 2**22.
        seed: Integer of at least 0, from which the transition probabilities are drawn.
        concentration: Parameter of the Dirichlet distribution, above 0; smaller values make the next id more certain.

    Raises:
        ValueError: A number is out of its range, or the power iteration for the stationary distribution does not
            converge.

    >>> chain = MarkovChain(vocabulary_size=4, order=2)
    >>> 0 < chain.entropy_rate < math.log(4)
    True
    """

    vocabulary_size: int
    order: int
    seed: int = 0
    concentration: float = 0.5

    def __post_init__(self):
        """Check the fields."""
        checks.integer("vocabulary_size", self.vocabulary_size, min_value=2)
        checks.integer("order", self.order, min_value=1)
        checks.integer("seed", self.seed, min_value=0)
        if (self.order + 1) * math.log2(self.vocabulary_size) > math.log2(MAX_TABLE_SIZE):
            sizes = f"vocabulary_size={self.vocabulary_size} and order={self.order}"
            raise ValueError(f"{sizes} need a table of more than 2**22 numbers; expected fewer ids or a lower order.")
        checks.positive_number("concentration", self.concentration)
        _ = self.stationary  # raises now if the power iteration does not converge

    @cached_property
    def transition_probs(self) -> np.ndarray:
        """Probabilities of the next id, float64 `[V**k, V]`; the last id of a context varies fastest."""
        size = self.vocabulary_size
        return np.random.default_rng(self.seed).dirichlet([self.concentration] * size, size**self.order)

    @cached_property
    def stationary(self) -> np.ndarray:
        """Stationary probability of each context, float64 `[V**k]`."""
        transitions = self.transition_probs.reshape(self.vocabulary_size, -1, self.vocabulary_size)
        current = np.full(len(self.transition_probs), 1 / len(self.transition_probs))
        for _ in range(MAX_POWER_ITERATIONS):
            previous = current
            current = np.einsum("ac,acw->cw", previous.reshape(self.vocabulary_size, -1), transitions).ravel()
            current /= current.sum()
            if np.abs(current - previous).sum() < 1e-14:
                return current
        raise ValueError(f"The power iteration of {self} does not converge: give a larger concentration.")

    @property
    def entropy_rate(self) -> float:
        """The entropy rate in nats per id, the lowest possible expected loss."""
        logs = np.log(np.where(self.transition_probs > 0, self.transition_probs, 1))
        return float(-self.stationary @ (self.transition_probs * logs).sum(axis=1))

    def sample(self, length: int, seed: int) -> np.ndarray:
        """Sample a text, int32 `[length]`: a function of the chain and the seed, integers of at least 0."""
        checks.integer("length", length, min_value=0)
        checks.integer("seed", seed, min_value=0)
        size, order = self.vocabulary_size, self.order
        random = np.random.default_rng([self.seed, seed])
        context = int(random.choice(len(self.transition_probs), p=self.stationary))
        ids = [context // size**power % size for power in reversed(range(order))]
        bounds = np.cumsum(self.transition_probs, axis=1)[:, :-1].tolist()  # above the last bound, it is the last id
        for draw in random.random(max(0, length - order)).tolist():
            id = bisect.bisect_right(bounds[context], draw)
            context = (context * size + id) % len(bounds)
            ids.append(id)
        return np.array(ids[:length], "int32")

    def token_losses(self, ids: np.ndarray) -> np.ndarray:
        """Compute the true -log p of each id of a text `[N]`, given all previous ids: nats, float64 `[N]`.

        The loss of an id of probability 0 is infinite.
        """
        size, order = self.vocabulary_size, self.order
        ids = check_ids(ids, size, "state").astype("int64")
        losses = np.empty(len(ids))
        with np.errstate(divide="ignore", invalid="ignore"):
            for position in range(min(order, len(ids))):
                marginals = self.stationary.reshape(size ** (position + 1), -1).sum(axis=1).reshape(-1, size)
                row = marginals[int(ids[:position] @ size ** np.arange(position)[::-1])]
                losses[position] = -np.log(row[ids[position]] / row.sum())
            contexts = sum(ids[n : len(ids) - order + n] * size ** (order - 1 - n) for n in range(order))
            losses[order:] = -np.log(self.transition_probs[contexts, ids[order:]])
        return losses
