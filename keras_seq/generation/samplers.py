"""From logits to an id: steps that change the logits, then one draw.

    repetition_penalty r   z / r where z > 0, else z r, for ids that are in the text already    Keskar et al. (2019)
    temperature t          z / t; zero takes the likeliest id
    top_k k                the k likeliest ids stay                                             Fan et al. (2018)
    top_p p                the fewest likeliest ids that together have probability p            Holtzman et al. (2020)
    min_p m                ids at least m times as likely as the likeliest                      Nguyen et al. (2024)
    typical_p p            ids whose surprise is nearest to the entropy, together p             Meister et al. (2023)

The steps that leave ids out work on logits `[B, V]` sorted from the likeliest down, so each is a line or two; only
typical_p may leave out the likeliest. All in float32. `Sampling` says which steps are on; each sees what the one above
it left.
"""

import dataclasses
import math

import tensorflow as tf

from keras_seq import checks

NEG_INF = -math.inf


def repetition_penalty(logits, seen, value):
    """Logits `[B, V]`, those of the ids `seen` (bool `[B, V]`) less likely for a value above one."""
    return tf.where(seen, tf.where(logits > 0, logits / value, logits * value), logits)


def temperature(sorted_logits, value):
    """Sorted logits over the temperature; over zero, only the first is left."""
    below = sorted_logits - sorted_logits[:, :1]
    only_first = tf.where(tf.range(tf.shape(below)[1]) == 0, 0.0, NEG_INF)
    return tf.where(value > 0, below / tf.where(value > 0, value, 1.0), only_first)


def top_k(sorted_logits, value):
    """The first `value` of the sorted logits; of equal ones, those of the smaller ids."""
    return tf.where(tf.range(tf.shape(sorted_logits)[1]) < tf.cast(value, tf.int32), sorted_logits, NEG_INF)


def top_p(sorted_logits, value):
    """The sorted logits up to the one with which their probabilities reach `value`."""
    p = tf.nn.softmax(sorted_logits)
    return tf.where(tf.cumsum(p, axis=-1, exclusive=True) < value, sorted_logits, NEG_INF)


def min_p(sorted_logits, value):
    """The sorted logits whose probability is at least `value` times that of the first."""
    return tf.where(tf.exp(sorted_logits - sorted_logits[:, :1]) >= value, sorted_logits, NEG_INF)


def typical_p(sorted_logits, value):
    """The sorted logits whose surprise is nearest to the entropy, until their probabilities reach `value`."""
    log_p = tf.nn.log_softmax(sorted_logits)
    p = tf.exp(log_p)
    entropy = -tf.reduce_sum(tf.math.multiply_no_nan(log_p, p), axis=-1, keepdims=True)
    nearest, order = tf.math.top_k(-tf.abs(-log_p - entropy), k=tf.shape(p)[1])  # ids left out are infinitely far
    p = tf.gather(p, order, batch_dims=1)
    nearest = tf.where(tf.cumsum(p, axis=-1, exclusive=True) < value, nearest, NEG_INF)
    farthest = tf.reduce_min(tf.where(nearest > NEG_INF, nearest, 0.0), axis=-1, keepdims=True)
    return tf.where(-tf.abs(-log_p - entropy) >= farthest, sorted_logits, NEG_INF)


LOGIT_FILTERS = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "typical_p": typical_p}


def sample_token(logits, uniform, values, seen=None):
    """One id for every row.

    Args:
        logits: `[B, V]`, of any float type.
        uniform: `[B]`, from 0 to below 1: the id is the first whose probabilities, summed from the likeliest down,
            exceed it.
        values: from names of steps to their numbers; a step that is not there is off.
        seen: the ids that `repetition_penalty` is for, bool `[B, V]`.

    Returns:
        int32 `[B]`; -1 where the logits are not finite, so that there is nothing to draw from. Some may be minus
        infinity: an id that cannot come.
    """
    logits = tf.cast(logits, tf.float32)
    finite = tf.math.is_finite(tf.reduce_logsumexp(logits, axis=-1))
    if "repetition_penalty" in values:
        logits = repetition_penalty(logits, seen, values["repetition_penalty"])
    logits, ids = tf.math.top_k(logits, k=tf.shape(logits)[1])
    for name, step in LOGIT_FILTERS.items():
        if name in values:
            logits = step(logits, values[name])
    summed = tf.cumsum(tf.nn.softmax(logits), axis=-1)
    place = tf.reduce_sum(tf.cast(summed <= uniform[:, None] * summed[:, -1:], tf.int32), axis=-1)
    place = tf.where(finite, place, 0)
    return tf.where(finite, tf.gather(ids, place, batch_dims=1), -1)


@dataclasses.dataclass(frozen=True)
class SamplingConfig:
    """How the next id is chosen. None leaves a step out.

    Raises:
        ValueError: a number out of its range.
    """

    temperature: float = 1.0
    """0 takes the likeliest, 1 draws from the model as it is."""
    top_k: int | None = None
    """Draw among this many of the likeliest only."""
    top_p: float | None = None
    """Draw among the fewest likeliest that together have this probability."""
    min_p: float | None = None
    """Draw among those at least this many times as likely as the likeliest."""
    typical_p: float | None = None
    """Draw among those whose surprise is nearest to the expected one, which together have this probability."""
    repetition_penalty: float | None = None
    """Above 1, what is in the text already becomes less likely."""

    def __post_init__(self):
        checks.number("temperature", self.temperature, min_value=0)
        if self.top_k is not None:
            checks.positive_integer("top_k", self.top_k)
        for name in ("top_p", "min_p", "typical_p"):
            value = getattr(self, name)
            if value is not None and not checks.number(name, value, min_value=0, max_value=1) > 0:
                raise ValueError(f"{name}={value}; expected a number above 0 and at most 1.")
        if self.repetition_penalty is not None:
            checks.positive_number("repetition_penalty", self.repetition_penalty)

    @property
    def values(self) -> dict[str, float]:
        """The steps that are on, and their numbers."""
        return {name: float(value) for name, value in dataclasses.asdict(self).items() if value is not None}
