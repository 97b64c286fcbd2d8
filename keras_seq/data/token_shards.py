"""The files of token ids that `TokenFiles` reads: their formats, sizes and checksums.

    FOLDER/index.json           counts, checksums, inputs, the token that begins a document; written last
    FOLDER/tokenizer.json
    FOLDER/00000.bin            ids, little-endian uint16 or uint32, one after the other
    FOLDER/00000.documents      where documents begin in it, little-endian uint64

Files of two other programs are read as they are: nanoGPT's `train.bin` (uint16) and the `.bin` files of llm.c and
modded-nanogpt (a header of 256 int32: magic number, version, number of ids; then uint16 or uint32).
"""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from keras_seq.data.documents import Part, read_texts
from keras_seq.files import atomic_write, check_regular, write_json
from keras_seq.tokenizers import Tokenizer, TokenizerError, document_token
from keras_seq.tokenizers.document_token import DOCUMENT_CHARACTER
from keras_seq.tokenizers.subwords import SubwordTokenizer

INDEX_NAME, PLAN_NAME, TOKENIZER_NAME, INDEX_SCHEMA = "index.json", "inputs.json", "tokenizer.json", 1
HEADER_BYTES, MAX_HEADER_FIELDS = 1024, 16
HEADERS = {(20240520, 1): "<u2", (20240801, 7): "<u4"}  # by magic number and version: ids of GPT-2, ids of Llama 3
DTYPES = {"uint16": "<u2", "uint32": "<u4"}
READ_BYTES = 1 << 20


class TokenFilesError(ValueError):
    """Files of token ids cannot be read; the message is one sentence that names the file."""


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of ids."""

    path: Path
    num_tokens: int
    dtype: str
    offset: int = 0
    documents: Path | None = None
    num_documents: int = 0
    sha256: str | None = None
    documents_sha256: str | None = None

    def check_size(self) -> None:
        """Raise a TokenFilesError unless the files have the sizes of their ids and documents."""
        _check_size(self.path, self.offset + self.num_tokens * np.dtype(self.dtype).itemsize)
        if self.documents is not None:
            _check_size(self.documents, 8 * self.num_documents)

    def check_content(self) -> None:
        """Raise a TokenFilesError unless the files have the digests of the index; reads them from start to end."""
        for path, expected in ((self.path, self.sha256), (self.documents, self.documents_sha256)):
            if expected is not None and (digest := file_sha256(path)) != expected:
                raise TokenFilesError(
                    f"{path} is damaged: its sha256 is {digest}, not {expected} as in {INDEX_NAME}; copy it again, or "
                    "remove the folder and prepare it again."
                )


def file_sha256(path: str | os.PathLike[str]) -> str:
    """Return the sha256 of a file, as hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_size(path, expected):
    try:
        size = check_regular(path).st_size
    except OSError as error:
        raise TokenFilesError(
            f"{path} cannot be read ({error.strerror}), but the index names it: copy it again, or prepare the folder "
            "again."
        ) from None
    if size != expected:
        raise TokenFilesError(
            f"{path} is damaged: it has {size:,} bytes, not {expected:,}; copy it again, or prepare the folder again."
        )


def foreign_shard(path: str | os.PathLike[str]) -> Shard:
    """Describe a `.bin` file of nanoGPT, or of llm.c and modded-nanogpt, by its header and size."""
    path = Path(path)
    try:
        size = check_regular(path).st_size
        with path.open("rb") as file:
            header = np.frombuffer(file.read(HEADER_BYTES if size >= HEADER_BYTES else 0), "<i4")
    except OSError as error:
        raise TokenFilesError(
            f"{path} cannot be read ({error.strerror}): name a .bin file of ids, or a folder with some."
        ) from None
    magic, version = (*header[:2].tolist(), None, None)[:2]
    # No text has ids like a header's: a few numbers, and zeros.
    is_header = header[:MAX_HEADER_FIELDS].any() and not header[MAX_HEADER_FIELDS:].any()
    if (dtype := HEADERS.get((magic, version))) is not None:
        shard = Shard(path, int(header[2]), dtype, HEADER_BYTES)
        shard.check_size()
    elif is_header or magic in {known for known, _ in HEADERS}:
        known = " or ".join(f"{one} in version {number}" for one, number in HEADERS)
        raise TokenFilesError(
            f"{path} has a header with the magic number {magic} in version {version}; expected {known}, as llm.c and "
            "modded-nanogpt write ids."
        )
    elif size % 2 or not size:
        raise TokenFilesError(f"{path} has {size:,} bytes; expected ids of two bytes each, as nanoGPT writes them.")
    else:
        shard = Shard(path, size // 2, "<u2")
    return shard


def write_index(folder: Path, index: dict) -> None:
    """Write the index of a folder of shards, with its checksum, atomically."""
    index = {"schema": INDEX_SCHEMA, **index}
    write_json(folder / INDEX_NAME, {**index, "checksum": _checksum(index)})


def read_index(folder: str | os.PathLike[str]) -> dict:
    """Read the index of a folder of shards."""
    path = Path(folder) / INDEX_NAME
    try:
        check_regular(path)
        index = json.loads(path.read_bytes())
        checksum = index.pop("checksum")
        is_valid = checksum == _checksum(index)
    except OSError as error:
        raise TokenFilesError(
            f"{path} cannot be read ({error.strerror}): give a folder of python -m experiments.prepare, which writes "
            "the index last, or run that again to continue."
        ) from None
    except (RecursionError, ValueError, KeyError, AttributeError, TypeError):
        is_valid = False
    if not is_valid:
        raise TokenFilesError(f"{path} is damaged: copy it again, or remove the folder and prepare it again.")
    if index.get("schema") != INDEX_SCHEMA:
        raise TokenFilesError(
            f"{path} has schema={index.get('schema')!r:.40}; expected {INDEX_SCHEMA}: prepare the folder again with "
            "this version."
        )
    _check_entries(path, index)
    tokenizer = Path(folder) / TOKENIZER_NAME
    if not tokenizer.is_file() or file_sha256(tokenizer) != index["tokenizer_sha256"]:
        raise TokenFilesError(
            f"{tokenizer} does not fit: it is not the tokenizer that the ids were encoded with; copy that one there."
        )
    return index


def _check_entries(path, index):
    """Raise a TokenFilesError unless an index has the entries that are read, with values of their kinds."""
    shards = index.get("shards")
    shards = shards if isinstance(shards, list) and shards and all(isinstance(one, dict) for one in shards) else [{}]
    for entries, expected in ((index, INDEX_ENTRIES), *((shard, SHARD_ENTRIES) for shard in shards)):
        for name, (is_valid, description) in expected.items():
            if not is_valid(entries.get(name)):
                raise TokenFilesError(
                    f"{path} is damaged: {name}={entries.get(name)!r:.40}; expected {description}: copy it again, or "
                    "remove the folder and prepare it again."
                )


def _is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


COUNT = _is_count, "an integer of at least 0"
DIGEST = (lambda value: isinstance(value, str)), "a digest"
INDEX_ENTRIES = {
    "dtype": ((lambda value: isinstance(value, str) and value in DTYPES), " or ".join(DTYPES)),
    "vocabulary_size": COUNT,
    "document_token": COUNT,
    "tokenizer_sha256": DIGEST,
    "sha256": DIGEST,
}
SHARD_ENTRIES = {
    "name": ((lambda value: isinstance(value, str) and re.fullmatch("[0-9]{5,}", value)), "the number of a shard"),
    "tokens": COUNT,
    "documents": COUNT,
    "sha256": DIGEST,
    "documents_sha256": DIGEST,
}


def index_shards(folder: str | os.PathLike[str], index: dict) -> list[Shard]:
    """Return the shards that an index names, after checking their sizes."""
    shards = [
        Shard(
            Path(folder) / f"{entry['name']}.bin",
            entry["tokens"],
            DTYPES[index["dtype"]],
            documents=Path(folder) / f"{entry['name']}.documents",
            num_documents=entry["documents"],
            sha256=entry["sha256"],
            documents_sha256=entry["documents_sha256"],
        )
        for entry in index["shards"]
    ]
    for shard in shards:
        shard.check_size()
    return shards


def is_prepared(path: object) -> bool:
    """Return whether a path is that of a folder of `python -m experiments.prepare`, perhaps not finished."""
    return isinstance(path, str | os.PathLike) and any(
        os.path.isfile(os.path.join(path, name)) for name in (INDEX_NAME, PLAN_NAME)
    )


def _checksum(index):
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()


# Write the documents of a group of files as one shard of token ids; `token_shards.py` has the format.
#
#     ids of a document = [document token] + ids of its text
#
# A record, NAME.json, is written last: without it, the other files of a shard do not count.


RECORD_KEYS = (
    *("name", "tokens", "documents", "characters", "unknown", "unknown_examples"),
    *("sha256", "documents_sha256"),
)
MAX_EXAMPLES, MAX_EXAMPLE_CHARACTERS = 5, 40  # of unknown text in a record
BATCH_CHARACTERS = 1 << 16  # characters that are encoded at once; larger arrays would need new pages each time


@dataclasses.dataclass(frozen=True)
class ShardWriter:
    """Write shards of one folder."""

    folder: Path
    tokenizer: Tokenizer
    field: str = "text"

    @property
    def dtype(self) -> str:
        """The name of the smallest dtype for all ids: uint16 or uint32."""
        return "uint16" if self.tokenizer.vocabulary_size <= 1 << 16 else "uint32"

    def record_path(self, number: int) -> Path:
        """Return the path of the record of a shard."""
        return self.folder / f"{number:05d}.json"

    def is_written(self, number: int) -> bool:
        """Return whether a shard has a record, and files of the sizes that it says."""
        try:
            record = json.loads(self.record_path(number).read_bytes())
            sizes = {
                "bin": record["tokens"] * np.dtype(DTYPES[self.dtype]).itemsize,
                "documents": 8 * record["documents"],
            }
            is_whole = {*record} == {*RECORD_KEYS} and record["name"] == self.record_path(number).stem
            return is_whole and all(
                self.record_path(number).with_suffix(f".{end}").stat().st_size == size for end, size in sizes.items()
            )
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def write(self, number: int, group: Sequence[Part]) -> None:
        """Write the shard of a group of files."""
        name, tokens, characters, unknown, examples = f"{number:05d}", 0, 0, 0, {}
        starts, digest = [], hashlib.sha256()
        oov_id = self._oov_id
        with atomic_write(self.folder / f"{name}.bin") as temporary, temporary.open("wb") as file:
            for ids, begins, text in self._encoded(group):
                if oov_id is not None and (count := int((ids == oov_id).sum())):
                    unknown += count
                    if len(examples) < MAX_EXAMPLES:
                        examples |= dict.fromkeys(self.tokenizer.unknown_parts(text))
                if begins:
                    starts.append(tokens)
                    ids = np.concatenate([[document_token(self.tokenizer)], ids])
                data = ids.astype(DTYPES[self.dtype]).tobytes()
                file.write(data)
                digest.update(data)
                tokens, characters = tokens + len(ids), characters + len(text)
        documents = np.array(starts, "<u8").tobytes()
        with atomic_write(self.folder / f"{name}.documents") as temporary:
            temporary.write_bytes(documents)
        digests = digest.hexdigest(), hashlib.sha256(documents).hexdigest()
        examples = [text[:MAX_EXAMPLE_CHARACTERS] for text in [*examples][:MAX_EXAMPLES]]
        values = name, tokens, len(starts), characters, unknown, examples, *digests
        record = zip(RECORD_KEYS, values, strict=True)
        write_json(self.record_path(number), dict(record))

    @property
    def _oov_id(self):
        """The id of text that the tokenizer does not know; None if it has none."""
        oov_token, vocabulary = self.tokenizer.oov_token, self.tokenizer.vocabulary
        return vocabulary.index(oov_token) if oov_token in vocabulary else None

    def _encoded(self, group) -> Iterator[tuple[np.ndarray, bool, str]]:
        """Yield the ids of texts, whether they begin a document, and the texts."""
        for path, batch in self._batches(group):
            try:
                encoded = self.tokenizer.encode_texts([text for _, text in batch])
            except TokenizerError as error:
                raise TokenizerError(f"{path}: the tokenizer does not fit: {error}") from None
            for ids, (begins, text) in zip(encoded, batch, strict=True):
                yield ids, begins, text

    def _batches(self, group):
        """Yield the path of a file, and about `BATCH_CHARACTERS` of its texts."""
        has_special_character = not isinstance(self.tokenizer, SubwordTokenizer)
        for part in group:
            batch, size = [], 0
            for begins, text in read_texts(part, self.field):
                if has_special_character and DOCUMENT_CHARACTER in text:
                    text = text.replace(DOCUMENT_CHARACTER, "")
                batch.append((begins, text))
                size += len(text)
                if size >= BATCH_CHARACTERS:
                    yield part.file.path, batch
                    batch, size = [], 0
            if batch:
                yield part.file.path, batch
