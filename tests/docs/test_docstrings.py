"""The examples in docstrings print what they say; numbers are compared to the precision that is printed."""

import pytest
from sybil import Sybil
from sybil.document import PythonDocStringDocument
from sybil.evaluators.doctest import NUMBER
from sybil.parsers.doctest import DocTestParser

from tests.processes import ROOT

SOURCES = sorted(path for path in (ROOT / "keras_seq").rglob("*.py") if "    >>> " in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_examples_of_a_file_print_what_they_say(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some save files
    sybil = Sybil([DocTestParser(NUMBER)], document_types={".py": PythonDocStringDocument})
    examples = [*sybil.parse(path)]
    assert examples
    for example in examples:
        example.evaluate()
