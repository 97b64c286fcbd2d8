"""The texts that need no file: `docstrings`, `pydoc` and `source`, which CPython contains, and tiny Shakespeare.

    docstrings     each paragraph of the standard library's docstrings once, in the order of the modules
    source         its files, tests included, whole and in a pseudo-random order: the last tenth is a sample of all
    shakespeare    downloaded over https only, also after redirects; its size and sha256 are known in advance

The first two are cached, since they take seconds: docstrings-3.11.7-5ad09f3c.txt has the sha256 of the text, a line
break, and the text. Copies would favor baselines that look up the past. So a paragraph is left out if the text before
it has more than a fifth of its word 4-grams, and a source file if those before it have more than a twentieth of its
passages, the 64 characters from the start of a line on. The license of both is Python's.
"""

import ast
import contextlib
import functools
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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from keras_seq.backends import keras_home
from keras_seq.files import write_bytes

SHAKESPEARE_URL = "https://storage.googleapis.com/download.tensorflow.org/data/shakespeare.txt"
SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
SHAKESPEARE_BYTES = 1_115_394
TIMEOUT_SECONDS, DEADLINE_SECONDS = 30, 600  # per response, and in total
CHUNK_BYTES = 1 << 16
LIBRARY = Path(sysconfig.get_path("stdlib"))
# What Linux distributions package separately and what later versions removed: a Python version has one text everywhere.
EXCLUDED_MODULES = {"distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "tkinter", "turtle", "turtledemo"}
TEST_FOLDERS = {"test", "tests", "idle_test"}
TABLES = {"encodings", "pydoc_data"}  # mostly generated
DOCUMENTED_NODES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
GRAM_WORDS, MAX_REPEATED = 4, 0.2  # words of an n-gram; the largest fraction of a paragraph's that may be seen before
PASSAGE, MAX_COPIED = 64, 0.05  # the same for the characters from the start of a line of a source on
NESTED_FIELDS = ("body", "handlers", "orelse", "finalbody")


class CorpusError(ValueError):
    """A text cannot be read or used; the message is one sentence that says what to do."""


class DownloadError(ValueError):
    """A download failed, or gave other bytes than expected."""


def _of_sources(name: str) -> bytes:
    """Return `docstrings` or `source`."""
    text = {"docstrings": standard_library_docstrings, "source": standard_library_source}[name](_cache())
    if not text:
        raise CorpusError(f"The corpus {name} needs the sources of Python's standard library; install them.")
    return text


def _pydoc() -> bytes:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise CorpusError("The corpus pydoc needs pydoc_data: install the whole standard library.") from None
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
    return keras_home() / "datasets"


def _checked(path: str, fix: str) -> bytes:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise CorpusError(f"{path!r} cannot be read ({error.strerror}): {fix}.") from None
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 != SHAKESPEARE_SHA256:
        raise CorpusError(f"{path!r} has the sha256 {sha256}; expected {SHAKESPEARE_SHA256}: {fix}.")
    return data


def standard_library_docstrings(cache: Path, library: Path = LIBRARY) -> bytes:
    """Return the docstrings of the standard library as UTF-8; empty if its sources are not installed."""
    modules = sys.stdlib_module_names - EXCLUDED_MODULES
    sources = [path for path in _sources(library, modules) if not TEST_FOLDERS & {*path.relative_to(library).parts}]
    texts = without_repetitions(paragraph for path in sources for paragraph in paragraphs(path))
    return _cached(cache, "docstrings", f"{GRAM_WORDS} {MAX_REPEATED}", library, sources, texts)


def standard_library_source(cache: Path, library: Path = LIBRARY) -> bytes:
    """Return the source files of the standard library in ASCII; empty if they are not installed."""

    def place(path):
        return hashlib.sha256(path.relative_to(library).as_posix().encode()).digest()

    sources = sorted(_sources(library, (sys.stdlib_module_names | {"test"}) - TABLES), key=place)
    texts = without_repetitions(filter(None, map(ascii_source, sources)), passages, MAX_COPIED)
    return _cached(cache, "source", f"{PASSAGE} {MAX_COPIED}", library, sources, texts)


def _cached(cache, name, rule, library, sources, texts) -> bytes:
    """Return the texts that are made of source files by a rule, joined; from the cache if they are there."""
    sizes = "\n".join(f"{path.relative_to(library).as_posix()} {path.stat().st_size}" for path in sources)
    sources_digest = hashlib.sha256(f"{rule}\n{sizes}".encode()).hexdigest()[:8]
    cached = cache / f"{name}-{platform.python_version()}-{sources_digest}.txt"
    with contextlib.suppress(OSError):
        checksum, _, text = cached.read_bytes().partition(b"\n")
        if hashlib.sha256(text).hexdigest().encode() == checksum:
            return text
    text = "\n\n".join(texts).encode()
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        write_bytes(cached, hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
    return text


def word_grams(text: str) -> list:
    """Return the n-grams of the words of a text."""
    words = re.findall(r"\w+", text.lower())
    return [*zip(*(words[start:] for start in range(GRAM_WORDS)), strict=False)]


def passages(text: str) -> list:
    """Return the 64 characters from the start of each line on, also beyond its end."""
    return [text[line.start() : line.start() + PASSAGE] for line in re.finditer("^.", text, re.MULTILINE)]


def without_repetitions(
    texts: Iterable[str], parts: Callable[[str], list] = word_grams, max_repeated: float = MAX_REPEATED
) -> Iterator[str]:
    """Yield each text once, unless those before it have more than `max_repeated` of its parts."""
    earlier = set()
    for text in dict.fromkeys(texts):
        own = parts(text)
        if sum(part in earlier for part in own) <= max_repeated * len(own):
            earlier.update(own)
            yield text


def _sources(library, modules) -> Iterator[Path]:
    for name in sorted(modules):
        package_files = sorted((library / name).rglob("*.py"))
        yield from filter(Path.is_file, [library / f"{name}.py", *package_files])


def ascii_source(path: Path) -> str:
    """Return a source file in ASCII, escapes for other characters: a vocabulary below 100; "" if it is not UTF-8."""
    try:
        return path.read_text("utf-8").encode("ascii", "backslashreplace").decode().strip("\n")
    except UnicodeDecodeError:
        return ""


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
    url: str, path: str | os.PathLike[str], sha256: str, size: int, opener: urllib.request.OpenerDirector | None = None
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
    with contextlib.suppress(OSError):  # of a folder that cannot be written
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data)
    return bytes(data)


def _check_https(url):
    if not url.lower().startswith("https://"):
        raise DownloadError(f"{url} is not https")


BUILTIN_TEXTS = {
    "docstrings": functools.partial(_of_sources, "docstrings"),
    "pydoc": _pydoc,
    "source": functools.partial(_of_sources, "source"),
    "shakespeare": _shakespeare,
}
