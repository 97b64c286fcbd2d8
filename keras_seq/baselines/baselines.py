"""Lines to hold a model's loss against that need no training: counting, and general compressors.

    uniform      log V, V the different characters of both texts
    unigram      the frequencies of characters in the training text
    n-gram       interpolated Kneser-Ney over the n - 1 characters before
    xz, bzip2    what the validation text adds to the compressed training text

All are nats per character of the whole validation text, as the models' own.
"""

import dataclasses
import math

import numpy as np

from keras_seq import checks
from keras_seq.baselines.compressors import COMPRESSORS, compressed_bits
from keras_seq.baselines.ngrams import KneserNeyNGrams
from keras_seq.tokenizers.text_errors import check_text


@dataclasses.dataclass(frozen=True)
class Baseline:
    """A loss that costs no training."""

    name: str
    nats_per_character: float

    @property
    def bits_per_character(self) -> float:
        """The same in bits."""
        return self.nats_per_character / math.log(2)


def compute_baselines(train_text: str, validation_text: str, order: int = 6) -> tuple[Baseline, ...]:
    """What counting and compressing reach on a validation text, the training text known.

    Args:
        train_text: the text to learn from.
        validation_text: the text to score.
        order: n of the longest n-grams, at least 1; every n from 2 on is there.

    Returns:
        "uniform", "unigram", "2-gram", ..., "xz", "bzip2", in this order.

    Raises:
        ValueError: a text without a character, or an order below 1.
    """
    for name, given in (("training", train_text), ("validation", validation_text)):
        check_text(given)
        if not given:
            raise ValueError(f"The {name} text is empty; references need at least one character of it.")
    checks.positive_integer("order", order)
    characters = np.frombuffer((train_text + validation_text).encode("utf-32-le"), "<u4")
    alphabet, ids = np.unique(characters, return_inverse=True)
    train, validation = ids[: len(train_text)], ids[len(train_text) :]
    found = [Baseline("uniform", math.log(len(alphabet)))]
    for n in range(1, order + 1):
        name = "unigram" if n == 1 else f"{n}-gram"
        found.append(Baseline(name, float(KneserNeyNGrams(train, n, len(alphabet)).nats(validation).mean())))
    for name in COMPRESSORS:
        found.append(Baseline(name, compressed_bits(name, train_text, validation_text) * math.log(2)))
    return tuple(found)
