"""Token ids on disk, in one file or many, as one sequence that may be longer than memory.

    files = TokenFiles.open("FOLDER")                 a folder of `keras-seq prepare`; or .bin files
    windows = RandomWindows(files, 12, 64)            any windows; a batch reads its rows only
    train, validation = files.split(0.9)              at the border of a document

Rows are read by their position in the file (`pread`). Memory maps would take as long, but every page that was read
counts as memory of the process until it is unmapped, and a file that is cut off while it is mapped ends the process
without a message.
"""

import functools
import itertools
import operator
import os
import threading
from collections.abc import Sequence
from numbers import Real
from pathlib import Path

import numpy as np

from keras_seq import checks
from keras_seq.data import token_shards
from keras_seq.data.token_shards import Shard, TokenFilesError, damaged

MAX_OPEN_FILES = 256  # a usual limit of a process is 1024
SCAN_TOKENS = 1 << 20


class TokenFiles:
    """A sequence of ids on disk, `[N]`, or a part of one.

    `len(files)` is N, `files[a:b]` reads an int32 array, `np.asarray(files)` all of it; `part(a, b)` reads nothing.

    Args:
        shards: The files, in order.
        document_token: The id that begins each document; None if there is none.
        vocabulary_size: V: an id of V or more is damage, and an error; None for no check.

    Raises:
        TokenFilesError: There are no ids; in reading, a file cannot be read or has an id of V or more.
        ValueError: An argument is not an integer in its range.
    """

    def __init__(self, shards: Sequence[Shard], document_token: int | None = None, vocabulary_size: int | None = None):
        for name, value in (("document_token", document_token), ("vocabulary_size", vocabulary_size)):
            if value is not None:
                checks.integer(name, value, min_value=0)
        self.shards, self.document_token, self.vocabulary_size = tuple(shards), document_token, vocabulary_size
        counts = np.array([shard.num_tokens for shard in self.shards], "int64")
        self._ends = np.cumsum(counts)  # where each file ends, in ids of all files, and where it begins
        self._begins = self._ends - counts
        self.start, self.stop = 0, int(counts.sum())
        if not self.stop:
            raise TokenFilesError("There are no ids in the files of token ids: name files with ids in them.")
        if len({shard.dtype for shard in self.shards}) > 1:
            raise TokenFilesError("Some files have ids of two bytes and some of four; expected files of one kind.")
        self._dtype = np.dtype(self.shards[0].dtype)
        limit = min(vocabulary_size or 2**31, 2**31)
        self._limit = limit if limit <= np.iinfo(self._dtype).max else None  # ids have to be below it
        headers = np.array([shard.offset for shard in self.shards], "int64")
        self._offsets = headers - self._begins * self._dtype.itemsize  # of a file's bytes from those of all ids
        self._file = functools.lru_cache(MAX_OPEN_FILES)(lambda number: _PositionedFile(self.shards[number].path))

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        document_token: int | None = None,
        vocabulary_size: int | None = None,
    ) -> "TokenFiles":
        """Open a prepared folder, or files of nanoGPT, llm.c or modded-nanogpt.

        Args:
            path: A folder that `keras-seq prepare` wrote; a `.bin` file; a folder of `.bin` files, in the
                order of their names; or several of these files.
            document_token: The id that begins each document, such as GPT-2's 50256; from the index of a prepared
                folder.
            vocabulary_size: V; from the index of a prepared folder.

        Raises:
            TokenFilesError: A file is missing, damaged or of another format.
        """
        if token_shards.is_prepared(path):
            index = token_shards.read_index(path)
            return cls(token_shards.index_shards(path, index), index["document_token"], index["vocabulary_size"])
        paths = [path] if isinstance(path, str | os.PathLike) else list(path)
        files = [file for path in paths for file in (sorted(Path(path).glob("[!.]*.bin")) or [path])]
        return cls([token_shards.foreign_shard(file) for file in files], document_token, vocabulary_size)

    def __len__(self) -> int:
        """Return N."""
        return self.stop - self.start

    def __repr__(self) -> str:
        """Return the number of ids and files."""
        return f"<TokenFiles of {len(self):,} ids in {len(self.shards)} files>"

    def __getitem__(self, index: int | slice) -> np.ndarray | np.integer:
        """Read one id, or the ids of a slice without a step, int32 `[n]`."""
        if not isinstance(index, slice):
            position = operator.index(index)
            if not -len(self) <= position < len(self):
                raise IndexError(f"index {position} of {len(self)} ids.")
            return self.rows([position % len(self)], 1)[0, 0]
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise ValueError(f"step={step}; expected a slice of consecutive ids.")
        return self.rows([start], max(0, stop - start))[0]

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        """Read all ids."""
        if copy is False:
            raise ValueError("copy=False; expected None or True: the ids are read from files.")
        return self[:].astype(dtype or "int32", copy=False)

    def part(self, start: int, stop: int) -> "TokenFiles":
        """Return the ids from `start` to `stop`, the stop excluded, without reading them: 0 <= start < stop <= N."""
        checks.integer("stop", stop, min_value=1, max_value=len(self))
        checks.integer("start", start, min_value=0, max_value=stop - 1)
        part = object.__new__(TokenFiles)
        part.__dict__.update(self.__dict__)
        part.start, part.stop = self.start + start, self.start + stop
        return part

    def rows(self, starts: Sequence[int] | np.ndarray, length: int) -> np.ndarray:
        """Read rows of consecutive ids, also across the borders of files.

        Args:
            starts: Where the rows start, integers of any shape, from 0 to N - `length`.
            length: Ids in a row.

        Returns:
            int32 `[..., length]`.

        Raises:
            TokenFilesError: A file cannot be read, or has an id of V or more.
            ValueError: A row is not within the N ids, or the starts are not integers.
        """
        checks.integer("length", length, min_value=0)
        starts = np.asarray(starts)
        if starts.size and starts.dtype.kind not in "iu":
            raise ValueError(f"starts={checks.short_repr(starts)}; expected integers.")
        starts = starts.astype("int64", copy=False)
        return self.spans(starts.ravel(), np.full(starts.size, length)).reshape(*starts.shape, length)

    def spans(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Read spans of at least one id, one after the other: int64 `[n]` each -> int32 `[sum(lengths)]`."""
        if not len(starts) or not lengths[0]:
            return np.empty(0, "int32")
        is_outside = (starts < 0) | (starts > len(self) - lengths)
        if is_outside.any():
            start, length = (int(values[np.argmax(is_outside)]) for values in (starts, lengths))
            raise ValueError(f"Ids from {start} to {start + length} were asked for; expected 0 to {len(self)}.")
        ids = np.frombuffer(self._read(starts + self.start, lengths), self._dtype)  # [sum(lengths)]
        if self._limit is not None and ids.max() >= self._limit:
            first = int(np.argmax(ids >= self._limit))
            position = np.repeat(starts - np.cumsum(lengths) + lengths, lengths)[first] + first + self.start
            number = int(self._ends.searchsorted(position, side="right"))
            raise TokenFilesError(
                f"{self.shards[number].path} is damaged or of another vocabulary: it has the id {ids[first]} at "
                f"position {position - self._begins[number]}; expected ids below {self._limit}."
            )
        return ids.astype("int32")

    def _read(self, positions, lengths):
        """Return the bytes of spans of ids, by their positions in all files."""
        numbers, size, parts = self._ends.searchsorted(positions, side="right"), self._dtype.itemsize, []
        for number, position, length in zip(numbers.tolist(), positions.tolist(), lengths.tolist(), strict=True):
            while length:  # once for each file that the span goes over
                count = min(length, self._ends[number] - position)
                parts.append(self._file(number).read(self._offsets[number] + position * size, count * size))
                position, length, number = position + count, length - count, number + 1
        return b"".join(parts)

    def document_starts(self) -> np.ndarray:
        """Return where documents begin, int64 `[documents]`, from the files or by searching the document token."""
        return np.concatenate([np.empty(0, "int64"), *self._document_starts(0)])

    def _document_starts(self, position):
        """Yield the documents' starts from a position on, an array for each of the following files."""
        first, stop = self.start + position, self.stop
        for number in range(int(self._ends.searchsorted(first, side="right")), len(self.shards)):
            shard = self.shards[number]
            offset = int(self._begins[number])
            if offset >= stop:
                return
            if shard.documents is not None:
                starts = _read_starts(shard)
            elif self.document_token is None:
                raise TokenFilesError(f"{shard.path} does not tell where documents begin: give a document_token.")
            else:
                starts = self._search(offset, shard.num_tokens)
            starts = starts + offset
            yield starts[(starts >= first) & (starts < stop)] - self.start

    def _search(self, offset, num_tokens):
        starts = [np.empty(0, "int64")]
        for first in range(0, num_tokens, SCAN_TOKENS):
            length = min(SCAN_TOKENS, num_tokens - first)
            ids = np.frombuffer(self._read(np.array([offset + first]), np.array([length])), self._dtype)
            starts.append(np.flatnonzero(ids == self.document_token) + first)
        return np.concatenate(starts)

    def split(self, train_fraction: float = 0.9, by: str = "documents") -> tuple["TokenFiles", "TokenFiles"]:
        """Split the ids into a training part and the validation part after it, without reading them.

        Args:
            train_fraction: Fraction of the ids to train on, above 0 and below 1.
            by: `"documents"`: the validation part begins with the first document after that fraction; `"tokens"`:
                exactly at it.

        Raises:
            ValueError: An argument is out of its range, or no document begins after the fraction.
        """
        if not (isinstance(train_fraction, Real) and 0 < train_fraction < 1):
            raise ValueError(f"train_fraction={train_fraction!r}; expected a number between 0 and 1, such as 0.9.")
        checks.one_of("by", by, ("documents", "tokens"))
        middle = int(len(self) * train_fraction)
        if by == "documents":
            starts = (int(starts[0]) for starts in self._document_starts(max(1, middle)) if len(starts))
            middle = next(starts, 0)
        if not 0 < middle < len(self):
            raise ValueError(f"No document begins after train_fraction={train_fraction}: split by tokens.")
        return self.part(0, middle), self.part(middle, len(self))

    def verify(self) -> None:
        """Read all files and compare their checksums; a TokenFilesError names the first that is damaged."""
        for shard in self.shards:
            shard.check_size()
            shard.check_content()


def _read_starts(shard):
    """Return where documents begin in a file, int64 `[documents]`, in ascending order."""
    starts = np.fromfile(shard.documents, "<u8")
    if len(starts) and (starts[-1] >= shard.num_tokens or (starts[1:] <= starts[:-1]).any()):
        raise damaged(shard.documents, f"expected positions in ascending order, below {shard.num_tokens}")
    return starts.astype("int64")


def _seek_and_read(descriptor, size, position):
    with _SEEK_LOCK:
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.read(descriptor, size)


_SEEK_LOCK = threading.Lock()
_pread = getattr(os, "pread", _seek_and_read)  # Windows has none


class _PositionedFile:
    """A file that threads and forks read by position; it stays open as long as this object exists."""

    descriptor = None

    def __init__(self, path):
        self.path = path
        try:
            self.descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError as error:
            raise TokenFilesError(f"{path} can no longer be read ({error.strerror}): copy it again.") from None

    def read(self, position, size):
        data = b""
        while len(data) < size:  # a call reads at most 2 GiB
            if not (more := _pread(self.descriptor, size - len(data), position + len(data))):
                raise damaged(self.path, "it is shorter than it was")
            data += more
        return data

    def __del__(self):
        if self.descriptor is not None:
            os.close(self.descriptor)


def concatenated(parts: Sequence[TokenFiles]) -> TokenFiles:
    """Return several whole `TokenFiles` as one, in order; they have the same document token and vocabulary."""
    first, *others = parts
    for other in others:
        for name in ("document_token", "vocabulary_size"):
            if getattr(other, name) != getattr(first, name):
                raise ValueError(
                    f"{name} is {getattr(first, name)} in {first.shards[0].path.parent} and {getattr(other, name)} in "
                    f"{other.shards[0].path.parent}; expected folders of the same tokenizer."
                )
    if any(len(part) != part._ends[-1] for part in parts):
        raise ValueError("A part of files cannot be concatenated; expected whole files: split them afterwards.")
    shards = itertools.chain.from_iterable(part.shards for part in parts)
    return TokenFiles([*shards], first.document_token, first.vocabulary_size)
