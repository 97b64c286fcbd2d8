"""Make a constraint of a JSON schema: texts that are valid JSON, and valid by the schema.

    schema  ->  checks; references in their place, names and patterns escaped  ->  outlines-core's regular expression

outlines-core checks little: it would write a quote of a pattern as it is, which would end the JSON string. So a schema
is refused here if it is invalid, if no text can meet it, or if a regular expression cannot say it.
"""

import json
import re
from typing import Any

from keras_seq import checks
from keras_seq.bounded_process import json_schema_pattern
from keras_seq.generation.constraints import Constraint, byte_automaton, check_outlines, distances_to_end

MAX_PARTS = 2000  # of a schema, with references in their place
MAX_BOUND = 10_000  # characters of a string, items of an array
SAY_ALL = {"$ref", "anyOf", "const", "enum"}  # keywords beside which outlines-core ignores others
TYPES = {  # as Python has them, and their keywords
    "string": (str, {"minLength", "maxLength", "pattern"}),
    "boolean": (bool, set()),
    "null": (type(None), set()),
    "integer": (int, set()),
    "number": ((int, float), set()),
    "array": (list, {"items", "minItems", "maxItems"}),
    "object": (dict, {"properties", "required", "additionalProperties"}),
}
LIMITS = {"type", *SAY_ALL}.union(*(keywords for _, keywords in TYPES.values()))
NOTES = {"title", "description", "default", "examples", "$schema", "$id", "$comment"}
KEYWORDS = LIMITS | NOTES | {"$defs", "definitions"}
ANY_VALUE = {"anyOf": [{"type": name} for name in ("boolean", "null", "number", "string")]}
ANY_ARRAY, ANY_OBJECT = {"type": "array", "items": ANY_VALUE}, {"type": "object", "additionalProperties": ANY_VALUE}


def json_schema(schema: dict[str, Any] | str) -> Constraint:
    """Return the constraint that a text is JSON of a schema, without white space between its parts.

    Properties have the order of the schema, and no others follow them. Where nothing says what an array or an object
    holds, these are texts, numbers, Booleans and null. Keywords that a regular expression cannot express, such as
    `minimum`, are refused, and so are references of a schema to itself. A `pattern` is that of a whole string, and has
    no character that JSON escapes.

    Args:
        schema: A JSON schema, or its text.

    Raises:
        ValueError: The schema is not valid JSON, has a keyword or type that is not supported, is invalid or cannot be
            met, or outlines-core is not installed.
    """
    check_outlines()
    try:
        # a text and back, so that it has what JSON has only
        text = schema if isinstance(schema, str) else json.dumps(schema, allow_nan=False)
        root = json.loads(text, parse_constant=_no_constant)
        if not isinstance(root, dict):
            raise ValueError("it is not an object")
        return Constraint(json_schema_pattern(json.dumps(_Schema(root).part(root))))
    except RecursionError:
        raise ValueError("json_schema cannot be used: it is nested too deeply.") from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"json_schema={schema!r:.80} cannot be used: {str(error).rstrip('.')}.") from None


def _no_constant(name):
    raise ValueError(f"{name} is not JSON")


class _Schema:
    """Check the parts of a schema and write them as outlines-core reads them."""

    def __init__(self, root):
        self.root, self.num_parts = root, 0

    def part(self, schema, references=()):
        """Return a part without references; `references` are those that lead to it."""
        self.num_parts += 1
        if self.num_parts > MAX_PARTS:
            raise ValueError(f"it has more than {MAX_PARTS} parts, with references in their place")
        if not isinstance(schema, dict):
            raise ValueError(f"{json.dumps(schema):.80} stands for a schema; expected an object")
        self.check_keywords(schema)
        if "$ref" in schema:
            return self.part(self.target(schema["$ref"], references), (*references, schema["$ref"]))
        for name in ("$defs", "definitions"):
            for inner in _dict(name, schema.get(name, {})).values():
                self.check_keywords(_dict(name, inner))
        check_values(schema)
        types = _types(schema)
        known = LIMITS if types is None else SAY_ALL.union({"type"}, *(TYPES[t][1] for t in types if t in TYPES))
        result = {name: value for name, value in schema.items() if name in known}
        if not result:
            return {"anyOf": [*ANY_VALUE["anyOf"], ANY_ARRAY, ANY_OBJECT]}
        check_bounds(result)
        if "anyOf" in result:
            result["anyOf"] = [self.part(inner, references) for inner in _list("anyOf", result["anyOf"])]
        if "pattern" in result:
            result["pattern"] = whole_string(result["pattern"])
        # types whose parts nothing describes
        bare = () if types is None or SAY_ALL & result.keys() else types
        if "items" in result:
            result["items"] = self.part(result["items"], references)
        elif "array" in bare:
            result["items"] = ANY_VALUE
        return self.with_properties(result, "object" in bare, references)

    def with_properties(self, part, is_bare, references):
        """Return a part with the schemas of its properties and of additional ones in place."""
        more = part.pop("additionalProperties", True)
        if not isinstance(more, dict | bool):
            raise ValueError(f"additionalProperties is {json.dumps(more):.80}; expected an object or a Boolean")
        more = self.part(more, references) if isinstance(more, dict) else more
        if is_bare and "properties" not in part:
            part |= {"additionalProperties": ANY_VALUE if more is True else more} if more else {"properties": {}}
        if not part.keys() & {"properties", "required"}:
            return part
        properties = _dict("properties", part.get("properties", {}))
        required = [*map(_escaped, _list("required", part.get("required", []), empty=True))]
        if len({*required}) < len(required):
            raise ValueError("required has a name twice")
        parts = {_escaped(name): self.part(inner, references) for name, inner in properties.items()}
        missing = [name for name in required if name not in parts]
        if missing:
            raise ValueError(f"{missing[0]!r} is required, but not among the properties")
        return part | {"properties": parts, "required": required}

    def check_keywords(self, schema):
        """Refuse what outlines-core would ignore."""
        unknown = schema.keys() - KEYWORDS
        if unknown:
            raise ValueError(f"the keyword {min(unknown)!r} is not supported")
        for name in sorted(SAY_ALL & schema.keys()):
            others = schema.keys() & LIMITS - {name, *(("type",) if name in ("const", "enum") else ())}
            if others:
                raise ValueError(f"the keyword {min(others)!r} beside {name!r} is not supported")

    def target(self, reference, references):
        """Return the part that a reference names."""
        if reference in references:
            raise ValueError(f"$ref {reference!r} refers to itself")
        part = self.root if isinstance(reference, str) and re.match("#(/|$)", reference) else None
        for name in str(reference).split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            part = part.get(name) if isinstance(part, dict) else None
        if part is None:
            raise ValueError(f"$ref {reference!r} is not in the schema")
        return part


def check_values(schema):
    """Check the values of enum and const."""
    values = _list("enum", schema["enum"]) if "enum" in schema else []
    for value in values + [schema[name] for name in ("const",) if name in schema]:
        if isinstance(value, int) and not -checks.MAX_INT64 <= value <= checks.MAX_INT64:
            raise ValueError(f"the value {value} has more than 64 bits")
        if "type" in schema and not _is_of_type(value, _types(schema)):
            raise ValueError(f"the value {value!r} is not of type {schema['type']!r}")


def check_bounds(schema):
    """Check the lengths of strings and arrays."""
    for name in ("Items", "Length"):
        for bound in (f"min{name}", f"max{name}"):
            value = schema.get(bound, 0)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_BOUND:
                raise ValueError(f"{bound} is {json.dumps(value)}; expected an integer from 0 to {MAX_BOUND}")
        if schema.get(f"min{name}", 0) > schema.get(f"max{name}", MAX_BOUND):
            raise ValueError(f"min{name} is above max{name}")
    lengths = schema.keys() & {"minLength", "maxLength"}
    if "pattern" in schema and lengths:
        raise ValueError(f"the keyword {min(lengths)!r} beside 'pattern' is not supported")


def whole_string(pattern) -> str:
    """Return the pattern of a whole string, in a group; refuse one with characters that JSON escapes."""
    if not isinstance(pattern, str):
        raise ValueError(f"pattern is {json.dumps(pattern):.80}; expected a text")
    inner = pattern.removeprefix("^")
    if re.search(r"(?<!\\)(\\\\)*\$\Z", inner):
        inner = inner[:-1]
    if not inner:
        return "(?:)"
    try:
        table, finals = byte_automaton(inner)
    except ValueError as error:
        raise ValueError(f"the pattern {pattern!r:.80}: {error}") from None
    live = distances_to_end(table, finals).keys()
    for byte in (*range(32), *b'"\\'):
        if not live.isdisjoint(table[:, byte].tolist()):
            raise ValueError(
                f"the pattern {pattern!r:.80} allows {json.dumps(chr(byte))}, which JSON escapes; expected one without "
                'quotes, backslashes and control characters, such as [^"\\\\\\x00-\\x1f]* for .*'
            )
    return f"(?:{inner})"


def _types(schema):
    """Return the names of the types as a list; None without a type."""
    names = schema.get("type")
    if names is None and "type" not in schema:
        return None
    names = [names] if isinstance(names, str) else _list("type", names)
    if not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        raise ValueError(f"type is {json.dumps(schema['type']):.80}; expected distinct names of types")
    return names


def _is_of_type(value, names):
    for name in names:
        if name not in TYPES:
            raise ValueError(f"the type {name!r} is not supported")
    kinds = [TYPES[name][0] for name in names]
    return any(isinstance(value, kind) and (kind is bool or not isinstance(value, bool)) for kind in kinds)


def _list(name, value, empty=False):
    if not isinstance(value, list) or not (value or empty):
        raise ValueError(f"{name} is {json.dumps(value):.80}; expected a list" + " of at least one" * (not empty))
    return value


def _dict(name, value):
    if not isinstance(value, dict):
        raise ValueError(f"{name} holds {json.dumps(value):.80}; expected an object")
    return value


def _escaped(name):
    """Return the name of a property as it is written within quotes."""
    if not isinstance(name, str):
        raise ValueError(f"required holds {json.dumps(name):.80}; expected names of properties")
    return json.dumps(name, ensure_ascii=False)[1:-1]
