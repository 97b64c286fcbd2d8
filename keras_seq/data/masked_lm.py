"""BERT's masked language modelling: some ids are hidden, and the model is to say what they were.

    chosen    each real id that is not special, with probability `fraction`
    of these  80 % become [MASK], 10 % an id drawn at random, 10 % stay as they are

so that the model cannot tell an id that was chosen and kept from one that was not, and has to represent every id.
Devlin et al. (2019, https://arxiv.org/abs/1810.04805, section 3.1 and appendix A). As in RoBERTa (Liu et al.,
2019, https://arxiv.org/abs/1907.11692) the choice is made anew at every step: it is a function of (seed, step).
"""

from dataclasses import dataclass
from functools import cached_property
from numbers import Real

import numpy as np
import tensorflow as tf

from keras_seq import checks
from keras_seq.data.step_dataset import check_step

MASK_TOKEN_RATE, RANDOM_TOKEN_RATE = 0.8, 0.1  # of the chosen; the rest stays


@dataclass(frozen=True)
class MaskedLMMaskGenerator:
    """Hides ids of a batch as a function of the step.

    Args:
        mask_id: the id of [MASK]; it is special too.
        vocabulary_size: V; every id is below it.
        special_ids: ids that are never chosen and never drawn: padding, [CLS], [SEP], ...
        fraction: the probability with which an ordinary id is chosen, above 0 and at most 1.
        seed: a whole number; the draws depend on (seed, step) and the shape of the batch only.

    Raises:
        ValueError: an id outside the vocabulary, no ordinary id left in it, `fraction` or `seed` out of its range.

    >>> masking = MaskedTokens(mask_id=1, vocabulary_size=10, special_ids=(0,))
    >>> masked, targets, weights = masking.at(7, [[5, 6, 7, 0]])
    >>> float(weights[0, 3])  # padding
    0.0
    """

    mask_id: int
    vocabulary_size: int
    special_ids: tuple[int, ...] = ()
    fraction: float = 0.15
    seed: int = 0

    def __post_init__(self):
        if not isinstance(self.special_ids, list | tuple):
            raise ValueError(f"special_ids={self.special_ids!r}; expected a list of ids.")
        object.__setattr__(self, "special_ids", tuple(self.special_ids))
        checks.integer("vocabulary_size", self.vocabulary_size, min_value=1)
        checks.integer("seed", self.seed, min_value=0)
        for name, ids in (("mask_id", [self.mask_id]), ("special_ids", self.special_ids)):
            for number in ids:
                checks.integer(name, number, min_value=0)
                if number >= self.vocabulary_size:
                    raise ValueError(f"{name} has {number}; expected ids below vocabulary_size={self.vocabulary_size}.")
        if isinstance(self.fraction, bool) or not isinstance(self.fraction, Real) or not 0 < self.fraction <= 1:
            raise ValueError(f"fraction={self.fraction!r}; expected a probability above 0 and at most 1, such as 0.15.")
        if not len(self.ordinary_ids):
            raise ValueError(
                f"All {self.vocabulary_size} ids are special or [MASK]; expected some to choose from: "
                "give a larger vocabulary_size or fewer special_ids."
            )

    @cached_property
    def ordinary(self) -> np.ndarray:
        """Whether each id may be chosen: bool `[V]`."""
        table = np.ones(self.vocabulary_size, bool)
        table[[self.mask_id, *self.special_ids]] = False
        return table

    @cached_property
    def ordinary_ids(self) -> np.ndarray:
        """The ids that may be chosen and drawn, in order: int32."""
        return np.flatnonzero(self.ordinary).astype("int32")

    def batch(self, step: int | tf.Tensor, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The batch as the model sees it at one step, and what it is to say.

        Args:
            step: the number of the step, from 0: a Python integer, or an integer tensor, eager or symbolic.
            ids: integers `[B, T]`, with padding where a row is shorter.

        Returns:
            `(masked, targets, weights)`, each `[B, T]`: the ids with some of them hidden, int32; the ids as they were,
            int32; 1 where an id was chosen and 0 elsewhere, float32. A row without an ordinary id has no weight.

        Raises:
            ValueError: the ids are no integers, or one that is known by now is none of the vocabulary; the step is no
                whole number of at least 0.
        """
        check_step(step)
        ids = tf.convert_to_tensor(ids)
        if not ids.dtype.is_integer:
            raise ValueError(f"ids of type {ids.dtype.name}; expected integers: give ids, not their embeddings.")
        checks.ids_below("ids", ids, self.vocabulary_size)
        ids = tf.cast(ids, tf.int32)
        shape = tf.shape(ids)
        # Split, for windows and others draw from (seed, step) as it is.
        seeds = tf.random.split(tf.stack([tf.constant(self.seed, tf.int64), tf.cast(step, tf.int64)]), 2)
        draw = tf.random.stateless_uniform(shape, seeds[0])
        index = tf.random.stateless_uniform(shape, seeds[1], maxval=len(self.ordinary_ids), dtype=tf.int32)
        chosen = tf.gather(self.ordinary, ids) & (draw < self.fraction)
        # given that it is below the fraction, the draw is uniform below it: it also says what becomes of the id
        masked = tf.where(chosen & (draw < MASK_TOKEN_RATE * self.fraction), self.mask_id, ids)
        replaced = (
            chosen
            & (draw >= MASK_TOKEN_RATE * self.fraction)
            & (draw < (MASK_TOKEN_RATE + RANDOM_TOKEN_RATE) * self.fraction)
        )
        masked = tf.where(replaced, tf.gather(self.ordinary_ids, index), masked)
        return masked, ids, tf.cast(chosen, tf.float32)
