"""Find files of documents, divide them into parts of similar size, and read their texts in bounded memory.

    *.txt, and any other file that is named    one document, UTF-8
    *.jsonl                                    one document a line, in a field of its JSON object
    *.parquet                                  one document a row, in a column      (needs pyarrow)
    the first two with .gz or .zst             the same, compressed                 (.zst needs pyarrow)

A folder stands for all such files below it, by links too, whose names, like those of their folders, do not begin with a
period. Large
files that are neither compressed nor Parquet are divided: *.jsonl between two lines, others between two words, where no
token ends elsewhere than in the whole text. A text without such a place stays whole.
"""

import codecs
import dataclasses
import glob
import gzip
import importlib
import io
import itertools
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from keras_seq.files import check_regular

ALIGN_BYTES = 1 << 16  # bytes that are searched for a border at once
# No token goes over these places: behind the end of a line between two words, and before the space between two.
BETWEEN_WORDS = r"(?<=\S)\n(?=\w)|(?<=\w)(?= \w)"
IN_FILE = re.compile(BETWEEN_WORDS.replace(r"\n", r"\r?\n"))  # where `\r\n` has not become `\n` yet
FIRST_BORDER, LAST_BORDER = re.compile(BETWEEN_WORDS), re.compile(rf"(?s:.*)(?:{BETWEEN_WORDS})")
BORDER_CHARACTERS = 2  # behind a place: they tell whether it is between two words
SUFFIXES = (".txt", ".jsonl", ".parquet")
COMPRESSIONS = (".gz", ".zst")
BYTE_ORDER_MARK = "\ufeff"
CHUNK_BYTES = 1 << 16  # bytes of a text that are decoded at once
MAX_CHARACTERS = 1 << 18  # of a piece of a text that has no place between two words
MAX_LINE_BYTES = 1 << 28  # of a line of JSON


class DocumentsError(ValueError):
    """Files of documents cannot be read; the message is one sentence that names the file."""


@dataclasses.dataclass(frozen=True)
class InputFile:
    """A file of documents, with its size and time of change."""

    path: str
    size: int
    modified: int

    @classmethod
    def of(cls, path: str) -> "InputFile":
        """Return the file at a path."""
        try:
            status = check_regular(path)
            with open(path, "rb"):
                pass
        except OSError as error:
            raise DocumentsError(f"{path} cannot be read ({error.strerror}): name files or folders.") from None
        except ValueError:  # NUL
            raise DocumentsError(f"{path!r} is no path; expected the names of files or folders.") from None
        return cls(path, status.st_size, status.st_mtime_ns)

    def check(self) -> None:
        """Raise a DocumentsError unless the file is as it was."""
        if InputFile.of(self.path) != self:
            raise DocumentsError(f"{self.path} was changed meanwhile: remove the output folder, and begin again.")


@dataclasses.dataclass(frozen=True)
class Part:
    """A file of documents, or the bytes from `start` to `stop` of one."""

    file: InputFile
    start: int
    stop: int

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.stop - self.start


def find_files(inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[InputFile]:
    """Return the files that names, folders and patterns stand for, each once, those of a folder sorted by name."""
    names = [os.fspath(one) for one in ([inputs] if isinstance(inputs, str | os.PathLike) else inputs)]
    files = [file for name in names for file in named_files(name, lambda path: file_format(path) in SUFFIXES)]
    if not files:
        raise DocumentsError(
            f"{' '.join(names) or 'INPUT'}: no file was found; expected files, patterns, or folders with files "
            f"{' '.join(f'*{suffix}' for suffix in SUFFIXES)}, also {' or '.join(COMPRESSIONS)}."
        )
    return [InputFile.of(path) for path in {os.path.abspath(file): file for file in files}.values()]


def named_files(name: str, is_expected: Callable[[str], bool]) -> list[str]:
    """Return the files that a name stands for: those of a pattern, of a folder those that are wanted, or itself."""
    is_pattern = not os.path.lexists(name) and {*"*?["} & {*name} and "\0" not in name
    files = []
    for path in sorted(glob.glob(name, recursive=True)) if is_pattern else [name]:
        files += _files_below(path, is_expected) if os.path.isdir(path) else [path]
    for file in files:
        if any("\ud800" <= character <= "\udfff" for character in file):  # bytes that are not UTF-8
            raise DocumentsError(f"{file!r} has a name that is not UTF-8: rename it.")
    return files


def _files_below(folder, is_expected):
    """Return the files below a folder in the order of their paths, by links too, each folder once; no hidden ones."""
    files, read = [], set()
    for place, folders, names in os.walk(folder, followlinks=True):
        here = os.path.realpath(place)
        folders[:] = [] if here in read else sorted(name for name in folders if name[0] != ".")
        names = [] if here in read else [name for name in names if name[0] != "."]
        read.add(here)
        files += [file for name in names if is_expected(file := os.path.join(place, name))]
    return [str(file) for file in sorted(map(Path, files))]


def file_format(path: str) -> str:
    """Return the suffix of a file's name, without that of its compression."""
    name, suffix = os.path.splitext(path)
    return os.path.splitext(name)[1] if suffix in COMPRESSIONS else suffix


def divide(files: Sequence[InputFile], part_bytes: int) -> list[tuple[Part, ...]]:
    """Divide files into groups of parts of about `part_bytes` bytes, in order."""
    groups, group, size = [], [], 0
    for file in files:
        is_divisible = not file.path.endswith(COMPRESSIONS) and file_format(file.path) != ".parquet"
        for part in _divide_file(file, part_bytes) if is_divisible else [Part(file, 0, file.size)]:
            if group and size + part.size > part_bytes:
                groups, group, size = [*groups, tuple(group)], [], 0
            group.append(part)
            size += part.size
    return [*groups, tuple(group)] if group else groups


def _divide_file(file, part_bytes):
    if file.size <= part_bytes:
        return [Part(file, 0, file.size)]
    borders = [0]
    with open(file.path, "rb") as stream:
        while borders[-1] < file.size:
            position = min(borders[-1] + part_bytes, file.size)
            borders.append(min(_next_border(stream, position, file_format(file.path) == ".jsonl"), file.size))
    return [Part(file, *pair) for pair in itertools.pairwise(borders)]


def _next_border(stream, position, is_jsonl):
    """Return the first place after a position where a file can be divided; its end if there is none."""
    stream.seek(position)
    while block := stream.read(ALIGN_BYTES):
        if is_jsonl and (end := block.find(b"\n") + 1):
            return position + end
        start = next((n for n, byte in enumerate(block) if byte & 0xC0 != 0x80), len(block))  # of a character
        text = block[start:].decode("utf-8", "ignore")
        if not is_jsonl and (border := IN_FILE.search(text)):
            return position + start + len(text[: border.end()].encode())
        position += len(block)
    return position


def read_texts(part: Part, field: str = "text") -> Iterator[tuple[bool, str]]:
    r"""Yield the texts of a part, long documents in pieces; `\r\n` becomes `\n`, and a byte order mark is left out.

    Pieces end where no token goes over, so neither pieces nor parts change the ids. Without such a place in
    `MAX_CHARACTERS` characters, a piece has as many, counted from the last one.
    """
    part.file.check()
    path, kind = part.file.path, file_format(part.file.path)
    try:
        if kind == ".parquet":
            yield from ((True, text) for text in _parquet_texts(path, field))
        else:
            with _open(path) as stream:
                if part.start:
                    stream.seek(part.start)
                elif stream.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                    raise DocumentsError(f"{path} is UTF-16, not UTF-8: convert it to UTF-8, or leave it out.")
                stop = math.inf if path.endswith(COMPRESSIONS) else part.stop
                if kind == ".jsonl":
                    yield from _jsonl_texts(path, stream, part.start, stop, field)
                else:
                    yield from _plain_texts(path, stream, part.start, stop)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DocumentsError(f"{path} cannot be read ({reason}): copy it again, or leave it out.") from None
    part.file.check()


def _open(path):
    if path.endswith(".gz"):
        return gzip.open(path)
    if path.endswith(".zst"):
        return io.BufferedReader(_pyarrow("pyarrow", path).input_stream(path, compression="zstd"))
    return open(path, "rb")


def _pyarrow(module, path):
    try:
        return importlib.import_module(module)
    except ImportError:
        raise DocumentsError(f'{path} needs pyarrow to be read: pip install "keras_seq[data]".') from None


def _plain_texts(path, stream, position, stop):
    begins, rest, carriage_return, before = position == 0, "", "", ""
    decoder = codecs.getincrementaldecoder("utf-8-sig" if begins else "utf-8")()
    while True:
        data = stream.read(min(CHUNK_BYTES, stop - position))
        try:
            new = carriage_return + decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            where = f"byte 0x{error.object[error.start]:02x} near offset {position}"
            raise DocumentsError(f"{path} is not UTF-8 ({where}): convert it to UTF-8, or leave it out.") from None
        position += len(data)
        carriage_return = "\r" if data and new.endswith("\r") else ""  # a line feed may follow it
        rest += new.removesuffix(carriage_return).replace("\r\n", "\n")
        while end := _end_of_piece(rest, before, is_all=not data):
            yield begins, rest[:end]
            begins, before, rest = False, rest[end - 1], rest[end:]
        if not data:
            return


def _end_of_piece(text, before, is_all):
    """Return the length of the next piece of a text, 0 if more has to be read; `is_all` says that this is the rest.

    A piece cut at `MAX_CHARACTERS` may be followed by an end of a line, so the character before the text counts.
    """
    context = before + text
    first = next((match.end() for match in FIRST_BORDER.finditer(context) if match.end() > len(before)), None)
    if first is None and len(text) < MAX_CHARACTERS + BORDER_CHARACTERS:
        return min(len(text), MAX_CHARACTERS) if is_all else 0
    if first is None or first - len(before) > MAX_CHARACTERS:
        return MAX_CHARACTERS
    return len(text) if is_all else LAST_BORDER.match(context).end() - len(before)


def _jsonl_texts(path, stream, position, stop, field):
    number = 0
    while position < stop and (line := stream.readline(MAX_LINE_BYTES)):
        number, position = number + 1, position + len(line)
        line = line.removeprefix(codecs.BOM_UTF8)
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DocumentsError(f"{path} has a line ({number} in this part) that is not JSON: {error}.") from None
        if not isinstance(document, dict) or field not in document:
            raise DocumentsError(f"{path} has a document ({number}) without {field!r}: name it with --field.")
        yield True, _text(path, document[field], field, number)


def _text(path, value, field, number):
    if not isinstance(value, str):
        document = f"a document ({number} in this part) whose {field!r} is {value!r:.40}, no text"
        raise DocumentsError(f"{path} has {document}: leave it out, or name another field with --field.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DocumentsError(f"{path} has a document ({number} in this part) with half a surrogate pair.") from None
    return value.replace("\r\n", "\n")


def _parquet_texts(path, field):
    parquet, pyarrow = _pyarrow("pyarrow.parquet", path), _pyarrow("pyarrow", path)
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            if field not in file.schema_arrow.names:
                names = ", ".join(file.schema_arrow.names)
                raise DocumentsError(f"{path} has no column {field!r}, but {names}: name one with --field.")
            number = 0
            for batch in file.iter_batches(batch_size=256, columns=[field]):
                for value in batch.column(0).to_pylist():
                    number += 1
                    yield _text(path, value, field, number)
    except pyarrow.ArrowException as error:
        raise DocumentsError(f"{path} cannot be read ({str(error).splitlines()[0]}): copy it again.") from None
