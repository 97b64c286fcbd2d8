"""Read the texts of documents from files in bounded memory; `documents.py` lists the formats."""

import codecs
import gzip
import importlib
import io
import json
import re
import zlib
from collections.abc import Iterator

from keras_seq.data.documents import DocumentsError, Part, file_format

CHUNK_BYTES = 1 << 16  # bytes of a text that are decoded at once
MAX_CHARACTERS = 1 << 18  # in which the end of a line is looked for
MAX_LINE_BYTES = 1 << 28  # of a line of JSON
TO_LAST_WORD = re.compile(r"(?s:.*)\S\r?\n(?=\w)")  # to the last border of `documents.BETWEEN_WORDS`


def read_texts(part: Part, field: str = "text") -> Iterator[tuple[bool, str]]:
    r"""Yield the texts of a part, documents longer than some MiB in pieces; `\r\n` becomes `\n`.

    Args:
        part: The part to read.
        field: Field of a JSON object, or column of a Parquet file, that holds the text.

    Yields:
        `(begins_document, text)`.

    Raises:
        DocumentsError: The file cannot be read, was changed, is damaged, is not UTF-8, or a document has no such field.
    """
    part.file.check()
    path, kind = part.file.path, file_format(part.file.path)
    try:
        if kind == ".parquet":
            yield from ((True, text) for text in _parquet_texts(path, field))
        else:
            with _open(part) as stream:
                yield from _jsonl_texts(path, stream, field) if kind == ".jsonl" else _plain_texts(part, stream)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DocumentsError(f"{path} cannot be read ({reason}): copy it again, or leave it out.") from None
    part.file.check()


def _open(part):
    path = part.file.path
    if path.endswith(".gz"):
        return gzip.open(path)
    if path.endswith(".zst"):
        return io.BufferedReader(_pyarrow("pyarrow", path).input_stream(path, compression="zstd"))
    stream = io.BufferedReader(_Range(path, part.start, part.stop), CHUNK_BYTES)
    return stream


class _Range(io.RawIOBase):
    """A range of bytes of a file."""

    def __init__(self, path, start, stop):
        self.file, self.left = open(path, "rb", buffering=0), stop - start  # noqa: SIM115
        self.file.seek(start)

    def readable(self):
        return True

    def readinto(self, buffer):
        count = self.file.readinto(memoryview(buffer)[: self.left])
        self.left -= count
        return count

    def close(self):
        self.file.close()
        super().close()


def _pyarrow(module, path):
    try:
        return importlib.import_module(module)
    except ImportError:
        raise DocumentsError(f'{path} needs pyarrow to be read: pip install "keras_seq[data]".') from None


def _plain_texts(part, stream):
    decoder, begins, rest = codecs.getincrementaldecoder("utf-8")(), part.start == 0, ""
    position = part.start
    while True:
        data = stream.read(CHUNK_BYTES)
        try:
            text = rest + decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise DocumentsError(
                f"{part.file.path} is not UTF-8 (byte 0x{error.object[error.start]:02x} near offset {position}): "
                "convert it to UTF-8, or leave it out."
            ) from None
        position += len(data)
        end = _end_of_line(text) if data else len(text)
        text, rest = text[:end].replace("\r\n", "\n"), text[end:]
        if text:
            yield begins, text
            begins = False
        if not data:
            return


def _end_of_line(text):
    """Return where the last line between two words ends, which no token goes over; in a long text without one, any."""
    if between_words := TO_LAST_WORD.match(text):
        return between_words.end()
    is_long = len(text) >= MAX_CHARACTERS
    return (text.rfind("\n") + 1 or len(text) - text.endswith("\r")) if is_long else 0


def _jsonl_texts(path, stream, field):
    for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE_BYTES), b""), 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DocumentsError(f"{path} has a line ({number} in this part) that is not JSON: {error}.") from None
        if not isinstance(document, dict) or field not in document:
            raise DocumentsError(
                f"{path} has a document ({number} in this part) without the field {field!r}: name it with --field."
            )
        yield True, _text(path, document[field], field, number)


def _text(path, value, field, number):
    if not isinstance(value, str):
        raise DocumentsError(
            f"{path} has a document ({number} in this part) whose {field!r} is {value!r:.40}, no text: leave it "
            "out, or name another field with --field."
        )
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
