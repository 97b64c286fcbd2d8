"""A name or a path to a text, its checksum and its split.

    corpus = load_corpus("docstrings" | "pydoc" | "shakespeare" | path)
    train, validation = corpus.split(0.9)            the first 90 % of the characters, and the rest

`docstrings` and `pydoc` are English that every CPython carries with it, so that everything runs without a network.
`shakespeare` is the million characters of char-rnn (Karpathy, 2015). The split comes before anything is learned from
the text.
"""

import hashlib
import os
import stat
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path

from keras_seq.data.docstrings import standard_library_docstrings
from keras_seq.data.download import DownloadError, download

SHAKESPEARE_URL = "https://storage.googleapis.com/download.tensorflow.org/data/shakespeare.txt"
SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
SHAKESPEARE_BYTES = 1_115_394


class CorpusError(ValueError):
    """A text that cannot be had or used; the message is one sentence that says what to do."""


@dataclass(frozen=True)
class Corpus:
    """A text and where it came from.

    Attributes:
        name: The name or path that was asked for.
        text: The whole text.
        sha256: Of the bytes of the source, before line ends or anything else were changed.
    """

    name: str
    text: str = field(repr=False)
    sha256: str

    def split(self, train_fraction: float = 0.9, min_length: int = 2) -> tuple[str, str]:
        """Cut the text in two by characters, the training side first.

        Args:
            train_fraction: The training side's share, above 0 and below 1. It is rounded down to whole characters.
            window: The fewest characters that a side must have: `T + 1` where `T` characters predict the next.

        Returns:
            `(train, validation)`, which put together are the text.

        Raises:
            CorpusError: A side would be shorter than `window`, or an argument is out of its range.

        >>> Corpus("digits", "0123456789", sha256="").split(0.8)
        ('01234567', '89')
        """
        if not (isinstance(train_fraction, Real) and 0 < train_fraction < 1):
            raise CorpusError(f"train_fraction must lie between 0 and 1, unlike {train_fraction!r}; 0.9 is usual.")
        if isinstance(min_length, bool) or not isinstance(min_length, int) or min_length < 1:
            raise CorpusError(
                f"window must be a whole number of at least 1, the characters of one, not {min_length!r}."
            )
        middle = int(len(self.text) * train_fraction)
        for side, length in (("training", middle), ("validation", len(self.text) - middle)):
            if length < min_length:
                raise CorpusError(
                    f"The corpus {self.name!r} is too short: its {side} side has {length} of the {len(self.text)} "
                    f"characters, fewer than the {min_length} of one window; give a longer text or a smaller context."
                )
        return self.text[:middle], self.text[middle:]


def load_corpus(name_or_path: str | os.PathLike[str] = "docstrings", clean: str | None = None) -> Corpus:
    r"""Read a text whole.

    Args:
        name_or_path: `"docstrings"`, those of the running Python's standard library, each paragraph once (1.3 million
            characters, kept in Keras's cache); `"pydoc"`, its help topics (half a million, which repeat themselves;
            both texts differ from one Python version to the next); `"shakespeare"`, from the folder named by the
            environment variable `KERAS_SEQ_DATA`, else from Keras's cache, else downloaded into that cache; or the
            path of a UTF-8 file. A file that bears one of these names is reached as `./pydoc` or as a `Path`.
        clean: `None`, or `"squeeze"` to strip all spaces and newlines, the clean-up of 2017.

    Returns:
        A `Corpus`. In its text `\r\n` has become `\n`; nothing else is changed. A byte order mark stays too: it is the
        character U+FEFF of the file.

    Raises:
        CorpusError: The text cannot be had, is empty, is not UTF-8, or is not the one that its checksum promises.

    >>> load_corpus("docstrings").text.count("yield") > 10
    True
    """
    if clean not in (None, "squeeze"):
        raise CorpusError(f"clean must be None or 'squeeze', not {clean!r}.")
    name = os.fspath(name_or_path) if isinstance(name_or_path, os.PathLike) else name_or_path
    if not isinstance(name, str) or not name:
        raise CorpusError(f"A corpus is {_CORPUS_HELP}, not {name_or_path!r}.")
    read = _BUILTIN_CORPORA.get(name) if name is name_or_path else None
    text, sha256 = _decode(name, read() if read else _read(name))
    text = text.replace("\r\n", "\n")
    if clean == "squeeze":
        text = text.replace(" ", "").replace("\n", "")
    if not text:
        raise CorpusError(
            f"The corpus {name!r} is empty{' once squeezed' if clean else ''}: give a file with text in it."
        )
    return Corpus(name, text, sha256)


def _decode(name: str, data: bytes) -> tuple[str, str]:
    try:
        return data.decode("utf-8"), hashlib.sha256(data).hexdigest()
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"The corpus {name!r} is not UTF-8: the byte at offset {error.start} is 0x{data[error.start]:02x} "
            f"({error.reason}); convert the file to UTF-8."
        ) from None


def _read(path: str) -> bytes:
    try:
        # A pipe or a device may never end, so it is not even opened.
        data = Path(path).read_bytes() if stat.S_ISREG(os.stat(path).st_mode) else None
    except FileNotFoundError:
        raise CorpusError(f"There is no file {path!r}: a corpus is {_CORPUS_HELP}.") from None
    except PermissionError:
        raise CorpusError(f"There is no permission to read {path!r}: change its rights or name another.") from None
    except OSError as error:
        raise CorpusError(f"The corpus {path!r} cannot be read ({error.strerror}): name a UTF-8 text file.") from None
    except ValueError as error:
        raise CorpusError(f"{path!r} cannot be a path ({error}): name a UTF-8 text file.") from None
    if data is None:
        kind = "a folder" if os.path.isdir(path) else "no regular file"
        raise CorpusError(f"The corpus {path!r} is {kind}: name a UTF-8 text file.")
    return data


def _docstrings() -> bytes:
    if text := standard_library_docstrings(_cache()):
        return text
    raise CorpusError(
        "This Python came without the sources of its standard library, the text of the corpus docstrings: install "
        "them, or name a text file."
    )


def _pydoc() -> bytes:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise CorpusError(
            "This Python came without pydoc_data.topics, the text of the corpus pydoc: install the whole standard "
            "library, or name a text file."
        ) from None
    return "\n".join(topics[name] for name in sorted(topics)).encode()


def _shakespeare() -> bytes:
    folder = os.environ.get("KERAS_SEQ_DATA")
    if folder:
        path = os.path.join(folder, "shakespeare.txt")
        if not os.path.isfile(path):
            raise CorpusError(
                f"KERAS_SEQ_DATA is {folder!r}, but no shakespeare.txt is in it: put the file there, or unset the "
                "variable to have it downloaded."
            )
        return _checked(path, "put the right file there")
    path = str(_cache() / "shakespeare.txt")
    return _checked(path, "delete it to have it downloaded") if os.path.isfile(path) else _downloaded(path)


def _cache() -> Path:
    """Keras's folder of downloaded texts."""
    return Path(os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")) / "datasets"


def _downloaded(path: str) -> bytes:
    try:
        return download(SHAKESPEARE_URL, path, SHAKESPEARE_SHA256, SHAKESPEARE_BYTES)
    except (DownloadError, OSError) as error:
        raise CorpusError(
            f"Downloading {SHAKESPEARE_URL} failed ({error}); without a network, take docstrings, the path of a text "
            "file, or set KERAS_SEQ_DATA to a folder that has shakespeare.txt."
        ) from error


def _checked(path: str, remedy: str) -> bytes:
    data = _read(path)
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 != SHAKESPEARE_SHA256:
        raise CorpusError(f"{path!r} has the sha256 {sha256}, not Shakespeare's {SHAKESPEARE_SHA256}: {remedy}.")
    return data


_BUILTIN_CORPORA = {"docstrings": _docstrings, "pydoc": _pydoc, "shakespeare": _shakespeare}
_CORPUS_HELP = f"{', '.join(_BUILTIN_CORPORA)} or the path of a UTF-8 text file"
