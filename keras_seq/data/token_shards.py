"""The files of token ids that `TokenFiles` reads and `prepare` writes: their formats, sizes and checksums.

    FOLDER/index.json           counts, checksums, inputs, the token that begins a document; written last
    FOLDER/tokenizer.json
    FOLDER/00000.bin            ids, little-endian uint16 or uint32, one after the other
    FOLDER/00000.documents      where documents begin in it, little-endian uint64
    FOLDER/00000.json           record of a whole shard, until there is an index

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
from keras_seq.tokenizers.registry import DOCUMENT_CHARACTER
from keras_seq.tokenizers.subwords import SubwordTokenizer

INDEX_NAME, PLAN_NAME, TOKENIZER_NAME, INDEX_SCHEMA = "index.json", "inputs.json", "tokenizer.json", 1
HEADER_BYTES, MAX_HEADER_FIELDS = 1024, 16
HEADERS = {(20240520, 1): "<u2", (20240801, 7): "<u4"}  # by magic number and version: ids of GPT-2, ids of Llama 3
DTYPES = {"uint16": "<u2", "uint32": "<u4"}
COUNT, TEXT = "[0-9]+", '".*"'
INDEX_ENTRIES = {  # patterns of the entries that are read, as JSON
    **{"dtype": '"(uint16|uint32)"', "vocabulary_size": COUNT, "document_token": COUNT},
    **{"tokenizer_sha256": TEXT, "sha256": TEXT},
}
SHARD_ENTRIES = {
    **{"name": '"[0-9]{5,}"', "tokens": COUNT, "documents": COUNT},
    **{"sha256": TEXT, "documents_sha256": TEXT},
}
RECORD_KEYS = {*SHARD_ENTRIES, "characters", "unknown", "unknown_examples"}
MAX_EXAMPLES, MAX_EXAMPLE_CHARACTERS = 5, 40  # of unknown text in a record
BATCH_CHARACTERS = 1 << 16  # characters that are encoded at once; larger arrays would need new pages each time


class TokenFilesError(ValueError):
    """Files of token ids cannot be read; the message is one sentence that names the file."""


def damaged(path: str | os.PathLike[str], reason: str) -> TokenFilesError:
    """Return the error of a file that is not as it was written."""
    return TokenFilesError(f"{path} is damaged: {reason}; copy it again, or remove the folder and prepare it again.")


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
                raise damaged(path, f"its sha256 is {digest}, not {expected} as in {INDEX_NAME}")


def file_sha256(path: str | os.PathLike[str]) -> str:
    """Return the sha256 of a file, as hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_size(path, expected):
    try:
        size = check_regular(path).st_size
    except OSError as error:
        raise TokenFilesError(f"{path} cannot be read ({error.strerror}): copy it again.") from None
    if size != expected:
        raise damaged(path, f"it has {size:,} bytes, not {expected:,}")


def foreign_shard(path: str | os.PathLike[str]) -> Shard:
    """Describe a `.bin` file of nanoGPT, or of llm.c and modded-nanogpt, by its header and size."""
    path = Path(path)
    try:
        size = check_regular(path).st_size
        with path.open("rb") as file:
            header = np.frombuffer(file.read(HEADER_BYTES if size >= HEADER_BYTES else 0), "<i4")
    except OSError as error:
        remedy = "name a .bin file of ids, or a folder with some"
        raise TokenFilesError(f"{path} cannot be read ({error.strerror}): {remedy}.") from None
    magic, version = (*header[:2].tolist(), None, None)[:2]
    # No text has ids like a header's: a few numbers, and zeros.
    is_header = header[:MAX_HEADER_FIELDS].any() and not header[MAX_HEADER_FIELDS:].any()
    if (dtype := HEADERS.get((magic, version))) is not None:
        shard = Shard(path, int(header[2]), dtype, HEADER_BYTES)
        shard.check_size()
        return shard
    if is_header or magic in {known for known, _ in HEADERS}:
        known = " or ".join(f"{one} in version {number}" for one, number in HEADERS)
        header = f"a header with the magic number {magic} in version {version}"
        raise TokenFilesError(f"{path} has {header}; expected {known}, as llm.c and modded-nanogpt write ids.")
    if size % 2 or not size:
        raise TokenFilesError(f"{path} has {size:,} bytes; expected ids of two bytes each, as nanoGPT writes them.")
    return Shard(path, size // 2, "<u2")


def is_prepared(path: object) -> bool:
    """Return whether a path is that of a folder of `keras-seq prepare`, perhaps not finished."""
    return isinstance(path, str | os.PathLike) and any(
        os.path.isfile(os.path.join(path, name)) for name in (INDEX_NAME, PLAN_NAME)
    )


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
        is_whole = index.pop("checksum") == _checksum(index)
    except OSError as error:
        remedy = "give a folder of keras-seq prepare, which writes the index last, or run that again to continue"
        raise TokenFilesError(f"{path} cannot be read ({error.strerror}): {remedy}.") from None
    except (RecursionError, ValueError, KeyError, AttributeError, TypeError):
        is_whole = False
    if not is_whole:
        raise damaged(path, "it has another checksum")
    if (schema := index.get("schema")) != INDEX_SCHEMA:
        raise TokenFilesError(f"{path} has schema={schema!r:.40}; expected {INDEX_SCHEMA}: prepare the folder again.")
    _check_entries(path, index, INDEX_ENTRIES)
    shards = index.get("shards")
    for shard in shards if isinstance(shards, list) and shards else [{}]:
        _check_entries(path, shard if isinstance(shard, dict) else {}, SHARD_ENTRIES)
    tokenizer = Path(folder) / TOKENIZER_NAME
    if not tokenizer.is_file() or file_sha256(tokenizer) != index["tokenizer_sha256"]:
        raise TokenFilesError(f"{tokenizer} does not fit: the ids were encoded with another one; copy that there.")
    return index


def _check_entries(path, entries, patterns):
    for name, pattern in patterns.items():
        if not re.fullmatch(pattern, json.dumps(entries.get(name))):
            raise damaged(path, f"{name}={entries.get(name)!r:.40}; expected {pattern}")


def _checksum(index):
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()


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


@dataclasses.dataclass(frozen=True)
class ShardWriter:
    """Write the documents of groups of files as shards: [document token] + ids of its text, one after the other."""

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
        path = self.record_path(number)
        try:
            record = json.loads(path.read_bytes())
            index_shards(self.folder, {"dtype": self.dtype, "shards": [record]})  # checks the sizes
            return {*record} == RECORD_KEYS and record["name"] == path.stem
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def write(self, number: int, group: Sequence[Part]) -> None:
        """Write the shard of a group of files, and its record, without which it does not count."""
        path, tokens, characters, unknown, examples = self.record_path(number), 0, 0, 0, []
        starts, digest, vocabulary = [], hashlib.sha256(), self.tokenizer.vocabulary
        oov_token = self.tokenizer.oov_token
        oov_id = vocabulary.index(oov_token) if oov_token in vocabulary else -1
        with atomic_write(path.with_suffix(".bin")) as temporary, temporary.open("wb") as file:
            for ids, begins, text in self._encoded(group):
                if count := int((ids == oov_id).sum()):
                    unknown += count
                    if len(examples) < MAX_EXAMPLES:
                        parts = self.tokenizer.unknown_parts(text)
                        examples = [*dict.fromkeys([*examples, *parts])][:MAX_EXAMPLES]
                if begins:
                    starts.append(tokens)
                    ids = np.concatenate([[document_token(self.tokenizer)], ids])
                data = ids.astype(DTYPES[self.dtype]).tobytes()
                file.write(data)
                digest.update(data)
                tokens, characters = tokens + len(ids), characters + len(text)
        documents = np.array(starts, "<u8").tobytes()
        with atomic_write(path.with_suffix(".documents")) as temporary:
            temporary.write_bytes(documents)
        record = {
            **{"name": path.stem, "tokens": tokens, "documents": len(starts), "characters": characters},
            **{"unknown": unknown, "unknown_examples": [text[:MAX_EXAMPLE_CHARACTERS] for text in examples]},
            **{"sha256": digest.hexdigest(), "documents_sha256": hashlib.sha256(documents).hexdigest()},
        }
        write_json(path, record)

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
