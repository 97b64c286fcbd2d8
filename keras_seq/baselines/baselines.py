"""Compute baselines for a model's loss that need no training.

    uniform      log V, V the number of different characters of both texts
    unigram      the frequencies of characters in the training text
    n-gram       interpolated Kneser-Ney with a context of n - 1 characters
    xz, bzip2    8 (|C(train + validation)| - |C(train)|) / characters of validation      bits, of UTF-8 bytes

All are nats per character, averaged over the whole validation text. They have all text before a character to predict it
from, as models have in `val_loss_streaming`. But bzip2 sorts blocks of 900 kB independently: of the training text it
uses only the part that shares a block with the validation text.
"""

import bz2
import dataclasses
import lzma
import math

import numpy as np

from keras_seq import checks
from keras_seq.baselines.ngrams import KneserNeyNGrams
from keras_seq.tokenizers.text import check_text

MIN_DICTIONARY_BYTES = 4096  # the minimum of LZMA
CHUNK_BYTES = 2**18


@dataclasses.dataclass(frozen=True)
class Baseline:
    """The loss of a baseline on a validation text.

    Args:
        name: Name of the baseline, such as "unigram".
        loss_per_character: Mean loss in nats per character.
        sample_loss_per_character: The mean over some stretches of the text; None if none were given, and for
            compressors, which have no loss of a character.
    """

    name: str
    loss_per_character: float
    sample_loss_per_character: float | None = None

    @property
    def bits_per_character(self) -> float:
        """The mean loss in bits per character."""
        return self.loss_per_character / math.log(2)


def compute_baselines(
    train_text: str, validation_text: str, order: int = 6, stretches: np.ndarray | None = None
) -> tuple[Baseline, ...]:
    """Compute the losses of n-gram models and compressors on a validation text.

    Args:
        train_text: The text to count n-grams in, which compressors read first.
        validation_text: The text to score.
        order: Maximum n of the n-gram models, at least 1.
        stretches: Where the stretches of the validation text begin and end whose mean loss is wanted too, integers
            `[K, 2]`: those of a validation during training.

    Returns:
        The baselines "uniform", "unigram", "2-gram", ..., "xz", "bzip2", in this order.

    Raises:
        ValueError: A text is empty, or the order is not an integer of at least 1.
    """
    for name, text in (("training", train_text), ("validation", validation_text)):
        check_text(text)
        if not text:
            raise ValueError(f"The {name} text is empty; expected at least one character.")
    checks.positive_integer("order", order)
    characters = np.frombuffer((train_text + validation_text).encode("utf-32-le"), "<u4")
    alphabet, ids = np.unique(characters, return_inverse=True)
    train_ids, validation_ids = ids[: len(train_text)], ids[len(train_text) :]
    spans = [] if stretches is None else [slice(*span) for span in np.asarray(stretches).tolist()]
    uniform = math.log(len(alphabet))
    baselines = [Baseline("uniform", uniform, uniform if spans else None)]
    for n in range(1, order + 1):
        name = "unigram" if n == 1 else f"{n}-gram"
        losses = KneserNeyNGrams(train_ids, n, len(alphabet)).token_losses(validation_ids)
        sample_loss = float(np.concatenate([losses[span] for span in spans]).mean()) if spans else None
        baselines.append(Baseline(name, float(losses.mean()), sample_loss))
    for name in COMPRESSORS:
        baselines.append(Baseline(name, compressed_bits(name, train_text, validation_text) * math.log(2)))
    return tuple(baselines)


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
        validation: The text to measure, not empty.

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
