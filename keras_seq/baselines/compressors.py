"""Compute the compression of a text by xz and bzip2, given a training text, as a baseline for language models.

    bits per character = 8 (|C(train + validation)| - |C(train)|) / characters of validation        of UTF-8 bytes

xz (LZMA) refers back to the whole text. bzip2 sorts blocks of 900 kB independently: of the training text it uses only
the part that shares a block with the validation text. On tiny Shakespeare that is 104 kB, and the result is 2.40 bits;
with the last 700 kB alone as training text, which share the block entirely, it would be 2.26.
"""

import bz2
import lzma

from keras_seq.tokenizers.text import check_text

MIN_DICTIONARY_BYTES = 4096  # the minimum of LZMA
CHUNK_BYTES = 2**18


def xz(data: bytes) -> bytes:
    """Compress with LZMA: preset 9 extreme, and a dictionary at least as large as the data."""
    size = max(MIN_DICTIONARY_BYTES, 1 << len(data).bit_length())
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": size}]
    return _compress_in_chunks(lzma.LZMACompressor(format=lzma.FORMAT_XZ, filters=filters), data)


def bzip2(data: bytes) -> bytes:
    """Compress with bzip2 in blocks of 900 kB, the maximum."""
    return _compress_in_chunks(bz2.BZ2Compressor(9), data)


def _compress_in_chunks(compressor, data):
    """Compress in chunks, between which Python handles Ctrl-C; the result is the same."""
    chunks = (data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES))
    return b"".join([*map(compressor.compress, chunks), compressor.flush()])


COMPRESSORS = {"xz": xz, "bzip2": bzip2}
"""Functions from bytes to compressed bytes, by name."""


def compressed_bits(compressor: str, train: str, validation: str) -> float:
    """Compute the bits per character of a validation text that is compressed after a training text.

    Args:
        compressor: "xz" or "bzip2".
        train: The training text; may be empty.
        validation: The text to measure.

    Raises:
        ValueError: The validation text is empty, an argument is not a text, or the compressor is unknown.

    >>> compressed_bits("xz", "to be or not to be, " * 50, "to be or not to be, " * 50) < 0.1
    True
    """
    if not isinstance(compressor, str) or compressor not in COMPRESSORS:
        raise ValueError(f"compressor={compressor!r}; expected {' or '.join(COMPRESSORS)}.")
    check_text(train)
    check_text(validation)
    if not validation:
        raise ValueError("The validation text is empty; expected at least one character to compress.")
    compress = COMPRESSORS[compressor]
    prefix = train.encode()
    return 8 * (len(compress(prefix + validation.encode())) - len(compress(prefix))) / len(validation)
