"""Constrain a text to one of some choices or to a regular expression; `json_schemas.py` makes one of a JSON schema.

    regular expression  ->  finite automaton over bytes  ->  automaton over the tokens of a tokenizer:
    table [S, V]        the state after each token, -1 where the token would lead out of the language
    distance [S]        tokens that the shortest way to the end of a text takes; 0 where a text may end

    allowed(n)          table[s, n] >= 0, and from there the text can end within the tokens that are left
    s is not final      draw n from the allowed tokens;                                    s := table[s, n]
    s is final          draw n from all tokens; where n is not allowed the text ends before it

So the text ends where the model itself would leave the constraint, and always within its number of tokens.
Willard & Louf (2023), arXiv:2307.09702. The automaton over bytes is outlines-core's.
"""

import collections
import dataclasses
import importlib.util
import json
import re
from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_seq.bounded_process import regex_automaton
from keras_seq.generation.samplers import sample_token
from keras_seq.tokenizers.pretrained import token_bytes

MAX_TABLE = 2**26  # entries of a table, 4 bytes each
FAR = 2**30  # the distance of no way
ENDED = -2  # id after the end of a text, and state of its row
NEG_INF = -float("inf")


@dataclasses.dataclass(frozen=True)
class TokenAutomaton:
    """The token sequences of a constraint: `table [S, V]` and `distance [S]`, int32, from state 0."""

    table: np.ndarray
    distance: np.ndarray


@dataclasses.dataclass(frozen=True)
class Constraint:
    """A regular expression that a whole generated text matches; `choices`, `regex` and `json_schema` make one."""

    pattern: str

    def automaton(self, tokenizer, excluded: Sequence[int] = ()) -> TokenAutomaton:
        """Return the automaton over the tokens of a tokenizer.

        Args:
            tokenizer: A tokenizer of characters, words or byte pairs, or a tokenizer.json of byte pairs or
                SentencePiece.
            excluded: Ids that are no text, such as a model's document token.

        Raises:
            ValueError: The pattern is not a regular expression, no text of it can be written with the tokenizer's
                tokens, the automaton is too large or takes too long, the tokenizer has no bytes for its tokens, or
                outlines-core is not installed.
        """
        tokens = [b"" if n in excluded else token or b"" for n, token in enumerate(token_bytes(tokenizer))]
        try:
            table, finals = byte_automaton(self.pattern)
            if len(table) * len(tokens) > MAX_TABLE:
                raise ValueError(
                    f"it has {len(table)} states for {len(tokens)} tokens; expected at most "
                    f"{MAX_TABLE // len(tokens)}: bound its lengths and repetitions"
                )
            return _token_automaton(table, finals, tokens)
        except ValueError as error:
            raise ValueError(f"The constraint {self.pattern!r:.80} cannot be used: {error}.") from None


def choices(texts: Sequence[str]) -> Constraint:
    """Return the constraint that a text is one of some texts.

    Args:
        texts: At least one text.

    Raises:
        ValueError: There is no text, or one is empty.
    """
    is_list = isinstance(texts, Sequence) and not isinstance(texts, str)
    if not is_list or not texts or not all(isinstance(text, str) and text for text in texts):
        raise ValueError(f"choices={texts!r:.80}; expected a list of at least one non-empty text.")
    return Constraint("|".join(map(re.escape, texts)))


def regex(pattern: str) -> Constraint:
    """Return the constraint that a whole text matches a regular expression.

    Args:
        pattern: In the syntax of Rust's `regex`, which is Python's without look-around and back-references, and without
            the anchors ^ and $, which a whole match does not need.

    Raises:
        ValueError: The pattern is not a text.
    """
    if not isinstance(pattern, str) or not pattern:
        raise ValueError(f"regex={pattern!r:.80}; expected a regular expression.")
    return Constraint(pattern)


def byte_automaton(pattern: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the automaton of a regular expression: its table over bytes `[S, 256]`, and the states of ended texts."""
    check_outlines()
    table, finals = regex_automaton(pattern)
    return np.frombuffer(table, "int32").reshape(-1, 256), np.array(finals, "int64")


def check_outlines() -> None:
    """Raise a ValueError unless outlines-core is installed."""
    if importlib.util.find_spec("outlines_core") is None:
        raise ValueError("Constraints need outlines-core: pip install outlines-core.")


def _token_automaton(table, finals, tokens):
    """Return the automaton over tokens, given as bytes; those without bytes lead nowhere.

    States from which no tokens lead to the end of a text are left out.
    """
    lengths = np.array([len(token) for token in tokens])
    longest = max(lengths.max(initial=0), 1)
    padded = np.frombuffer(b"".join(token.ljust(longest, b"\0") for token in tokens), "uint8").reshape(-1, longest)
    following = np.where(lengths > 0, np.arange(len(table), dtype="int32")[:, None], np.int32(-1))  # [S, V]
    with_nowhere = np.append(table, np.full((1, 256), -1, "int32"), axis=0)  # row -1 is that of state -1
    for position in range(longest):
        reached = np.flatnonzero(lengths > position)
        following[:, reached] = with_nowhere[following[:, reached], padded[reached, position]]
    reached = _distances([0], [_distinct(row) for row in following])
    distance = distances_to_end(following, finals)
    if 0 not in distance:
        firsts = {token[0] for token in tokens if token}
        missing = {byte for state in reached for byte in np.flatnonzero(table[state] >= 0).tolist()} - firsts
        characters = json.dumps(bytes(sorted(missing)[:20]).decode(errors="replace"), ensure_ascii=False)
        raise ValueError(f"no text of it can be written with the tokenizer's tokens, which lack [{characters}]")
    states = [state for state in reached if state in distance]
    number = np.full(len(table) + 1, -1, "int32")  # the new number of a state; the last one is that of state -1
    number[states] = np.arange(len(states))
    # a power of two, so that few sizes are compiled
    padding = (1 << (len(states) - 1).bit_length()) - len(states)
    result = np.pad(number[following[states]], ((0, padding), (0, 0)), constant_values=-1)
    return TokenAutomaton(result, np.array([distance[s] for s in states] + padding * [FAR], "int32"))


def distances_to_end(following: np.ndarray, finals: np.ndarray) -> dict[int, int]:
    """Return the least number of steps to one of `finals` for each state that has a way, by a table `[S, N]`."""
    sources = [[] for _ in following]
    for state, row in enumerate(following):
        for new in _distinct(row):
            sources[new].append(state)
    return _distances(finals.tolist(), sources)


def _distinct(row):
    """Return the states in a row of a table, without -1, in ascending order; faster than `np.unique`."""
    return np.flatnonzero(np.bincount(row + 1)[1:]).tolist()


def _distances(starts, neighbors):
    """Return the least number of steps from some states to each that can be reached, nearest first."""
    distance, queue = dict.fromkeys(starts, 0), collections.deque(starts)
    while queue:
        state = queue.popleft()
        for new in neighbors[state]:
            if new not in distance:
                distance[new] = distance[state] + 1
                queue.append(new)
    return distance


def constraint_rows(automaton: TokenAutomaton | None, batch_size: int, max_new_tokens: int):
    """Return what a loop carries for B rows, before their first token, and the tables, which do not change."""
    if automaton is None:
        return (), ()
    if automaton.distance[0] > max_new_tokens:
        raise ValueError(
            f"max_new_tokens={max_new_tokens}; expected at least {automaton.distance[0]}, the tokens of the shortest "
            "text of the constraint."
        )
    rows = np.zeros(batch_size, "int32"), np.full(batch_size, max_new_tokens, "int32")
    return rows, (automaton.table, automaton.distance)


def sample_row(logits, uniform, options, in_text, rows, tables):
    """Draw one id for each row, by a constraint if there is one; return ids `[B]` and the rows after them."""
    if not rows:
        return sample_token(logits, uniform, options, *in_text), rows
    (state, left), (table, distance) = rows, tables
    following = ops.take(table, ops.maximum(state, 0), axis=0)  # [B, V]
    reach = ops.take(distance, ops.maximum(following, 0), axis=0)
    allowed = ops.logical_and(following >= 0, reach < left[:, None])
    may_end = ops.take(distance, ops.maximum(state, 0), axis=0) == 0
    masked = ops.where(ops.logical_or(allowed, may_end[:, None]), logits, NEG_INF)
    ids = sample_token(masked, uniform, options, *in_text)
    column = ops.maximum(ids, 0)[:, None]
    goes_on = ops.logical_and(ops.take_along_axis(allowed, column, axis=1)[:, 0], state >= 0)
    after = ops.where(goes_on, ops.take_along_axis(following, column, axis=1)[:, 0], ENDED)
    failed = ops.logical_and(ids < 0, state >= 0)  # logits that are not finite
    return ops.where(failed, -1, ops.where(goes_on, ids, ENDED)), (after, left - 1)
