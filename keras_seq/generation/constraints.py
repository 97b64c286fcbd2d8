"""Constrain a text: to one of some choices, to a regular expression, or to JSON of a schema.

    regular expression  ->  finite automaton over bytes  ->  automaton over the tokens of a tokenizer:
    table [S, V]        the state after each token, -1 where the token would lead out of the language
    distance [S]        tokens that the shortest way to the end of a text takes; 0 where a text may end

Willard & Louf (2023), "Efficient guided generation for large language models", arXiv:2307.09702. The automaton and the
regular expression of a schema are outlines-core's: `pip install "keras_seq[constraints]"`. States from which the
tokenizer's tokens cannot reach an end are not part of the table.
"""

import collections
import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_seq.tokenizers.token_bytes import token_bytes

MAX_TABLE = 2**27  # entries of a table, 4 bytes each
FAR = 2**30  # the distance of no way
SAY_ALL = {"$ref", "anyOf", "const", "enum"}  # keywords beside which outlines-core ignores others
LIMITS = SAY_ALL | {
    *("type", "properties", "required", "additionalProperties", "items", "minItems", "maxItems"),
    *("minLength", "maxLength", "pattern"),
}
JSON_SCHEMA_KEYWORDS = LIMITS | {
    *("$defs", "definitions", "title", "description", "default", "examples", "$schema", "$id", "$comment"),
}
JSON_TYPES = {
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
    "number": (int, float),
    "array": list,
    "object": dict,
}


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
            tokenizer: A tokenizer of characters, words or byte pairs.
            excluded: Ids that are no text, such as a model's document token.

        Raises:
            ValueError: The pattern is not a regular expression, no text of it can be written with the tokenizer's
                tokens, the automaton is too large, the tokenizer has no bytes for its tokens, or outlines-core is not
                installed.
        """
        outlines = _outlines()
        ids = collections.defaultdict(list)
        for n, token in enumerate(token_bytes(tokenizer)):
            if token and n not in excluded:
                ids[token].append(n)
        size = tokenizer.vocabulary_size
        try:
            index = outlines.Index(self.pattern, outlines.Vocabulary(size, dict(ids)))
        except ValueError as error:
            reason = str(error).split("This may be")[0].strip().rstrip(".")
            raise ValueError(f"The constraint {self.pattern!r:.80} cannot be used: {reason}.") from None
        return _automaton(index, size, self.pattern)


def _automaton(index, size, pattern):
    """Return the automaton of an outlines-core index, with the start as state 0."""
    transitions, finals = index.get_transitions(), index.get_final_states()
    following = {s: {n: new for n, new in row.items() if n < size} for s, row in transitions.items()}
    distance = _distances(following, finals)
    start = index.get_initial_state()
    states = [start, *(s for s in following if s != start and s in distance)]
    number = {s: n for n, s in enumerate(states)}
    if len(states) * size > MAX_TABLE:
        raise ValueError(
            f"The constraint {pattern!r:.80} has {len(states)} states for {size} tokens; expected at most "
            f"{MAX_TABLE // size}: bound its lengths and repetitions."
        )
    # a power of two, so that few sizes are compiled
    table = np.full((1 << (len(states) - 1).bit_length(), size), -1, "int32")
    for s in states:
        for n, new in following[s].items():
            table[number[s], n] = number.get(new, -1)
    return TokenAutomaton(table, np.array([distance[s] for s in states] + [FAR] * (len(table) - len(states)), "int32"))


def _distances(following, finals):
    """Return the least number of tokens from each state to a final one, without states that have no way."""
    sources = collections.defaultdict(set)
    for s, row in following.items():
        for new in row.values():
            sources[new].add(s)
    distance, queue = dict.fromkeys(finals, 0), collections.deque(finals)
    while queue:
        state = queue.popleft()
        for source in sources[state] - distance.keys():
            distance[source] = distance[state] + 1
            queue.append(source)
    return distance


def choices(texts: Sequence[str]) -> Constraint:
    """Return the constraint that a text is one of some texts.

    Args:
        texts: At least one text.

    Raises:
        ValueError: There is no text, or one is empty.
    """
    if isinstance(texts, str) or not texts or not all(isinstance(text, str) and text for text in texts):
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


def json_schema(schema: dict[str, Any] | str) -> Constraint:
    """Return the constraint that a text is JSON of a schema, without white space between its parts.

    Properties have the order of the schema. Keywords that a regular expression cannot express, such as `minimum`, are
    refused.

    Args:
        schema: A JSON schema, or its text.

    Raises:
        ValueError: The schema is not valid JSON, or has a keyword or type that is not supported, or outlines-core is
            not installed.
    """
    _outlines()
    from outlines_core.json_schema import build_regex_from_schema

    try:
        schema = json.loads(schema) if isinstance(schema, str) else schema
        if not isinstance(schema, dict):
            raise ValueError("it is not an object")
        _check_keywords(schema)
        return Constraint(build_regex_from_schema(json.dumps(schema), ""))
    except (ValueError, TypeError) as error:
        raise ValueError(f"json_schema={schema!r:.80} cannot be used: {str(error).rstrip('.')}.") from None


def _check_keywords(schema):
    """Refuse what outlines-core would ignore."""
    if not isinstance(schema, dict):
        return
    unknown = schema.keys() - JSON_SCHEMA_KEYWORDS
    if unknown:
        raise ValueError(f"the keyword {min(unknown)!r} is not supported")
    for name in sorted(SAY_ALL & schema.keys()):
        others = schema.keys() & LIMITS - {name, *(("type",) if name in ("const", "enum") else ())}
        if others:
            raise ValueError(f"the keyword {min(others)!r} beside {name!r} is not supported")
    for value in (*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())):
        if "type" in schema and not _is_of_type(value, schema["type"]):
            raise ValueError(f"the value {value!r} is not of type {schema['type']!r}")
    missing = {*schema.get("required", ())} - schema.get("properties", {}).keys()
    if missing:
        raise ValueError(f"{min(missing)!r} is required, but not among the properties")
    for name in ("Items", "Length"):
        if schema.get(f"min{name}", 0) > schema.get(f"max{name}", np.inf):
            raise ValueError(f"min{name} is above max{name}")
    for name in ("properties", "$defs", "definitions"):
        for inner in schema.get(name, {}).values():
            _check_keywords(inner)
    for inner in (schema.get("items"), schema.get("additionalProperties"), *schema.get("anyOf", ())):
        _check_keywords(inner)


def _is_of_type(value, names):
    types = [JSON_TYPES.get(name) for name in (names if isinstance(names, list) else [names])]
    if None in types:
        raise ValueError(f"the type {names!r} is not supported")
    return any(isinstance(value, kind) and (kind is bool or not isinstance(value, bool)) for kind in types)


def _outlines():
    try:
        import outlines_core
    except ImportError:
        raise ValueError("Constraints need outlines-core: pip install outlines-core.") from None
    return outlines_core
