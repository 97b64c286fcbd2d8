"""Sample texts of known entropy: of a Markov chain, of a grammar with long-range dependencies, or with their reversal.

The entropy rate is the lowest possible expected loss of a model; the true loss of every id is known too.
"""

import bisect
import math
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real

import numpy as np

from keras_seq import checks
from keras_seq.checks import short_repr
from keras_seq.data.pipeline import StepBatches
from keras_seq.random_draws import integers
from keras_seq.tokenizers.base import check_ids

# A Markov chain of order k.
#
#     p(w | c) = P[c, w],  c the k previous ids,  each row of P drawn from Dirichlet(concentration, ..., concentration)
#     pi(c' w) = sum over the first id of c = (a, c') of pi(c) P[c, w]                   the stationary distribution
#     entropy rate = - sum over c, w of pi(c) P[c, w] log P[c, w]                        nats per id
#
# A text starts in the stationary distribution, so the true loss of its first k ids follows from the marginals of pi.

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


# A probabilistic grammar.
#
#     a rule:  A -> w B C ...  with probability p           a terminal w, then nonterminals; w identifies the rule of A
#     nats per sentence       s = H + M s                   H[A] the entropy of A's rules, M[A, B] the B expected in one
#     terminals per sentence  l = 1 + M l                   entropy rate = s[start] / l[start]
#
# Such grammars ("simple" ones, Korenjak & Hopcroft, 1966) are unambiguous and are parsed with a stack: the next
# terminal depends on the nonterminal on top only. No sentence is a prefix of another one; a text is a concatenation
# of independent sentences.

Rules = dict[str, dict[str, tuple[float, tuple[str, ...]]]]


@dataclass(frozen=True, eq=False)
class Grammar:
    """A source of ids; an id is the index of a terminal in `terminals`.

    Args:
        rules: For each nonterminal, by terminal: the probability and the nonterminals that follow.
        start: The nonterminal of a sentence.

    Raises:
        ValueError: Probabilities are not above zero or do not sum to 1, a nonterminal has no rules, or sentences have
            an infinite expected length.

    >>> Grammar({"S": {"(": (0.25, ("S", "S")), ".": (0.75, ())}}, "S").terminals
    '(.'
    """

    rules: Rules
    start: str

    def __post_init__(self):
        """Check the fields."""
        try:
            nonterminals = self.rules.keys()
            all_probabilities = {name: [p for p, _ in rules.values()] for name, rules in self.rules.items()}
        except (AttributeError, TypeError, ValueError):
            expected = "{nonterminal: {terminal: (probability, nonterminals)}}"
            raise ValueError(f"rules={short_repr(self.rules)}; expected {expected}.") from None
        for name, rules in self.rules.items():
            probabilities = all_probabilities[name]
            if not all(isinstance(p, Real) and p > 0 for p in probabilities) or abs(sum(probabilities) - 1) > 1e-9:
                raise ValueError(f"The rules of {name!r} have the probabilities {probabilities}; expected a sum of 1.")
            if any(len(terminal) != 1 for terminal in rules):
                raise ValueError(f"The rules of {name!r} begin with {sorted(rules)}; expected one character each.")
        named = {b for rules in self.rules.values() for _, rest in rules.values() for b in rest}
        if unknown := {self.start, *named} - nonterminals:
            raise ValueError(f"rules has no rules for the nonterminals {sorted(unknown)}.")
        if np.abs(np.linalg.eigvals(self._expected)).max() > 1 - 1e-9:
            raise ValueError("Sentences have no finite expected length: make the rules that end them more probable.")

    @cached_property
    def terminals(self) -> str:
        """All terminals, one character each, sorted."""
        return "".join(sorted({terminal for rules in self.rules.values() for terminal in rules}))

    @property
    def vocabulary_size(self) -> int:
        """V, the number of terminals."""
        return len(self.terminals)

    @cached_property
    def _expected(self):
        """Expected number of each nonterminal in the rules of each nonterminal, the matrix M above."""
        names = list(self.rules)
        return np.array([[sum(p * rest.count(b) for p, rest in self.rules[a].values()) for b in names] for a in names])

    def _per_sentence(self, value_of_rules):
        """Compute the expected sum over a sentence of the expected value of one rule of each nonterminal."""
        names = list(self.rules)
        values = np.array([value_of_rules(self.rules[name]) for name in names], "float64")
        return float(np.linalg.solve(np.eye(len(names)) - self._expected, values)[names.index(self.start)])

    @property
    def sentence_length(self) -> float:
        """The expected number of terminals of a sentence."""
        return self._per_sentence(lambda rules: 1)

    @property
    def entropy_rate(self) -> float:
        """The entropy rate in nats per id, the lowest possible expected loss on a long text."""
        sentence_entropy = self._per_sentence(lambda rules: -sum(p * np.log(p) for p, _ in rules.values()))
        return sentence_entropy / self.sentence_length

    def sample(self, length: int, seed: int) -> np.ndarray:
        """Sample a text of sentences, cut off at `length`, int32 `[length]`: a function of the grammar and the seed."""
        checks.integer("length", length, min_value=0)
        checks.integer("seed", seed, min_value=0)
        expansions = {}
        for name, rules in self.rules.items():
            options = [(self.terminals.index(terminal), rest[::-1]) for terminal, (_, rest) in rules.items()]
            expansions[name] = (np.cumsum([p for p, _ in rules.values()])[:-1].tolist(), options)
        ids, stack = [], []
        for draw in np.random.default_rng(seed).random(length).tolist():
            bounds, options = expansions[stack.pop() if stack else self.start]
            id, rest = options[bisect.bisect_right(bounds, draw)]
            ids.append(id)
            stack += rest
        return np.array(ids, "int32")

    def token_losses(self, ids: np.ndarray) -> np.ndarray:
        """Compute the true -log p of each id of a text `[N]`, given all previous ids: nats, float64 `[N]`.

        The text starts with a sentence; its last one may be cut off. A ValueError names an id that violates it.
        """
        ids = check_ids(ids, self.vocabulary_size, "terminal")
        expansions = {
            name: {self.terminals.index(terminal): (-np.log(p), rest[::-1]) for terminal, (p, rest) in rules.items()}
            for name, rules in self.rules.items()
        }
        losses, stack = [], []
        for position, id in enumerate(ids.tolist()):
            top = stack.pop() if stack else self.start
            if id not in expansions[top]:
                raise ValueError(f"{self.terminals[id]!r} at position {position}: no rule of {top!r} begins with it.")
            loss, rest = expansions[top][id]
            losses.append(loss)
            stack += rest
        return np.array(losses, "float64")


def bracket_grammar(num_letters: int = 8, close_prob: float = 0.24, nest_prob: float = 0.16, seed: int = 0) -> Grammar:
    """Create a grammar of sentences such as `(ab[hc]d{}a)`, in which brackets match and determine the letters inside.

    A nested bracket interrupts the outer one, so a good prediction needs a stack. A bracket contains
    `1 / (close_prob - nest_prob)` terminals on average, including the closing bracket.

    Args:
        num_letters: Number of letters, 1 to 26. Each kind of bracket has its own frequencies of them.
        close_prob: Probability that the bracket closes next.
        nest_prob: Probability that another bracket opens, below `close_prob`; all kinds are equally likely. Otherwise
            a letter follows.
        seed: Integer of at least 0, from which the frequencies are drawn.

    Raises:
        ValueError: A number is out of its range, or not `0 < nest_prob < close_prob < 1 - nest_prob`.
    """
    pairs = ("()", "[]", "{}", "<>")
    checks.integer("num_letters", num_letters, min_value=1, max_value=26)
    checks.integer("seed", seed, min_value=0)
    is_real = isinstance(close_prob, Real) and isinstance(nest_prob, Real)
    if not (is_real and 0 < nest_prob < close_prob < 1 - nest_prob):
        raise ValueError(f"{close_prob=} and {nest_prob=}; expected 0 < nest_prob < close_prob, and a sum below 1.")
    random = np.random.default_rng(seed)
    opening = {pair[0]: (1 / len(pairs), (pair,)) for pair in pairs}
    rules = {"sentence": opening}
    for pair in pairs:
        frequencies = random.dirichlet([0.5] * num_letters) * (1 - close_prob - nest_prob)
        rules[pair] = {
            pair[1]: (close_prob, ()),
            **{left: (nest_prob * p, (*inner, pair)) for left, (p, inner) in opening.items()},
            **{chr(97 + n): (float(p), (pair,)) for n, p in enumerate(frequencies)},
        }
    return Grammar(rules, "sentence")


# A random sequence, followed by its reversal.
#
#     row = start a_1 ... a_L | a_L ... a_1 end        L uniform over min_length ... max_length, a_i over the letters
#     x = row[:-1],   y = row[1:],   -1 in y after the end                                        T = 2 max_length + 2
#
# Before the separator the letters are random: the loss is log A nats per letter, and lower only if a model sees the
# future. After the separator everything is determined: a perfect model predicts every position.
#
# Ids: letters 0 ... A-1, the separator A, the end A+1 (also the padding of short rows), the start A+2.


@dataclass(frozen=True)
class Reversal(StepBatches):
    """Batches of sequences to reverse, as a function of the step.

    Args:
        alphabet_size: A, the number of letters, at least 2.
        min_length: Minimum number of letters of a sequence, at least 1.
        max_length: Maximum number of letters of a sequence.
        batch_size: B, the rows of a batch.
        seed: Integer of at least 0; the rows depend on (seed, step) only.

    Raises:
        ValueError: A number is not an integer or out of its range.

    >>> x, y = Reversal(alphabet_size=26, min_length=3, max_length=3, batch_size=1).batch(0)
    >>> bool((x[0, 1:4] == y[0, 6:3:-1]).all())
    True
    """

    alphabet_size: int
    min_length: int
    max_length: int
    batch_size: int
    seed: int = 0

    def __post_init__(self):
        """Check the fields."""
        checks.integer("alphabet_size", self.alphabet_size, min_value=2)
        checks.integer("min_length", self.min_length, min_value=1)
        checks.integer("max_length", self.max_length, min_value=self.min_length)
        checks.integer("batch_size", self.batch_size, min_value=1)
        checks.integer("seed", self.seed, min_value=0)

    @property
    def separator(self) -> int:
        """The id between a sequence and its reversal."""
        return self.alphabet_size

    @property
    def end(self) -> int:
        """The id after the reversal."""
        return self.alphabet_size + 1

    @property
    def start(self) -> int:
        """The id before the first letter."""
        return self.alphabet_size + 2

    @property
    def vocabulary_size(self) -> int:
        """V, the number of ids."""
        return self.alphabet_size + 3

    @property
    def sequence_length(self) -> int:
        """T, the positions of a row."""
        return 2 * self.max_length + 2

    @property
    def tokens_per_step(self) -> int:
        """The expected number of targets of a batch: 2 L + 2 for each row."""
        return self.batch_size * (self.min_length + self.max_length + 2)

    def with_length(self, length: int) -> "Reversal":
        """Return the task with sequences of one length only: T is 2 length + 2, and every position has a target."""
        return replace(self, min_length=length, max_length=length)

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the batch of a step, from 0: `(x, y)`, int32 `[B, T]` each, the ids and the next ids or -1."""
        checks.integer("step", step, min_value=0)
        num_lengths = self.max_length - self.min_length + 1
        lengths = self.min_length + integers((self.batch_size, 1), num_lengths, self.seed, step, "lengths")
        shape = (self.batch_size, self.max_length)
        letters = integers(shape, self.alphabet_size, self.seed, step, "letters").astype("int32")

        t = np.arange(self.sequence_length + 1)[None]  # [1, T+1]; the separator is at L + 1, the end at 2 L + 2
        letter = np.where(t <= lengths, t - 1, 2 * lengths + 1 - t)  # forwards, then backwards
        row = np.take_along_axis(letters, letter.clip(0, self.max_length - 1), axis=1)  # [B, T+1]
        row = np.where(t == 0, self.start, row)
        row = np.where(t == lengths + 1, self.separator, row)
        row = np.where(t >= 2 * lengths + 2, self.end, row)
        return row[:, :-1], np.where(t > 2 * lengths + 2, -1, row)[:, 1:]
