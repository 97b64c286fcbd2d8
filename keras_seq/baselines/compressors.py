"""What general compressors make of a text that follows another: a reference that knows nothing of models.

    bits per character = 8 (|C(train + validation)| - |C(train)|) / characters of validation        of UTF-8 bytes

xz (LZMA) looks back over the whole text. bzip2 sorts blocks of 900 kB and forgets at the end of each what came before:
of the training text it knows what shares a block with the validation text. On tiny Shakespeare that is 104 kB, and the
figure is 2.40 bits; with the last 700 kB alone as training text, which share the block whole, it would be 2.26.
"""

import bz2
import lzma

from keras_seq.tokenizers.text_errors import check_text

MIN_DICTIONARY = 4096  # the smallest that LZMA takes
PIECE = 2**18  # bytes


def xz(data: bytes) -> bytes:
    """LZMA at its best: preset 9 extreme, the dictionary at least as large as the data."""
    size = max(MIN_DICTIONARY, 1 << len(data).bit_length())
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": size}]
    return _by_and_by(lzma.LZMACompressor(format=lzma.FORMAT_XZ, filters=filters), data)


def bzip2(data: bytes) -> bytes:
    """Burrows-Wheeler in blocks of 900 kB, the largest there are."""
    return _by_and_by(bz2.BZ2Compressor(9), data)


def _by_and_by(compressor, data):
    """The same bytes as at once; between two pieces Python hears Ctrl-C."""
    pieces = (data[start : start + PIECE] for start in range(0, len(data), PIECE))
    return b"".join([*map(compressor.compress, pieces), compressor.flush()])


COMPRESSORS = {"xz": xz, "bzip2": bzip2}


def compressed_bits(compressor, train: str, validation: str) -> float:
    """Bits per character of the validation text, given the training text.

    Args:
        compressor: "xz" or "bzip2".
        train: what stands before it; may be empty.
        validation: the text that is measured.

    Raises:
        ValueError: an empty validation text, none at all, or no such compressor.

    >>> compressed_bits("xz", "to be or not to be, " * 50, "to be or not to be, " * 50) < 0.1
    True
    """
    if not isinstance(compressor, str) or compressor not in COMPRESSORS:
        raise ValueError(f"There is no compressor {compressor!r}; expected {' or '.join(COMPRESSORS)}.")
    check_text(train)
    check_text(validation)
    if not validation:
        raise ValueError("The validation text is empty; expected at least one character to compress.")
    compress = COMPRESSORS[compressor]
    before = train.encode()
    return 8 * (len(compress(before + validation.encode())) - len(compress(before))) / len(validation)
