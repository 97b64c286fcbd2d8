"""Folders of token ids with a weight each: a mixture of sources.

    --corpus 0.7:FOLDER_A 0.3:FOLDER_B

A row of a training batch is drawn from a source with the share of its weight in the sum (`MixedWindows`). What is read
of the beginning, as for validation, has the sources one after the other in the same shares.
"""

import dataclasses
import os
import re
from collections.abc import Sequence

import numpy as np

from keras_seq.data import MixedWindows, RandomWindows, TokenFiles

WEIGHTED = re.compile(r"(\d+\.?\d*|\.\d+):(.+)", re.ASCII | re.DOTALL)


@dataclasses.dataclass(frozen=True)
class TokenMixture:
    """Ids of several sources.

    `len(mixture)` is the number of all ids, and `mixture[:n]` reads at most n of them, `[<= n]`: the beginnings of the
    sources, as many of each as its share.

    Args:
        parts: The ids of each source.
        weights: Their weights, above 0.
    """

    parts: tuple[TokenFiles, ...]
    weights: tuple[float, ...]

    def __len__(self) -> int:
        """Return the number of all ids."""
        return sum(map(len, self.parts))

    def __getitem__(self, index: slice) -> np.ndarray:
        """Read the beginnings of the sources."""
        return np.concatenate([part[:n] for part, n in zip(self.parts, self.counts(index.stop), strict=True)])

    def counts(self, total: int) -> list[int]:
        """Return how many ids of each source are its share of `total` ids, or of as many as all shares allow."""
        shares = [weight / sum(self.weights) for weight in self.weights]
        total = min(total, *(len(part) / share for part, share in zip(self.parts, shares, strict=True)))
        return [int(total * share) for share in shares]


def weighted_names(names: Sequence[str]) -> tuple[list[str], list[float] | None]:
    """Return the folders that the words of `--corpus` name, and their weights, None without any.

    Raises:
        ValueError: Some words have a weight and some have not, or a weight is 0.
    """
    matches = [None if os.path.lexists(name) else WEIGHTED.fullmatch(name) for name in names]
    if not any(matches):
        return [*names], None
    for name, match in zip(names, matches, strict=True):
        if match is None or not float(match[1]) > 0:
            raise ValueError(
                f"--corpus {' '.join(names)}: {name} has no weight above 0; expected a weight for each folder, such "
                "as 0.7:FOLDER_A 0.3:FOLDER_B."
            )
    return [match[2] for match in matches], [float(match[1]) for match in matches]


def random_windows(ids, batch_size: int, sequence_length: int, seed: int) -> RandomWindows | MixedWindows:
    """Return the `RandomWindows` of ids, or the `MixedWindows` of a `TokenMixture`."""
    if not isinstance(ids, TokenMixture):
        return RandomWindows(ids, batch_size, sequence_length, seed=seed)
    sources = [RandomWindows(part, batch_size, sequence_length, seed=seed) for part in ids.parts]
    return MixedWindows(sources, ids.weights, seed=seed)
