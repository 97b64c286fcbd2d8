"""Batches of rows of arrays, shuffled in each epoch, and BERT's masked language modeling: functions of the step number.

    ArrayBatches            rows shuffle(0 ... N-1)[b B : (b + 1) B],   b = s mod P,  P = N // B     for step s
    MaskedLMMaskGenerator   selects each token that is not special, with probability `mask_selection_rate`:
                            80 % of these become [MASK], 10 % a random token, 10 % are unchanged

The order of the rows is drawn from (seed, s div P): an epoch of P steps contains no example twice, and the N mod B
examples that it leaves out are different in each epoch. A model cannot distinguish a selected, unchanged token from one
that was not selected, so it has to represent every token (Devlin et al., 2019, https://arxiv.org/abs/1810.04805,
section 3.1 and appendix A). Tokens are selected anew at every step, as in RoBERTa (https://arxiv.org/abs/1907.11692).
"""

from dataclasses import dataclass
from functools import cached_property

import keras
import numpy as np

from keras_seq import checks
from keras_seq.data.pipeline import StepBatches
from keras_seq.ops import tensor_checks
from keras_seq.random_draws import integers, permutation, uniform

MASK_TOKEN_RATE, RANDOM_TOKEN_RATE = 0.8, 0.1  # of the selected tokens; the others are unchanged


@dataclass(frozen=True, eq=False)
class ArrayBatches(StepBatches):
    """Batches of examples in a different random order in each epoch.

    Args:
        arrays: Arrays of equal length N in any nesting of tuples and dicts, such as `(x [N, T], y [N, T])`.
        batch_size: B, the rows of a batch.
        seed: Integer of at least 0; the order depends on (seed, epoch) only.

    Raises:
        ValueError: There are no arrays, their lengths differ, N is less than B, or B or the seed is not an integer in
            its range.

    >>> examples = ArrayBatches(([10, 20, 30, 40], [1, 2, 3, 4]), batch_size=2)
    >>> sorted(int(x) for step in range(2) for x in examples.batch(step)[0])
    [10, 20, 30, 40]
    """

    arrays: tuple | dict
    batch_size: int
    seed: int = 0

    def __post_init__(self):
        """Check the fields."""
        checks.integer("batch_size", self.batch_size, min_value=1)
        checks.integer("seed", self.seed, min_value=0)
        object.__setattr__(self, "arrays", keras.tree.traverse(_as_array, self.arrays))
        lengths = {array.shape[0] if array.ndim else None for array in keras.tree.flatten(self.arrays)}
        if len(lengths) != 1 or None in lengths:
            raise ValueError(f"arrays have {lengths or 'no'} examples; expected the same number in all: [N, ...] each.")
        if self.num_examples < self.batch_size:
            raise ValueError(f"{self.num_examples} examples; expected at least batch_size={self.batch_size}.")

    @property
    def num_examples(self) -> int:
        """N, the number of examples."""
        return len(keras.tree.flatten(self.arrays)[0])

    @property
    def steps_per_epoch(self) -> int:
        """P, the full batches of an epoch."""
        return self.num_examples // self.batch_size

    def batch(self, step: int) -> tuple | dict:
        """Return the batch of a step, from 0: NumPy arrays `[B, ...]`, nested like `arrays`."""
        epoch, index = divmod(checks.integer("step", step, min_value=0), self.steps_per_epoch)
        order = permutation(self.num_examples, self.seed, epoch, "examples")
        rows = order[index * self.batch_size :][: self.batch_size]
        return keras.tree.map_structure(lambda array: array[rows], self.arrays)


def _as_array(value):
    """Return a list or tensor as an array; None for a tuple or dict, into which Keras then goes."""
    return None if isinstance(value, tuple | dict) else np.asarray(value)


@dataclass(frozen=True)
class MaskedLMMaskGenerator:
    """Mask random tokens of a batch, as a function of the step.

    Args:
        mask_token_id: The id of [MASK], which is special too.
        vocabulary_size: V; every id is below it.
        unselectable_token_ids: Ids of special tokens, which are never selected and never drawn: padding, [CLS],
            [SEP], ...
        mask_selection_rate: Probability with which an ordinary token is selected, above 0 and at most 1.
        seed: Integer of at least 0; the draws depend on (seed, step) and the shape of the batch only.

    Raises:
        ValueError: An id is outside the vocabulary, all ids are special, or the rate or the seed is out of its range.

    >>> masking = MaskedLMMaskGenerator(mask_token_id=1, vocabulary_size=10, unselectable_token_ids=(0,))
    >>> masked_ids, targets, weights = masking.batch(7, [[5, 6, 7, 0]])
    >>> float(weights[0, 3])  # padding
    0.0
    """

    mask_token_id: int
    vocabulary_size: int
    unselectable_token_ids: tuple[int, ...] = ()
    mask_selection_rate: float = 0.15
    seed: int = 0

    def __post_init__(self):
        """Check the fields."""
        if not isinstance(self.unselectable_token_ids, list | tuple):
            raise ValueError(f"unselectable_token_ids={self.unselectable_token_ids!r}; expected a list of ids.")
        object.__setattr__(self, "unselectable_token_ids", tuple(self.unselectable_token_ids))
        checks.integer("vocabulary_size", self.vocabulary_size, min_value=1)
        checks.integer("seed", self.seed, min_value=0)
        checks.integer("mask_token_id", self.mask_token_id, 0, self.vocabulary_size - 1)
        for id in self.unselectable_token_ids:
            checks.integer("unselectable_token_ids", id, 0, self.vocabulary_size - 1)
        if checks.number("mask_selection_rate", self.mask_selection_rate, min_value=0, max_value=1) == 0:
            raise ValueError("mask_selection_rate=0; expected a number above 0, such as 0.15.")
        if not len(self.selectable_ids):
            raise ValueError(f"All {self.vocabulary_size} ids are special or [MASK]; expected some to select.")

    @cached_property
    def is_selectable(self) -> np.ndarray:
        """Mark the ids that may be selected, bool `[V]`."""
        table = np.ones(self.vocabulary_size, bool)
        table[[self.mask_token_id, *self.unselectable_token_ids]] = False
        return table

    @cached_property
    def selectable_ids(self) -> np.ndarray:
        """The ids that may be selected and drawn, ascending, int32."""
        return np.flatnonzero(self.is_selectable).astype("int32")

    def batch(self, step: int, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mask a batch, and return it with its targets.

        Args:
            step: Number of the step, from 0.
            ids: Integers `[B, T]` below V, padded.

        Returns:
            `(masked_ids, targets, weights)`, each `[B, T]`: the ids with masks, int32; the original ids, int32; 1 for
            selected tokens and 0 elsewhere, float32. A row without a selectable token has no weight.
        """
        checks.integer("step", step, min_value=0)
        ids = np.asarray(ids)
        if ids.dtype.kind not in "iu":
            raise ValueError(f"ids have the dtype {ids.dtype.name}; expected integers: give ids, not their embeddings.")
        tensor_checks.ids_below("ids", ids, self.vocabulary_size)
        ids = ids.astype("int32")
        draw = uniform(ids.shape, self.seed, step, "masks")
        index = integers(ids.shape, len(self.selectable_ids), self.seed, step, "random tokens")
        rate = self.mask_selection_rate
        selected = self.is_selectable[ids] & (draw < rate)
        # A draw below the rate is uniform there, so it also decides between [MASK], a random token and no change.
        masked_ids = np.where(selected & (draw < MASK_TOKEN_RATE * rate), self.mask_token_id, ids)
        replaced = selected & (draw >= MASK_TOKEN_RATE * rate) & (draw < (MASK_TOKEN_RATE + RANDOM_TOKEN_RATE) * rate)
        masked_ids = np.where(replaced, self.selectable_ids[index], masked_ids)
        return masked_ids, ids, selected.astype("float32")
