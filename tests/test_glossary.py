"""Same name, same meaning: retired words of docs/glossary.md are in no name, and what Keras has too takes the same."""

import ast
import importlib
import inspect
import re

import keras
import pytest

from tests.processes import ROOT

SOURCES = sorted([*ROOT.glob("keras_seq/**/*.py"), *ROOT.glob("experiments/**/*.py"), *ROOT.glob("docs/*.py")])
ALLOWED = {"BrokenExecutor", "BrokenPipeError", "FileNotFoundError", "ModuleNotFoundError"}  # Python's
ALLOWED |= {"lift_fresh_copy", "broken_mask"}  # torch's; breaks the mask on purpose


def retired_words():
    table = (ROOT / "docs/glossary.md").read_text(encoding="utf-8").split("## Retired words")[1]
    cells = re.findall(r"^\| ([a-z, ]+) \|", table, flags=re.MULTILINE)[1:]
    return {word for cell in cells for word in cell.split(", ")}


def names_in(tree):
    """Yield every identifier, and every string that is a key of a dict or a column of a table."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id, node
        elif isinstance(node, ast.Attribute):
            yield node.attr, node
        elif isinstance(node, ast.arg | ast.keyword):
            yield node.arg or "", node
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.alias):
            yield node.asname or "", node
        elif isinstance(node, ast.Dict):
            yield from (
                (key.value, key) for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)
            )
        elif (
            isinstance(node, ast.Subscript)
            and isinstance(node.slice, ast.Constant)
            and isinstance(node.slice.value, str)
        ):
            yield node.slice.value, node


def words_of(name):
    plain = re.sub(r"\(.*?\)", "", name)  # units
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", plain)}


def test_no_retired_word_is_in_a_name():
    retired = retired_words()
    assert len(retired) > 30
    hits = {
        f"{path}:{node.lineno}: {name}"
        for path in SOURCES
        for name, node in names_in(ast.parse(path.read_text(encoding="utf-8")))
        if words_of(name) & retired and name not in ALLOWED
    }
    hits |= {f"{path}: the file's name: {word}" for path in SOURCES for word in words_of(path.stem) & retired}
    assert not hits, sorted(hits)


KERAS = (keras.layers, keras.losses, keras.metrics, keras.optimizers, keras.saving)
NAMES_OF_KERAS = {"path": "filepath"}  # our word, Keras's word


def by_position(function):
    """Return the names of the arguments that may be given by position, in Keras's words."""
    parameters = inspect.signature(function).parameters.values()
    positional = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    return [NAMES_OF_KERAS.get(name, name) for name in positional]


@pytest.mark.parametrize("package", ["layers", "evaluation", "training", "saving"])
def test_what_has_a_name_of_keras_takes_its_arguments_by_position(package):
    module, compared = importlib.import_module(f"keras_seq.{package}"), []
    for name in module.__all__:
        theirs = next((getattr(home, name) for home in KERAS if hasattr(home, name)), None)
        if theirs is not None:
            taken = by_position(getattr(module, name))
            assert taken == by_position(theirs)[: len(taken)], name
            compared.append(name)
    assert compared
