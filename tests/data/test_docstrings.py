import os
import re
import time

import pytest

from keras_seq.data import CorpusError, corpus, docstrings, load_corpus
from keras_seq.data.docstrings import paragraphs, standard_library_docstrings

SOURCE = '''
"""Does this.

Both have this one.

    Indented.
"""
def f():
    """Both have this one.   \n\t\n    \n    Of f."""
    if f:
        class C:
            "Of C."
            async def g(self):
                "Of g."
    f = lambda: "no docstring"
    "no docstring"
'''


@pytest.fixture
def library(tmp_path):
    """A library of a few modules, some of which are left out."""
    folder = tmp_path / "library"
    for path, source in {
        "ast.py": SOURCE,
        "json/__init__.py": '"""Both have this one."""',
        "json/tool.py": '"Of the tool: ä."',
        "json/tests/test_tool.py": '"A test."',
        "os.py": "def broken(",
        "tkinter/__init__.py": '"Left out."',
        "site-packages/json.py": '"Not of the library."',
        "test/ast.py": '"A test."',
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(source, encoding="utf-8")
    return folder


TEXT = "Does this.\n\nBoth have this one.\n\n    Indented.\n\nOf f.\n\nOf C.\n\nOf g.\n\nOf the tool: ä."


def test_each_paragraph_once_in_the_order_of_the_sources(library, tmp_path):
    assert standard_library_docstrings(tmp_path / "cache", library).decode() == TEXT


def test_a_paragraph_that_repeats_more_than_a_fifth_of_its_four_word_runs_is_left_out():
    texts = {
        "one two three four five six seven": True,
        "one two three four five six eight": False,  # 3 of 4 runs
        "one two three": True,  # too short for a run
        "a b c d e f g h": True,
        "One Two three four A1 B1 C1 D1": True,  # 1 of 5
        "p q r s one two three four five": False,  # 2 of 6
        "p q r s t u": True,  # those of a text that was left out do not count
        "five, six: seven? eight!": True,
    }
    assert list(docstrings.without_repetitions([*texts, *texts])) == [text for text in texts if texts[text]]


def test_a_text_that_another_rule_cached_is_not_read(library, tmp_path, monkeypatch):
    standard_library_docstrings(tmp_path, library)
    before = {*tmp_path.glob("*.txt")}
    monkeypatch.setattr(docstrings, "MAX_REPEATED", 0.5)
    standard_library_docstrings(tmp_path, library)
    assert len({*tmp_path.glob("*.txt")} - before) == 1


def test_it_is_read_from_the_cache_while_that_is_whole_and_the_sources_are_the_same(library, tmp_path, monkeypatch):
    cache = tmp_path / "a/cache"
    text = standard_library_docstrings(cache, library)
    (kept,) = cache.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(docstrings, "paragraphs", lambda path: pytest.fail("parsed"))
        assert standard_library_docstrings(cache, library) == text
    whole = kept.read_bytes()
    for damaged in (b"", whole[:-3], whole[:-1] + b"!", b"\0" * len(whole), whole.replace(b"\n", b" ")):
        kept.write_bytes(damaged)
        assert standard_library_docstrings(cache, library) == text
        assert kept.read_bytes() == whole
    (library / "json/tool.py").write_text('"Another tool."')
    assert standard_library_docstrings(cache, library).endswith(b"Another tool.")
    assert len(list(cache.iterdir())) == 2


def test_a_cache_that_cannot_be_written_is_none(library, tmp_path):
    (tmp_path / "file").write_text("")
    assert standard_library_docstrings(tmp_path / "file" / "cache", library).decode() == TEXT


def test_nothing_of_a_file_that_is_no_python(tmp_path):
    for content in (b"def broken(", b"\0", b"\xff"):
        (tmp_path / "x.py").write_bytes(content)
        assert list(paragraphs(tmp_path / "x.py")) == []


def test_the_default_corpus(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    loaded = load_corpus()
    assert loaded.name == "docstrings"
    assert 900_000 < len(loaded.text) < 1_600_000
    words = re.findall(r"\w+", loaded.text)
    assert len(set(zip(*(words[start:] for start in range(4)), strict=False))) > 0.95 * len(words)
    assert loaded.text.count(" the ") > 6_000
    assert len(set(loaded.text)) < 200
    assert os.listdir(tmp_path / "datasets")[0].startswith("docstrings-")
    before = time.process_time()
    assert load_corpus("docstrings") == loaded
    assert time.process_time() - before < 2


def test_a_python_without_the_sources_of_its_library(monkeypatch):
    monkeypatch.setattr(corpus, "standard_library_docstrings", lambda cache: b"")
    with pytest.raises(CorpusError, match="sources of Python's standard library"):
        load_corpus()
