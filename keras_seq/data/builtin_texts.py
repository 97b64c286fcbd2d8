"""The texts that need no file: `docstrings` and `pydoc`, which every CPython contains, and tiny Shakespeare.

`docstrings` has each paragraph of the standard library's docstrings once, in the order of the modules. A paragraph is
left out if the text before it has more than a fifth of its word 4-grams: copies would favor baselines that look up the
past. Modules that Linux distributions package separately (Tk, IDLE) and those that later versions removed are left out,
so a Python version has the same text on nearly every system. It is cached, as parsing the sources takes seconds:

    docstrings-3.11.7-5ad09f3c.txt        [64 digits: the sha256 of the rest] [newline] [the text in UTF-8]

`shakespeare` is downloaded over https only, also after redirects; its size and sha256 are known in advance.
"""

import ast
import contextlib
import hashlib
import http.client
import os
import platform
import re
import sys
import sysconfig
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from keras_seq.files import write_bytes

SHAKESPEARE_URL = "https://storage.googleapis.com/download.tensorflow.org/data/shakespeare.txt"
SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
SHAKESPEARE_BYTES = 1_115_394
TIMEOUT_SECONDS, DEADLINE_SECONDS = 30, 600  # per response, and in total
CHUNK_BYTES = 1 << 16
EXCLUDED_MODULES = {"distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "tkinter", "turtle", "turtledemo"}
TEST_FOLDERS = {"test", "tests", "idle_test"}
DOCUMENTED_NODES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
GRAM_WORDS, MAX_REPEATED = 4, 0.2  # words of an n-gram; the largest fraction of a paragraph's that may be seen before
NESTED_FIELDS = ("body", "handlers", "orelse", "finalbody")


class CorpusError(ValueError):
    """A text cannot be read or used; the message is one sentence that says what to do."""


class DownloadError(ValueError):
    """A download failed, or gave other bytes than expected."""


def _docstrings_corpus() -> bytes:
    if text := standard_library_docstrings(_cache()):
        return text
    raise CorpusError(
        "The corpus docstrings needs the sources of Python's standard library: install them, or name a text."
    )


def _pydoc() -> bytes:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise CorpusError(
            "The corpus pydoc needs pydoc_data: install the whole standard library, or name a text."
        ) from None
    return "\n".join(topics[name] for name in sorted(topics)).encode()


def _shakespeare() -> bytes:
    folder = os.environ.get("KERAS_SEQ_DATA")
    if folder:
        path = os.path.join(folder, "shakespeare.txt")
        if not os.path.isfile(path):
            raise CorpusError(f"KERAS_SEQ_DATA={folder!r} lacks shakespeare.txt: put it there, or unset the variable.")
        return _checked(path, "put the right file there")
    path = str(_cache() / "shakespeare.txt")
    if os.path.isfile(path):
        return _checked(path, "delete it to download it again")
    try:
        return download(SHAKESPEARE_URL, path, SHAKESPEARE_SHA256, SHAKESPEARE_BYTES)
    except (DownloadError, OSError) as error:
        raise CorpusError(
            f"Downloading {SHAKESPEARE_URL} failed ({error}); without a network, use docstrings or the path of a text "
            "file, or set KERAS_SEQ_DATA to a folder that contains shakespeare.txt."
        ) from error


def _cache() -> Path:
    """Return Keras's folder of downloaded files."""
    return Path(os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")) / "datasets"


def _checked(path: str, fix: str) -> bytes:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise CorpusError(f"{path!r} cannot be read ({error.strerror}): {fix}.") from None
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 != SHAKESPEARE_SHA256:
        raise CorpusError(f"{path!r} has the sha256 {sha256}; expected {SHAKESPEARE_SHA256}: {fix}.")
    return data


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


class HttpsOnly(urllib.request.HTTPRedirectHandler):
    """Follow redirects to https URLs only."""

    def redirect_request(self, request, file, code, message, headers, new_url):
        """Return the request for a redirect; raise a DownloadError for a URL that is not https."""
        _check_https(new_url)
        return super().redirect_request(request, file, code, message, headers, new_url)


def download(
    url: str,
    path: str | os.PathLike[str],
    sha256: str,
    size: int,
    opener: urllib.request.OpenerDirector | None = None,
) -> bytes:
    """Download a file and save it atomically, after checking its size and digest; `opener` is for tests."""
    _check_https(url)
    opener = opener or urllib.request.build_opener(HttpsOnly)
    deadline = time.monotonic() + DEADLINE_SECONDS
    data = bytearray()
    try:
        with contextlib.closing(opener.open(url, timeout=TIMEOUT_SECONDS)) as response:
            while len(data) <= size and (chunk := response.read1(CHUNK_BYTES)):
                data += chunk
                if time.monotonic() > deadline:
                    raise DownloadError(f"{url} took longer than {DEADLINE_SECONDS} seconds")
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadError(f"{url} could not be read ({reason})") from error
    if len(data) != size:
        comparison = "more than" if len(data) > size else "only"
        raise DownloadError(f"{url} has {comparison} {min(size, len(data))} bytes; expected {size}")
    actual_sha256 = hashlib.sha256(data).hexdigest()
    if actual_sha256 != sha256:
        raise DownloadError(f"{url} has the sha256 {actual_sha256}; expected {sha256}")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, data)
    return bytes(data)


def _check_https(url):
    if not url.lower().startswith("https://"):
        raise DownloadError(f"{url} is not https")


BUILTIN_TEXTS = {"docstrings": _docstrings_corpus, "pydoc": _pydoc, "shakespeare": _shakespeare}
