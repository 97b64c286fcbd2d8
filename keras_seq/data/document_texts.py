"""Read the texts of documents from files in bounded memory; `documents.py` lists the formats."""

import codecs
import gzip
import importlib
import io
import json
import re
import zlib
from collections.abc import Iterator

from keras_seq.data.documents import BETWEEN_WORDS, DocumentsError, Part, file_format

BYTE_ORDER_MARK = "\ufeff"
CHUNK_BYTES = 1 << 16  # bytes of a text that are decoded at once
MAX_CHARACTERS = 1 << 18  # of a piece of a text that has no place between two words
MAX_LINE_BYTES = 1 << 28  # of a line of JSON
FIRST_BORDER = re.compile(BETWEEN_WORDS)
LAST_BORDER = re.compile(rf"(?s:.*)(?:{BETWEEN_WORDS})")
BORDER_CHARACTERS = 2  # behind a place that tell whether it is between two words


def read_texts(part: Part, field: str = "text") -> Iterator[tuple[bool, str]]:
    r"""Yield the texts of a part, long documents in pieces; `\r\n` becomes `\n`, and a byte order mark is left out.

    Pieces end where no token goes over, so neither pieces nor parts change the ids. Where more than `MAX_CHARACTERS`
    have no such place, a piece has `MAX_CHARACTERS`, counted from the last one.

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
                if part.start == 0 and stream.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                    raise DocumentsError(f"{path} is UTF-16, not UTF-8: convert it to UTF-8, or leave it out.")
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
    return io.BufferedReader(_Range(path, part.start, part.stop), CHUNK_BYTES)


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
    begins, position, rest, carriage_return, before = part.start == 0, part.start, "", "", ""
    decoder = codecs.getincrementaldecoder("utf-8-sig" if begins else "utf-8")()
    while True:
        data = stream.read(CHUNK_BYTES)
        try:
            new = carriage_return + decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise DocumentsError(
                f"{part.file.path} is not UTF-8 (byte 0x{error.object[error.start]:02x} near offset {position}): "
                "convert it to UTF-8, or leave it out."
            ) from None
        position += len(data)
        carriage_return = "\r" if data and new.endswith("\r") else ""  # a line feed may follow it
        rest += new.removesuffix(carriage_return).replace("\r\n", "\n")
        while end := _end_of_piece(rest, before, is_all=not data):
            yield begins, rest[:end]
            begins, before, rest = False, rest[end - 1], rest[end:]
        if not data:
            return


def _end_of_piece(text, before, is_all):
    """Return the length of the next piece of a text, 0 if more has to be read; `is_all` of it may be here.

    A piece cut at `MAX_CHARACTERS` may be followed by an end of a line, so the character before the text counts.
    """
    joined = before + text
    first = next((match.end() for match in FIRST_BORDER.finditer(joined) if match.end() > len(before)), None)
    if first is None and len(text) < MAX_CHARACTERS + BORDER_CHARACTERS:
        return min(len(text), MAX_CHARACTERS) if is_all else 0
    if first is None or first - len(before) > MAX_CHARACTERS:
        return MAX_CHARACTERS
    return len(text) if is_all else LAST_BORDER.match(joined).end() - len(before)


def _jsonl_texts(path, stream, field):
    for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE_BYTES), b""), 1):
        line = line.removeprefix(codecs.BOM_UTF8)
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
