"""Find the files of documents that a user names, and divide them into parts of similar size.

    *.txt, and any other file that is named    one document, UTF-8
    *.jsonl                                    one document a line, in a field of its JSON object
    *.parquet                                  one document a row, in a column      (needs pyarrow)
    the first two with .gz or .zst             the same, compressed                 (.zst needs pyarrow)

A folder stands for all such files below it whose names, like those of their folders, do not begin with a period. Large
files that are neither compressed nor Parquet are divided: *.jsonl between two lines, others between two words, where no
token ends elsewhere than in the whole text. A text without such a place stays whole.
"""

import dataclasses
import glob
import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path

from keras_seq.atomic_files import check_regular

ALIGN_BYTES = 1 << 16  # bytes that are searched for a border at once
# No token goes over these places: behind the end of a line between two words, and before the space between two.
BETWEEN_WORDS = r"(?<=\S)\n(?=\w)|(?<=\w)(?= \w)"
IN_FILE = re.compile(BETWEEN_WORDS.replace(r"\n", r"\r?\n"))  # where `\r\n` has not become `\n` yet
SUFFIXES = (".txt", ".jsonl", ".parquet")
COMPRESSIONS = (".gz", ".zst")


class DocumentsError(ValueError):
    """Files of documents cannot be read; the message is one sentence that names the file."""


@dataclasses.dataclass(frozen=True)
class InputFile:
    """A file of documents, and what shows that it was changed.

    Args:
        path: Path of the file.
        size: Its bytes.
        modified: Time of its last change, in nanoseconds.
    """

    path: str
    size: int
    modified: int

    @classmethod
    def of(cls, path: str) -> "InputFile":
        """Return the file at a path.

        Raises:
            DocumentsError: It cannot be read or is no regular file.
        """
        try:
            status = check_regular(path)
            with open(path, "rb"):
                pass
        except OSError as error:
            raise DocumentsError(
                f"{path} cannot be read ({error.strerror}): name files, folders or patterns."
            ) from None
        return cls(path, status.st_size, status.st_mtime_ns)

    def check(self) -> None:
        """Raise a DocumentsError unless the file is as it was."""
        if InputFile.of(self.path) != self:
            raise DocumentsError(
                f"{self.path} was changed since preparing began: remove the folder that is written to, and begin again."
            )


@dataclasses.dataclass(frozen=True)
class Part:
    """A file of documents, or the bytes from `start` to `stop` of one.

    Args:
        file: The file.
        start: First byte.
        stop: Byte after the last one.
    """

    file: InputFile
    start: int
    stop: int


def find_files(inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[InputFile]:
    """Return the files that names, folders and patterns stand for, each once, those of a folder sorted by name.

    Args:
        inputs: Paths of files and folders, and patterns such as `"texts/*.jsonl"`; or one of them.

    Raises:
        DocumentsError: There is no file, or one cannot be read.
    """
    paths = {}
    inputs = [os.fspath(one) for one in ([inputs] if isinstance(inputs, str | os.PathLike) else inputs)]
    for name in inputs:
        is_pattern = not os.path.lexists(name) and {*"*?["} & {*name}
        for one in sorted(glob.glob(name, recursive=True)) if is_pattern else [name]:
            files = _folder_files(one) if os.path.isdir(one) else [one]
            paths |= {os.path.abspath(file): file for file in files}
    if not paths:
        raise DocumentsError(
            f"{' '.join(inputs) or 'INPUT'}: no file was found; expected files, patterns, or folders with files "
            f"{' '.join(f'*{suffix}' for suffix in SUFFIXES)}, also {' or '.join(COMPRESSIONS)}."
        )
    return [InputFile.of(path) for path in paths.values()]


def _folder_files(folder):
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file() and file_format(str(path)) in SUFFIXES)
    return [str(file) for file in files if not any(part[0] == "." for part in file.relative_to(folder).parts)]


def file_format(path: str) -> str:
    """Return the suffix of a file's name, without that of its compression."""
    name, suffix = os.path.splitext(path)
    return os.path.splitext(name)[1] if suffix in COMPRESSIONS else suffix


def divide(files: Sequence[InputFile], part_bytes: int) -> list[tuple[Part, ...]]:
    """Divide files into groups of parts of about `part_bytes` bytes, in order.

    Args:
        files: The files.
        part_bytes: Bytes of a group; more where a file cannot be divided.

    Returns:
        Groups, each of whole files or of one part of a file.

    Raises:
        DocumentsError: A file cannot be read.
    """
    groups, group, size = [], [], 0
    for file in files:
        is_divisible = not file.path.endswith(COMPRESSIONS) and file_format(file.path) != ".parquet"
        if is_divisible and file.size > part_bytes:
            parts = _divide_file(file, part_bytes)
        else:
            parts = [Part(file, 0, file.size)]
        for part in parts:
            if group and size + part.stop - part.start > part_bytes:
                groups, group, size = [*groups, tuple(group)], [], 0
            group.append(part)
            size += part.stop - part.start
    return [*groups, tuple(group)] if group else groups


def _divide_file(file, part_bytes):
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
