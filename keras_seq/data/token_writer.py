"""Write the documents of a group of files as one shard of token ids; `token_shards.py` has the format.

    ids of a document = [document token] + ids of its text

A record, NAME.json, is written last: without it, the other files of a shard do not count.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from keras_seq.atomic_files import atomic_write, write_json
from keras_seq.data.document_texts import read_texts
from keras_seq.data.documents import Part
from keras_seq.data.token_shards import DTYPES
from keras_seq.tokenizers import Tokenizer, TokenizerError, document_token
from keras_seq.tokenizers.document_token import DOCUMENT_CHARACTER
from keras_seq.tokenizers.subword_tokenizers import SubwordTokenizer

RECORD_KEYS = (
    *("name", "tokens", "documents", "characters", "unknown", "unknown_examples"),
    *("sha256", "documents_sha256"),
)
MAX_EXAMPLES, MAX_EXAMPLE_CHARACTERS = 5, 40  # of unknown text in a record
BATCH_CHARACTERS = 1 << 16  # characters that are encoded at once; larger arrays would need new pages each time


@dataclasses.dataclass(frozen=True)
class ShardWriter:
    """Write shards of one folder.

    Args:
        folder: The folder.
        tokenizer: Tokenizer of all shards.
        field: As for `read_texts`.
    """

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
        """Return whether a shard has a record, and files of the sizes that it says.

        Args:
            number: Number of the shard.
        """
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
        """Write the shard of a group of files.

        Args:
            number: Number of the shard.
            group: The group.

        Raises:
            DocumentsError: A file cannot be read, or was changed.
            TokenizerError: A text has a character that the tokenizer does not know.
            OSError: The shard cannot be written.
        """
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
