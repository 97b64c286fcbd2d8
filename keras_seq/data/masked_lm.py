"""Mask tokens for BERT's masked language modeling.

    selected  each token that is not special, with probability `mask_selection_rate`
    of these  80 % become [MASK], 10 % a random token, 10 % are unchanged

so that the model cannot distinguish a selected, unchanged token from one that was not selected, and has to represent
every token. Devlin et al. (2019, https://arxiv.org/abs/1810.04805, section 3.1 and appendix A). As in RoBERTa (Liu et
al., 2019, https://arxiv.org/abs/1907.11692), tokens are selected anew at every step, as a function of (seed, step).
"""

from dataclasses import dataclass
from functools import cached_property
from numbers import Real

import numpy as np

from keras_seq import checks
from keras_seq.data.random_draws import integers, uniform

MASK_TOKEN_RATE, RANDOM_TOKEN_RATE = 0.8, 0.1  # of the selected tokens; the others are unchanged


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
        for name, ids in (
            ("mask_token_id", [self.mask_token_id]),
            ("unselectable_token_ids", self.unselectable_token_ids),
        ):
            for id in ids:
                checks.integer(name, id, min_value=0)
                if id >= self.vocabulary_size:
                    raise ValueError(f"{name} has {id}; expected ids below vocabulary_size={self.vocabulary_size}.")
        rate = self.mask_selection_rate
        if isinstance(rate, bool) or not isinstance(rate, Real) or not 0 < rate <= 1:
            raise ValueError(f"mask_selection_rate={rate!r}; expected a number above 0 and at most 1, such as 0.15.")
        if not len(self.selectable_ids):
            raise ValueError(
                f"All {self.vocabulary_size} ids are special or [MASK]; expected some to select: give a larger "
                "vocabulary_size or fewer unselectable_token_ids."
            )

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
            ids: Integers `[B, T]`, padded.

        Returns:
            `(masked_ids, targets, weights)`, each `[B, T]`: the ids with masks, int32; the original ids, int32; 1 for
            selected tokens and 0 elsewhere, float32. A row without a selectable token has no weight.

        Raises:
            ValueError: The ids are not integers or outside the vocabulary, or the step is not an integer of at least 0.
        """
        checks.integer("step", step, min_value=0)
        ids = np.asarray(ids)
        if ids.dtype.kind not in "iu":
            raise ValueError(f"ids have the dtype {ids.dtype.name}; expected integers: give ids, not their embeddings.")
        checks.ids_below("ids", ids, self.vocabulary_size)
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
