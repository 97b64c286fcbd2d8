"""Collect the docstrings of Python's standard library as one text: each paragraph once, in the order of the modules.

Many paragraphs repeat another one with a few words changed. A paragraph is left out if the text before it has more than
a fifth of its word 4-grams: copies would favor baselines that look up the past, such as compressors and n-grams.

The text has about 1.1 million characters of English about programs. Modules that Linux distributions package
separately (Tk, IDLE) and modules that later versions removed (distutils, lib2to3) are left out, so that a Python
version has the same text on nearly every system. Parsing the sources takes seconds, so the text is cached, in a file
whose name contains the version and a digest of the rule and of the sources' names and sizes:

    docstrings-3.11.7-5ad09f3c.txt        [64 digits: the sha256 of the rest] [newline] [the text in UTF-8]
"""

import ast
import contextlib
import hashlib
import platform
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from keras_seq.files import write_bytes

EXCLUDED_MODULES = {"distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "tkinter", "turtle", "turtledemo"}
TEST_FOLDERS = {"test", "tests", "idle_test"}
DOCUMENTED_NODES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
GRAM_WORDS, MAX_REPEATED = 4, 0.2  # words of an n-gram; the largest fraction of a paragraph's that may be seen before
NESTED_FIELDS = ("body", "handlers", "orelse", "finalbody")


def standard_library_docstrings(cache: Path, library: Path | None = None) -> bytes:
    """Return the docstrings of the standard library as UTF-8; empty if its sources are not installed."""
    library = library or Path(sysconfig.get_path("stdlib"))
    sources = list(_sources(library))
    rule = f"{GRAM_WORDS} {MAX_REPEATED}\n"
    sizes = "\n".join(f"{path.relative_to(library).as_posix()} {path.stat().st_size}" for path in sources)
    sources_digest = hashlib.sha256((rule + sizes).encode()).hexdigest()[:8]
    cached = cache / f"docstrings-{platform.python_version()}-{sources_digest}.txt"
    with contextlib.suppress(OSError):
        checksum, _, text = cached.read_bytes().partition(b"\n")
        if hashlib.sha256(text).hexdigest().encode() == checksum:
            return text
    text = "\n\n".join(without_repetitions(paragraph for path in sources for paragraph in paragraphs(path))).encode()
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        write_bytes(cached, hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
    return text


def without_repetitions(texts: Iterable[str]) -> Iterator[str]:
    """Yield each text once, unless those before it have more than `MAX_REPEATED` of its word n-grams."""
    earlier = set()
    for text in dict.fromkeys(texts):
        words = re.findall(r"\w+", text.lower())
        grams = [*zip(*(words[start:] for start in range(GRAM_WORDS)), strict=False)]
        if sum(gram in earlier for gram in grams) <= MAX_REPEATED * len(grams):
            earlier.update(grams)
            yield text


def _sources(library) -> Iterator[Path]:
    for name in sorted(sys.stdlib_module_names - EXCLUDED_MODULES):
        package_files = sorted((library / name).rglob("*.py"))
        for path in [library / f"{name}.py", *package_files]:
            if path.is_file() and not TEST_FOLDERS & set(path.relative_to(library).parts):
                yield path


def paragraphs(path: Path) -> Iterator[str]:
    """Yield the paragraphs of all docstrings of a source file in order; none if the file cannot be parsed."""
    try:
        with warnings.catch_warnings(action="ignore"):  # syntax warnings of the parsed sources
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    for docstring in _docstrings(tree):
        yield from (text for part in re.split(r"\n\s*\n", docstring) if (text := part.strip("\n").rstrip()))


def _docstrings(node) -> Iterator[str]:
    if isinstance(node, DOCUMENTED_NODES) and (docstring := ast.get_docstring(node)):
        yield docstring
    for field in NESTED_FIELDS:
        children = getattr(node, field, ())
        for child in children if isinstance(children, list) else ():  # the body of a lambda is no list
            yield from _docstrings(child)
