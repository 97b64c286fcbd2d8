"""Documents in a different random order in each epoch, one after the other in full rows without padding.

    stream of an epoch = documents in the order of shuffle(seed, epoch);    rows: its windows, side by side

Every id of the stream but the first is predicted exactly once in an epoch, and the fewer than B T at its end not at
all. A row may hold several documents: with `document_token`, a model keeps them apart (`LanguageModel`).
"""

import functools
from dataclasses import dataclass, field

import numpy as np

from keras_seq import checks
from keras_seq.data.random_draws import permutation
from keras_seq.data.step_dataset import StepBatches
from keras_seq.data.token_files import TokenFiles


@dataclass(frozen=True, eq=False)
class PackedDocuments(StepBatches):
    """Batches of shuffled documents, packed into rows.

    Args:
        files: Ids on disk, which begin with a document. (Memory: 24 bytes a document.)
        batch_size: B, the rows of a batch.
        sequence_length: T, the positions of a row.
        seed: Integer of at least 0; the order of the documents depends on (seed, epoch) only.

    Raises:
        ValueError: The files do not begin with a document or have fewer than B T + 1 ids, or another argument is not an
            integer in its range.
    """

    files: TokenFiles = field(repr=False)
    batch_size: int
    sequence_length: int
    seed: int = 0

    def __post_init__(self):
        """Check the fields and read where the documents begin."""
        checks.integer("batch_size", self.batch_size, min_value=1)
        checks.integer("sequence_length", self.sequence_length, min_value=1)
        checks.integer("seed", self.seed, min_value=0)
        if not isinstance(self.files, TokenFiles):
            raise ValueError(f"files={checks.short_repr(self.files)}; expected TokenFiles.")
        starts = self.files.document_starts()
        if not len(starts) or starts[0] != 0:
            raise ValueError("files do not begin with a document: split them by documents.")
        object.__setattr__(self, "_borders", np.append(starts, len(self.files)))
        if self.steps_per_epoch < 1:
            raise ValueError(
                f"The documents have {len(self.files)} ids, fewer than the {self.tokens_per_step + 1} of a batch: give "
                "more documents, or a smaller batch_size or sequence_length."
            )

    @property
    def tokens_per_step(self) -> int:
        """B T, the targets of a batch."""
        return self.batch_size * self.sequence_length

    @property
    def steps_per_epoch(self) -> int:
        """P, the full batches of an epoch."""
        return (len(self.files) - 1) // self.tokens_per_step

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the batch of one step.

        Args:
            step: Number of the step, from 0.

        Returns:
            `(x, y)`, int32 `[B, T]` each: the ids, and the next ids.

        Raises:
            ValueError: The step is not an integer of at least 0.
        """
        epoch, index = divmod(checks.integer("step", step, min_value=0), self.steps_per_epoch)
        stream = self._stream(epoch, index * self.tokens_per_step, self.tokens_per_step + 1)
        shape = self.batch_size, self.sequence_length
        return stream[:-1].reshape(shape), stream[1:].reshape(shape)

    def _stream(self, epoch, position, length):
        """Return ids of an epoch's stream, from a position on."""
        order, ends = _order_and_ends(self, epoch)
        first, last = np.searchsorted(ends, (position, position + length - 1), side="right")
        documents = order[first : last + 1]
        starts, stops = self._borders[documents], self._borders[documents + 1]
        starts[0] = stops[0] - (ends[first] - position)
        stops[-1] -= ends[last] - (position + length)
        return self.files.spans(starts, stops - starts)


@functools.lru_cache(maxsize=1)
def _order_and_ends(packed, epoch):
    """Return the order of an epoch's documents, and where each ends in the stream."""
    lengths = np.diff(packed._borders)
    order = permutation(len(lengths), packed.seed, epoch, "documents")
    return order, np.cumsum(lengths[order])
