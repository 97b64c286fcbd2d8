"""Load a text by name or path, or several as one, with a checksum, and split it into training and validation.

    corpus = load_corpus("docstrings" | "pydoc" | "source" | "shakespeare" | path)
    corpus = load_corpus(["a.txt", "texts/", "more/*.txt"])      files, folders and patterns, joined by blank lines
    train, validation = corpus.split(0.9)                        the first 90 % of the characters, and the rest
    verbatim_overlap(train, validation)                          the share of the validation text that is copied

Split a text before training anything on it, tokenizers included.
"""

import codecs
import functools
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path

import numpy as np

from keras_seq import checks
from keras_seq.data.builtin_texts import BUILTIN_TEXTS, CorpusError
from keras_seq.data.documents import BYTE_ORDER_MARK, named_files
from keras_seq.data.token_files import TokenFiles
from keras_seq.data.token_shards import TOKENIZER_NAME, TokenFilesError, is_prepared
from keras_seq.files import check_regular
from keras_seq.tokenizers import TokenizerError, load_tokenizer
from keras_seq.tokenizers.base import check_text
from keras_seq.tokenizers.registry import DOCUMENT_CHARACTER, decode_documents

MAX_DECODED_TOKENS = 1 << 28
BASE = 0x9E3779B97F4A7C15  # odd, with well-mixed bits
CHUNK_CHARS = 1 << 20  # characters hashed at once
MAX_VALIDATION_CHARS = 1 << 21  # further characters of the validation text are ignored
CORPUS_HELP = f"{', '.join(BUILTIN_TEXTS)}, or the path of a UTF-8 text file, of a folder, or a pattern like *.txt"


@dataclass(frozen=True)
class Corpus:
    """A text and its source.

    Args:
        name: The name or path that was passed to `load_corpus`; for several files, the first and how many more.
        text: The whole text.
        sha256: Digest of the bytes of the source, joined if it is several files, before line ends or whitespace were
            changed.
    """

    name: str
    text: str = field(repr=False)
    sha256: str

    def split(self, train_fraction: float = 0.9, min_length: int = 2) -> tuple[str, str]:
        """Split the text into training and validation characters.

        Args:
            train_fraction: Fraction of the text to train on, above 0 and below 1; it is the first part of the text,
                rounded down to whole characters.
            min_length: Minimum number of characters of each part: `T + 1` for windows of `T` predictions.

        Returns:
            `(train, validation)`, whose concatenation is the text.

        Raises:
            CorpusError: A part would be shorter than `min_length`, or `train_fraction` is out of its range.
            ValueError: `min_length` is not an integer of at least 1.

        >>> Corpus("digits", "0123456789", sha256="").split(0.8)
        ('01234567', '89')
        """
        if not (isinstance(train_fraction, Real) and 0 < train_fraction < 1):
            raise CorpusError(f"train_fraction={train_fraction!r}; expected a number between 0 and 1, such as 0.9.")
        checks.integer("min_length", min_length, min_value=1)
        middle = int(len(self.text) * train_fraction)
        for part, length in (("training", middle), ("validation", len(self.text) - middle)):
            if length < min_length:
                counts = f"{length} of {len(self.text)} characters, fewer than the {min_length} of a window"
                raise CorpusError(f"The corpus {self.name!r} is too short: its {part} part has {counts}.")
        return self.text[:middle], self.text[middle:]


def load_corpus(
    name_or_path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = "docstrings",
    strip_whitespace: bool = False,
) -> Corpus:
    r"""Load a whole text by name or path, or several joined into one.

    Files are joined in the given order, those of a folder or a pattern in the order of their names. A blank line
    separates them, so that the last paragraph of one does not run into the next. Each file is read once.

    Args:
        name_or_path: `"docstrings"`, the docstrings of the running Python's standard library without repetitions (1.1
            million characters, kept in Keras's cache); `"pydoc"`, its help topics (half a million characters, with
            repetitions); `"source"`, its source code without near-copies (25 million characters, 8 million where the
            library's tests are not installed, kept in the same cache; these three differ between Python versions);
            `"shakespeare"`, from the folder in the environment variable `KERAS_SEQ_DATA`, else from Keras's cache, else
            downloaded into that cache; the path of a UTF-8 file; a folder, for all files below it whose names end in
            `.txt` and, like their folders, do not begin with a period; a folder of token ids (`keras-seq prepare`),
            whose documents are decoded; a pattern such as `"texts/*.txt"`; or several of these. To read a file called
            `pydoc`, pass `./pydoc` or a `Path`.
        strip_whitespace: Whether to remove all spaces and newlines, as some char-RNN scripts did.

    Returns:
        A `Corpus`. In the text of a file, `\r\n` is replaced by `\n`, and a byte order mark at its beginning left out;
        nothing else is changed. A folder of token ids was made from such texts.

    Raises:
        CorpusError: The text cannot be read, is empty, is not UTF-8, or does not have the expected checksum.
        ValueError: `strip_whitespace` is not a bool.

    >>> load_corpus("docstrings").text.count("yield") > 10
    True
    """
    checks.boolean("strip_whitespace", strip_whitespace)
    is_one = isinstance(name_or_path, str) or not isinstance(name_or_path, Sequence)
    sources = {}
    for item in [name_or_path] if is_one else name_or_path:
        sources |= _sources(item)
    if not sources:
        raise CorpusError(f"corpus={name_or_path!r}; expected {CORPUS_HELP}.")
    first, *others = (name for name, _ in sources.values())
    name = f"{first} and {len(others)} more" if others else first
    text, sha256 = _join_texts(sources.values())
    if strip_whitespace:
        text = text.replace(" ", "").replace("\n", "")
    if not text:
        stripped = " without its whitespace" if strip_whitespace else ""
        raise CorpusError(f"The corpus {name!r} is empty{stripped}: give a file with text in it.")
    return Corpus(name, text, sha256)


def _sources(name) -> dict[str, tuple[str, Callable[[], bytes | str]]]:
    """Return the texts of a name, path, folder or pattern: by absolute path, the name and what reads it."""
    if isinstance(name, str) and name in BUILTIN_TEXTS:
        return {name: (name, BUILTIN_TEXTS[name])}
    path = os.fspath(name) if isinstance(name, os.PathLike) else name
    if not isinstance(path, str) or not path:
        raise CorpusError(f"corpus={name!r}; expected {CORPUS_HELP}.")
    if is_prepared(path):
        return {os.path.abspath(path): (path, functools.partial(_decoded, path))}
    files = named_files(path, lambda file: file.endswith(".txt"))
    if not files:
        raise CorpusError(f"corpus={path!r}; no text file is there: a corpus is {CORPUS_HELP}.")
    return {os.path.abspath(file): (file, functools.partial(_read, file)) for file in files}


def _join_texts(sources: Iterable[tuple[str, Callable[[], bytes | str]]]) -> tuple[str, str]:
    """Return the texts with a blank line between two, and the digest of their bytes."""
    texts, digest = [], hashlib.sha256()
    for name, read in sources:
        if texts:
            texts.append("\n" if texts[-1].endswith("\n") else "\n\n")
            digest.update(texts[-1].encode())
        data = read()
        digest.update(data.encode() if isinstance(data, str) else data)
        texts.append(data if isinstance(data, str) else _decode(name, data))
    return "".join(texts), digest.hexdigest()


def _decode(name: str, data: bytes) -> str:
    r"""Return a file's text without a byte order mark, and with `\n` for `\r\n`; `documents.py` does the same."""
    try:
        return data.decode("utf-8").removeprefix(BYTE_ORDER_MARK).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        is_utf_16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        raise CorpusError(
            f"The corpus {name!r} is {'UTF-16, ' if is_utf_16 else ''}not UTF-8: the byte at offset {error.start} is "
            f"0x{data[error.start]:02x} ({error.reason}); convert the file to UTF-8."
        ) from None


def _read(path: str) -> bytes:
    try:
        is_pipe_of_shell = path.startswith("/dev/fd/") and stat.S_ISFIFO(os.stat(path).st_mode)
        if not is_pipe_of_shell:  # for `<(command)`, which ends with the command
            check_regular(path)
        return Path(path).read_bytes()
    except FileNotFoundError:
        suggestion = checks.suggestion(os.path.basename(path), BUILTIN_TEXTS)
        raise CorpusError(f"The file {path!r} does not exist: a corpus is {CORPUS_HELP}{suggestion}.") from None
    except PermissionError:
        raise CorpusError(f"The file {path!r} may not be read: change its permissions or name another.") from None
    except OSError as error:
        raise CorpusError(f"The corpus {path!r} cannot be read ({error.strerror}): name a UTF-8 text file.") from None
    except ValueError as error:
        raise CorpusError(f"{path!r} is not a valid path ({error}): name a UTF-8 text file.") from None


def _decoded(folder: str) -> str:
    """Return the documents of a folder of token ids, with a blank line between two."""
    try:
        files = TokenFiles.open(folder)
        if len(files) > MAX_DECODED_TOKENS:
            raise CorpusError(
                f"{folder!r} has {len(files):,} tokens, too many to hold as text: use experiments.compare, optimizers, "
                "scaling, crossover or loss_by_position, which read token files."
            )
        text = decode_documents(load_tokenizer(Path(folder) / TOKENIZER_NAME), np.asarray(files))
    except (TokenFilesError, TokenizerError) as error:
        raise CorpusError(str(error)) from None
    return text.removeprefix(DOCUMENT_CHARACTER).replace(DOCUMENT_CHARACTER, "\n\n")


def verbatim_overlap(train: str, validation: str, length: int = 64) -> float:
    """Compute the fraction of a validation text that is copied from its training text.

    A character counts if it is in a substring of length L that also occurs in the training text. Substrings are
    compared by a 64-bit hash. The training text is processed in chunks, so memory does not grow with its length.
    (Lee et al., 2022, "Deduplicating Training Data Makes Language Models Better", find them with suffix arrays.)

    Args:
        train: The training text.
        validation: The validation text; only its first 2,097,152 characters are used.
        length: L, the minimum length of a copy in characters; a power of 2.

    Returns:
        The fraction of characters, from 0 to 1; 0 if one of the texts is shorter than `length`.

    Raises:
        ValueError: `length` is not a power of 2.
        TokenizerError: One of the arguments is not a text.

    >>> verbatim_overlap("to be, or not to be", "that is not to", length=4)
    0.5
    """
    check_text(train)
    check_text(validation)
    checks.integer("length", length, min_value=1)
    if length & (length - 1):
        raise ValueError(f"length={length}; expected a power of 2, such as 64.")
    hashes = _hashes(validation[:MAX_VALIDATION_CHARS], length)  # [M]: M substrings
    if not len(hashes):
        return 0.0
    order = np.argsort(hashes)
    sorted_hashes, is_copied = hashes[order], np.zeros(len(hashes), bool)  # sorted hashes are searched faster
    for start in range(0, len(train), CHUNK_CHARS):
        chunk = np.sort(_hashes(train[start : start + CHUNK_CHARS + length - 1], length))  # [<= CHUNK_CHARS]
        if len(chunk):
            is_copied |= chunk[np.searchsorted(chunk, sorted_hashes).clip(max=len(chunk) - 1)] == sorted_hashes
    copy_starts = order[is_copied]
    edges = np.zeros(len(hashes) + length, int)  # one more than characters: where copies begin and end
    edges[copy_starts] += 1
    edges[copy_starts + length] -= 1
    return float(np.mean(np.cumsum(edges[:-1]) > 0))


def _hashes(text, length):
    """Compute a hash of the substring of `length` characters from each position on, a polynomial in the characters.

    With h_n(i) the hash of the n characters from position i on, h_2n(i) = h_n(i) b^n + h_n(i + n).
    """
    hashes = np.frombuffer(text.encode("utf-32-le"), "<u4").astype("uint64")
    hashed = 1  # characters in each hash
    while hashed < length:
        factor = np.uint64(pow(BASE, hashed, 1 << 64))
        hashes = hashes[:-hashed] * factor + hashes[hashed:] if len(hashes) > hashed else hashes[:0]
        hashed *= 2
    return hashes
