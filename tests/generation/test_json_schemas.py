"""What is accepted gives JSON that is valid by the schema, as jsonschema says; the rest is refused."""

import json
import random

import numpy as np
import pytest

from keras_seq.generation import json_schema, regex
from keras_seq.tokenizers import CharacterTokenizer

jsonschema = pytest.importorskip("jsonschema")
pytest.importorskip("outlines_core")
TOKENIZER = CharacterTokenizer.from_text("".join(map(chr, range(32, 127))) + "\u00e9\u732b\n\t")
NULL = {"type": "null"}
NESTED = NULL
for _ in range(100_000):
    NESTED = {"anyOf": [NESTED]}
MANY = {f"a{n}": {"properties": {f"p{k}": {"$ref": f"#/$defs/a{n + 1}"} for k in range(10)}} for n in range(8)}
ACCEPTED = [
    *(
        {},
        {"title": "x"},
        {"type": "number"},
        {"type": ["integer", "null"]},
        {"type": ["integer", "string"], "minLength": 3},
    ),
    *(
        {"type": "string", "pattern": p}
        for p in ("a|b", "^ab$", r"a\$", "", "^$", r"\d{3}-\d\d", '[^"\\\\\x00-\x1f]*x')
    ),
    *({"type": "string", "minLength": 2, "maxLength": 2}, {"type": "string", "maxLength": 0}),
    *({"type": "array"}, {"type": "array", "minItems": 2}, {"type": "array", "items": {}, "maxItems": 2}),
    *({"type": "array", "items": NULL, "maxItems": 0}, {"type": "array", "items": {"type": "boolean"}, "minItems": 2}),
    *({"type": "object"}, {"type": "object", "additionalProperties": False}, {"type": ["object", "null"]}),
    {"type": "object", "properties": {"a": NULL, "b": NULL, "c": NULL}, "required": ["b"]},
    {"type": "object", "properties": {'a"b': NULL, "c\\d\n": NULL, "e.f(": NULL}, "required": ['a"b', "c\\d\n"]},
    {"type": "object", "properties": {"a": NULL}, "additionalProperties": {"type": "integer"}},
    *({"type": "string", "properties": {"a": NULL}}, {"type": "integer", "minLength": 4}),
    *({"enum": [1, "a", None, True, 1.5, {"a": [1]}, 'x"\\\n']}, {"const": {"b": 1, "a": "x.y"}}, {"const": 1e300}),
    {
        "$defs": {"a/b": {"properties": {"n": NULL}, "required": ["n"]}},
        "type": "array",
        "items": {"$ref": "#/$defs/a~1b"},
    },
]
REFUSED = [
    *(({"enum": []}, "enum is"), ({"anyOf": []}, "anyOf is"), ({"anyOf": {}}, "anyOf is"), ({"type": []}, "type is")),
    *(({"type": 3}, "type is 3"), ({"type": ["null", "null"]}, "distinct"), ({"anyOf": [True]}, "stands for a schema")),
    *(({"type": "string", "pattern": p}, "JSON escapes") for p in ('a"b', r"a\\b", r"a\nb", ".*", r"a\sb")),
    *(({"type": "string", "pattern": p}, "the pattern") for p in ("a)|(b", "a^b", "(", 'a|a"b')),
    *(({"type": "string", "minLength": n}, "minLength is") for n in (-1, 2.5, True, "2", 10**9)),
    ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength is above maxLength"),
    ({"type": "string", "minLength": 3, "pattern": "a"}, "'minLength' beside 'pattern'"),
    *(({"type": "array", "items": x}, "stands for a schema") for x in (True, [NULL])),
    *(({"properties": {"a": NULL}, "required": x}, "required") for x in ("a", [1], ["a", "a"], ["b"])),
    *(({"properties": []}, "properties"), ({"properties": {"a": {"enum": []}}}, "enum is")),
    *(({"const": 10**30}, "64 bits"), ({"const": float("inf")}, "not JSON"), ('{"enum":[NaN]}', "NaN is not JSON")),
    *(({"$ref": "#"}, "refers to itself"), ({"$ref": "#/$defs/a"}, "not in the schema"), ({"$ref": 3}, "not in the")),
    ({"$defs": {"a": {"properties": {"n": {"$ref": "#/$defs/a"}}}}, "$ref": "#/$defs/a"}, "refers to itself"),
    ({"$defs": {**MANY, "a8": NULL}, "$ref": "#/$defs/a0"}, "more than 2000 parts"),
    (NESTED, "nested too deeply"),
    *(("{", "Expecting property name"), ("3", "not an object"), ({"anyOf": [{"oneOf": []}]}, "keyword 'oneOf'")),
    *(({"type": "integer", "minimum": 3}, "keyword 'minimum'"), ({"items": {"not": {}}}, "keyword 'not'")),
    *(({"type": "nonsense"}, "nonsense"), ({"type": "nonsense", "const": 1}, "type 'nonsense' is not supported")),
    ({"type": "integer", "enum": [1, True]}, "True is not of type 'integer'"),
    ({"type": "string", "const": 1}, "1 is not of type 'string'"),
    ({"anyOf": [NULL], "type": "null"}, "keyword 'type' beside 'anyOf'"),
    ({"$ref": "#/$defs/a", "maxLength": 2}, r"keyword 'maxLength' beside '\$ref'"),
]


def texts(automaton, count):
    """Texts of an automaton, each by a random walk."""
    draws = random.Random(0)
    for _ in range(count):
        state, text = 0, ""
        while automaton.distance[state] or draws.random() < 0.7:
            reach = automaton.distance[np.maximum(automaton.table[state], 0)]
            ids = np.flatnonzero((automaton.table[state] >= 0) & (reach < 60 - len(text)))
            if not len(ids):
                break
            text += TOKENIZER.vocabulary[id := draws.choice(ids)]
            state = automaton.table[state, id]
        yield text


@pytest.mark.parametrize("schema", ACCEPTED, ids=str)
def test_what_is_accepted_is_json_of_the_schema(schema):
    for text in texts(json_schema(schema).automaton(TOKENIZER), 20):
        jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize(("schema", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_is_invalid_or_cannot_be_met_is_refused(schema, message):
    with pytest.raises(ValueError, match=message) as error:
        json_schema(schema)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("pattern", ["(a|b)*a(a|b){18}", "(a{1000}){1000}", "((a{100}){100}){100}"])
def test_a_pattern_of_a_million_states_is_refused(pattern):
    with pytest.raises(ValueError, match=r"The constraint .* cannot be used: it (takes more than|has \d+ states)"):
        regex(pattern).automaton(TOKENIZER)
