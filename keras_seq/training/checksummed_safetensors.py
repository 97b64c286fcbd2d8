"""A safetensors file with a seal: what is read is what was written, to the last bit, or an error.

    [8 bytes: n] [n bytes of JSON: name -> dtype, shape, offsets; __metadata__ -> seal, ...] [the numbers]
    seal = blake2b(the other metadata; each name, dtype, shape and bytes, in the order of the names)

Reading believes nothing: the sizes in the header have to fit the file, and the file the most bytes that the reader
expects, before anything of that size is allocated. (https://huggingface.co/docs/safetensors)
"""

import hashlib
import json
import math
import os
import stat

import numpy as np
from safetensors.numpy import save

from keras_seq.atomic_files import atomic_write

MAX_HEADER_BYTES = 100_000_000  # as safetensors has it
DTYPES = {
    **{name: np.dtype(kind) for name, kind in (("F64", "f8"), ("F32", "f4"), ("F16", "f2"), ("BOOL", "?"))},
    **{f"{sign}{8 * width}": np.dtype(f"{sign.lower()}{width}") for sign in "IU" for width in (1, 2, 4, 8)},
}


class CorruptFileError(ValueError):
    """A file that is torn, damaged, or none of this kind."""


def checksum(arrays: dict, metadata: dict) -> str:
    """The digest of arrays by name and of the metadata but the seal itself: 32 hexadecimal digits."""
    digest = hashlib.blake2b(json.dumps(sorted(metadata.items())).encode(), digest_size=16)
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def write(path, arrays: dict, metadata: dict):
    """Writes arrays by name with their seal; whole or not at all, and durable."""
    data = save(arrays, {**metadata, "checksum": checksum(arrays, metadata)})
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)


def read(path, most_bytes) -> tuple[dict, dict]:
    """The metadata, and the arrays by name.

    Args:
        path: the file; no symbolic link.
        most_bytes: how many bytes of numbers are expected at most.

    Raises:
        Broken: why it cannot be used.
        OSError: it is not there, or may not be read.
    """
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        raise CorruptFileError("it is a symbolic link, or no plain file")
    with open(path, "rb") as file:
        start, header = _header(file, status.st_size)
        size = status.st_size - start
        if size > most_bytes:
            raise CorruptFileError(f"it has {size:,} bytes of numbers where {most_bytes:,} are expected")
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict):
            raise CorruptFileError("its metadata are no words by name")
        places = {name: _parse_entry(entry) for name, entry in header.items()}
        _check_contiguous(places, size)
        data = file.read(size)
    if len(data) != size:
        raise CorruptFileError("it became shorter while it was read")
    arrays = {
        name: np.frombuffer(data, dtype, math.prod(shape), begin).reshape(shape)
        for name, (dtype, shape, begin, _) in places.items()
    }
    if metadata.pop("checksum", None) != checksum(arrays, metadata):
        raise CorruptFileError("its checksum is another")
    return metadata, arrays


def _header(file, size):
    """Where the numbers begin, and the header as JSON has it."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
        raise CorruptFileError("its header is longer than the file")
    try:
        header = json.loads(file.read(length))
    except (ValueError, RecursionError) as error:
        raise CorruptFileError("its header is no JSON") from error
    if not isinstance(header, dict):
        raise CorruptFileError("its header names no numbers")
    return 8 + length, header


def _parse_entry(entry):
    """The dtype, the shape and the first and last byte of one array, as far as they make sense."""
    try:
        dtype, shape, (begin, end) = DTYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
        whole = all(type(n) is int and n >= 0 for n in (*shape, begin, end))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFileError("its header is not that of safetensors") from error
    if not whole or len(shape) > 32 or end - begin != math.prod(shape) * dtype.itemsize:
        raise CorruptFileError("the sizes in its header do not fit together")
    return dtype, shape, begin, end


def _check_contiguous(places, size):
    """The arrays lie side by side and fill the file."""
    last = 0
    for _, _, begin, end in sorted(places.values(), key=lambda place: place[2:]):
        if begin != last:
            raise CorruptFileError("its numbers overlap or leave gaps")
        last = end
    if last != size:
        raise CorruptFileError("its length is another than its header says")
