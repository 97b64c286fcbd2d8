"""A probabilistic grammar whose entropy rate is known, for texts in which a sign decides another far later.

    a rule:  A -> w B C ...  with probability p          a terminal w, then nonterminals; w tells which rule of A it is
    nats per sentence   s = H + M s                      H[A] the entropy of A's rules, M[A, B] the B expected in one
    signs per sentence  l = 1 + M l                      entropy rate = s[start] / l[start]

Such grammars ("simple" ones, Korenjak & Hopcroft, 1966) are unambiguous, and a stack reads them: the next sign depends
on the nonterminal on top alone, so the true loss of every id is known too. No sentence begins another one; a text is
sentences, drawn independently, side by side.
"""

import bisect
from dataclasses import dataclass
from functools import cached_property
from numbers import Real

import numpy as np

from keras_seq import checks
from keras_seq.tokenizers.base_tokenizer import check_ids
from keras_seq.tokenizers.text_errors import short_repr

Rules = dict[str, dict[str, tuple[float, tuple[str, ...]]]]


@dataclass(frozen=True, eq=False)
class Grammar:
    """A source of ids: the place of each terminal in `terminals`.

    Args:
        rules: of each nonterminal, by terminal: the probability and the nonterminals that follow.
        start: the nonterminal of a sentence.

    Raises:
        ValueError: probabilities that are not above zero or do not sum to 1, a nonterminal without rules, or sentences
            of infinite expected length.

    >>> Grammar({"S": {"(": (0.25, ("S", "S")), ".": (0.75, ())}}, "S").terminals
    '(.'
    """

    rules: Rules
    start: str

    def __post_init__(self):
        try:
            known = self.rules.keys()
            all_probabilities = {name: [p for p, _ in rules.values()] for name, rules in self.rules.items()}
        except (AttributeError, TypeError, ValueError):
            expected = "{nonterminal: {terminal: (probability, nonterminals)}}"
            raise ValueError(f"rules={short_repr(self.rules)}; expected {expected}.") from None
        for name, rules in self.rules.items():
            probabilities = all_probabilities[name]
            if not all(isinstance(p, Real) and p > 0 for p in probabilities) or abs(sum(probabilities) - 1) > 1e-9:
                raise ValueError(f"The rules of {name!r} have the probabilities {probabilities}; expected a sum of 1.")
            if any(len(terminal) != 1 for terminal in rules):
                raise ValueError(f"The rules of {name!r} begin with {sorted(rules)}; expected a character each.")
        unknown = {
            self.start,
            *(b for rules in self.rules.values() for _, rest in rules.values() for b in rest),
        } - known
        if unknown:
            raise ValueError(f"There are no rules for {sorted(unknown)}.")
        if np.abs(np.linalg.eigvals(self._expected)).max() > 1 - 1e-9:
            raise ValueError("Sentences have no finite expected length: make the rules that end them more probable.")

    @cached_property
    def terminals(self) -> str:
        """All of them, one character each, sorted."""
        return "".join(sorted({terminal for rules in self.rules.values() for terminal in rules}))

    @property
    def vocabulary_size(self) -> int:
        """V, the different terminals."""
        return len(self.terminals)

    @cached_property
    def _expected(self):
        """M."""
        names = list(self.rules)
        return np.array([[sum(p * rest.count(b) for p, rest in self.rules[a].values()) for b in names] for a in names])

    def _per_sentence(self, of_one_rule):
        """The expected sum over a sentence of what is expected of one rule of each nonterminal."""
        names = list(self.rules)
        values = np.array([of_one_rule(self.rules[name]) for name in names], "float64")
        return float(np.linalg.solve(np.eye(len(names)) - self._expected, values)[names.index(self.start)])

    @property
    def sentence_length(self) -> float:
        """The expected terminals of a sentence."""
        return self._per_sentence(lambda rules: 1)

    @property
    def entropy_rate(self) -> float:
        """Nats per id: the least expected loss of a long text."""
        nats = self._per_sentence(lambda rules: -sum(p * np.log(p) for p, _ in rules.values()))
        return nats / self.sentence_length

    def ids(self, length, seed) -> np.ndarray:
        """A text of whole sentences, cut off at `length`: int32 `[length]`, a function of the grammar and `seed`."""
        checks.integer("length", length, min_value=0)
        checks.integer("seed", seed, min_value=0)
        ways = {}
        for name, rules in self.rules.items():
            chosen = [(self.terminals.index(terminal), rest[::-1]) for terminal, (_, rest) in rules.items()]
            ways[name] = (np.cumsum([p for p, _ in rules.values()])[:-1].tolist(), chosen)
        ids, stack = [], []
        for draw in np.random.default_rng(seed).random(length).tolist():
            bounds, chosen = ways[stack.pop() if stack else self.start]
            id, rest = chosen[bisect.bisect_right(bounds, draw)]
            ids.append(id)
            stack += rest
        return np.array(ids, "int32")

    def nats(self, ids) -> np.ndarray:
        """The true -log p of each id of a text that begins with a sentence, given all before it.

        Args:
            ids: integers `[N]` from 0 to V - 1; the last sentence may be cut off.

        Returns:
            float64 `[N]`.

        Raises:
            ValueError: an id out of its range, or one that cannot stand where it stands.
        """
        ids = check_ids(ids, self.vocabulary_size, "terminal")
        ways = {
            name: {self.terminals.index(terminal): (-np.log(p), rest[::-1]) for terminal, (p, rest) in rules.items()}
            for name, rules in self.rules.items()
        }
        nats, stack = [], []
        for place, id in enumerate(ids.tolist()):
            top = stack.pop() if stack else self.start
            if id not in ways[top]:
                raise ValueError(f"{self.terminals[id]!r} at position {place}: no rule of {top!r} begins with it.")
            loss, rest = ways[top][id]
            nats.append(loss)
            stack += rest
        return np.array(nats, "float64")


def bracket_grammar(letters=8, close=0.24, nest=0.16, seed=0) -> Grammar:
    """Sentences such as `(ab[hc]d{}a)`: which bracket opens decides which one closes, and what stands in between.

    Args:
        letters: different ones, 1 to 26. Each kind of bracket has its own frequencies of them.
        close: the probability that a bracket closes next.
        nest: that another one opens, below `close`; each is as likely as the others. Else a letter comes.
        seed: of the frequencies.

    After a bracket within a bracket the outer one goes on, so nothing less than a stack predicts well. Inside of one
    stand `1 / (close - nest)` signs on average, the closing one counted.
    """
    pairs = ("()", "[]", "{}", "<>")
    if isinstance(letters, bool) or not isinstance(letters, int) or not 1 <= letters <= 26:
        raise ValueError(f"letters={letters!r}; expected a whole number from 1 to 26.")
    checks.integer("seed", seed, min_value=0)
    if not (isinstance(close, Real) and isinstance(nest, Real) and 0 < nest < close < 1 - nest):
        raise ValueError(f"close={close!r} and nest={nest!r}; expected 0 < nest < close, and less than 1 together.")
    random = np.random.default_rng(seed)
    opening = {pair[0]: (1 / len(pairs), (pair,)) for pair in pairs}
    rules = {"sentence": opening}
    for pair in pairs:
        frequencies = random.dirichlet([0.5] * letters) * (1 - close - nest)
        rules[pair] = {
            pair[1]: (close, ()),
            **{left: (nest * p, (*inner, pair)) for left, (p, inner) in opening.items()},
            **{chr(97 + n): (float(p), (pair,)) for n, p in enumerate(frequencies)},
        }
    return Grammar(rules, "sentence")
