"""The docstrings of Python's standard library as one text: each paragraph once, in the order of the modules.

About 1.3 million characters of English about programs. What Linux distributions leave out or ship by itself (Tk, IDLE)
and what later versions dropped (distutils, lib2to3) is not read, so that one version has one text nearly everywhere.
The sources take seconds to parse, so the text is kept in a folder, under a name with the version and a digest of the
sources' names and sizes:

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
from collections.abc import Iterator
from pathlib import Path

from keras_seq.tokenizers.tokenizer_io import write_bytes

LEFT_OUT = {"distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "tkinter", "turtle", "turtledemo"}
TESTS = {"test", "tests", "idle_test"}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
INNER = ("body", "handlers", "orelse", "finalbody")


def standard_library_docstrings(cache: Path, library: Path | None = None) -> bytes:
    """The text in UTF-8; empty where this Python came without the sources of its library.

    Args:
        cache: The folder that keeps it; made where there is none. Where it cannot be written, nothing is kept.
        library: The folder of the library's sources; by default that of the running Python.
    """
    library = library or Path(sysconfig.get_path("stdlib"))
    sources = list(_sources(library))
    sizes = "\n".join(f"{path.relative_to(library).as_posix()} {path.stat().st_size}" for path in sources)
    made_of = hashlib.sha256(sizes.encode()).hexdigest()[:8]
    kept = cache / f"docstrings-{platform.python_version()}-{made_of}.txt"
    with contextlib.suppress(OSError):
        seal, _, text = kept.read_bytes().partition(b"\n")
        if hashlib.sha256(text).hexdigest().encode() == seal:
            return text
    text = "\n\n".join(dict.fromkeys(paragraph for path in sources for paragraph in paragraphs(path))).encode()
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        write_bytes(kept, hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
    return text


def _sources(library) -> Iterator[Path]:
    for name in sorted(sys.stdlib_module_names - LEFT_OUT):
        inside = sorted((library / name).rglob("*.py"))
        for path in [library / f"{name}.py", *inside]:
            if path.is_file() and not TESTS & set(path.relative_to(library).parts):
                yield path


def paragraphs(path: Path) -> Iterator[str]:
    """The paragraphs of all docstrings of a source, in its order; none of a file that is no Python."""
    try:
        with warnings.catch_warnings(action="ignore"):  # what the parser thinks of others' sources
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    for docstring in _docstrings(tree):
        yield from (found for part in re.split(r"\n\s*\n", docstring) if (found := part.strip("\n").rstrip()))


def _docstrings(node) -> Iterator[str]:
    if isinstance(node, DOCUMENTED) and (docstring := ast.get_docstring(node)):
        yield docstring
    for field in INNER:
        inner = getattr(node, field, ())
        for child in inner if isinstance(inner, list) else ():  # the body of a lambda is no list
            yield from _docstrings(child)
