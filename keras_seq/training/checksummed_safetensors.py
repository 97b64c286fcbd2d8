"""Write and read safetensors files with a checksum: what is read is what was written, to the bit, or an error.

    [8 bytes: n] [n bytes of JSON: name -> dtype, shape, offsets; __metadata__ -> checksum, ...] [the arrays]
    checksum = blake2b(the other metadata; each name, dtype, shape and bytes, in the order of the names)

The file is not trusted: header sizes are checked against the file size and `max_bytes` before anything is allocated.
Format: https://huggingface.co/docs/safetensors
"""

import hashlib
import json
import math
import os
import pathlib
import stat

import numpy as np
from safetensors.numpy import save

from keras_seq.files import atomic_write

MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library
CHECKSUM = "checksum"
DTYPES = {
    **{name: np.dtype(code) for name, code in (("F64", "f8"), ("F32", "f4"), ("F16", "f2"), ("BOOL", "?"))},
    **{f"{sign}{8 * width}": np.dtype(f"{sign.lower()}{width}") for sign in "IU" for width in (1, 2, 4, 8)},
}


class CorruptFileError(ValueError):
    """Report a file that is not an intact safetensors file with a checksum."""


def checksum(arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> str:
    """Return the digest of arrays and metadata: 32 hexadecimal digits.

    Args:
        arrays: Arrays by name.
        metadata: Metadata without the checksum.
    """
    digest = hashlib.blake2b(json.dumps(sorted(metadata.items())).encode(), digest_size=16)
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def write(path: str | pathlib.Path, arrays: dict[str, np.ndarray], metadata: dict[str, str]):
    """Write arrays with a checksum, atomically and durably.

    Args:
        path: Path of the file.
        arrays: Arrays by name.
        metadata: Further metadata, strings by name.

    Raises:
        OSError: If the file cannot be written.
    """
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}  # `save` writes memory as it is
    data = save(arrays, {**metadata, CHECKSUM: checksum(arrays, metadata)})
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)


def read(path: str | pathlib.Path, max_bytes: int) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Return the metadata without the checksum, and the arrays by name.

    Args:
        path: Path of the file; symbolic links are refused.
        max_bytes: Largest accepted size of all arrays together.

    Returns:
        Metadata and arrays.

    Raises:
        CorruptFileError: If the file is not as `write` wrote it, or is too large.
        OSError: If the file is missing or may not be read.
    """
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        raise CorruptFileError("it is a symbolic link or not a regular file")
    with open(path, "rb") as file:
        start, header = _header(file, status.st_size)
        size = status.st_size - start
        if size > max_bytes:
            raise CorruptFileError(f"its arrays have {size:,} bytes; expected at most {max_bytes:,}")
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict):
            raise CorruptFileError("its metadata are not a JSON object")
        entries = {name: _parse_entry(entry) for name, entry in header.items()}
        _check_contiguous(entries, size)
        data = file.read(size)
    if len(data) != size:
        raise CorruptFileError("it became shorter while it was read")
    arrays = {
        name: np.frombuffer(data, dtype, math.prod(shape), begin).reshape(shape)
        for name, (dtype, shape, begin, _) in entries.items()
    }
    if metadata.pop(CHECKSUM, None) != checksum(arrays, metadata):
        raise CorruptFileError("its checksum does not match")
    return metadata, arrays


def _header(file, size):
    """Return the offset of the arrays and the header as a dict."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
        raise CorruptFileError("its header is longer than the file")
    try:
        header = json.loads(file.read(length))
    except (ValueError, RecursionError) as error:
        raise CorruptFileError("its header is not JSON") from error
    if not isinstance(header, dict):
        raise CorruptFileError("its header is not a JSON object")
    return 8 + length, header


def _parse_entry(entry):
    """Return dtype, shape, begin and end of one array, checked for consistency."""
    try:
        dtype, shape, (begin, end) = DTYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
        non_negative = all(type(n) is int and n >= 0 for n in (*shape, begin, end))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFileError("its header is not a safetensors header") from error
    if not non_negative or len(shape) > 32 or end - begin != math.prod(shape) * dtype.itemsize:
        raise CorruptFileError("the sizes in its header are inconsistent")
    return dtype, shape, begin, end


def _check_contiguous(entries, size):
    """Refuse arrays that overlap, leave gaps or do not fill the file."""
    last = 0
    for _, _, begin, end in sorted(entries.values(), key=lambda entry: entry[2:]):
        if begin != last:
            raise CorruptFileError("its arrays overlap or leave gaps")
        last = end
    if last != size:
        raise CorruptFileError("its length does not match its header")
