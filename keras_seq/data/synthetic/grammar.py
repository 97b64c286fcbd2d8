"""Sample texts with long-range dependencies from a probabilistic grammar whose entropy rate is known.

    a rule:  A -> w B C ...  with probability p           a terminal w, then nonterminals; w identifies the rule of A
    nats per sentence       s = H + M s                   H[A] the entropy of A's rules, M[A, B] the expected B in one
    terminals per sentence  l = 1 + M l                   entropy rate = s[start] / l[start]

Such grammars ("simple" ones, Korenjak & Hopcroft, 1966) are unambiguous and are parsed with a stack: the next terminal
depends on the nonterminal on top only, so the true loss of every id is known too. No sentence is a prefix of another
one; a text is a concatenation of independent sentences.
"""

import bisect
from dataclasses import dataclass
from functools import cached_property
from numbers import Real

import numpy as np

from keras_seq import checks
from keras_seq.checks import short_repr
from keras_seq.tokenizers.base import check_ids

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
