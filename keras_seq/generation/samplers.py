"""Sample the next token: logit filters, then one draw.

    repetition_penalty r   z / r where z > 0, else z r, for ids that the text already has       Keskar et al. (2019)
    temperature t          z / t; 0 keeps the likeliest id only
    top_k k                the k likeliest ids                                                  Fan et al. (2018)
    top_p p                the fewest likeliest ids whose total probability reaches p           Holtzman et al. (2020)
    min_p m                ids at least m times as likely as the likeliest                      Nguyen et al. (2024)
    typical_p p            ids of -log p nearest to the entropy, up to total probability p      Meister et al. (2023)

All filters but repetition_penalty take logits `[B, V]` sorted in descending order; only typical_p can remove the
likeliest id. They run in float32, in the order above, each on the output of the one before.
"""

import dataclasses
import math

import numpy as np
from keras import ops

from keras_seq import checks

NEG_INF = -math.inf
SMALLEST = float(np.finfo("float32").tiny)  # below, processors may read a number as 0
LARGEST = float(np.finfo("float32").max)


def repetition_penalty(logits, in_text, value):
    """Lower the logits of ids that the text already has; what is finite stays so."""
    lower = ops.clip(ops.where(logits > 0, logits / value, logits * value), -LARGEST, LARGEST)
    return ops.where(ops.logical_and(in_text, logits > NEG_INF), lower, logits)


def temperature(sorted_logits, value):
    """Divide logits by a temperature."""
    below_first = sorted_logits - sorted_logits[:, :1]
    only_first = ops.where(ops.arange(below_first.shape[1]) == 0, 0.0, NEG_INF)
    return ops.where(value > 0, below_first / ops.where(value > 0, value, 1.0), only_first)


def top_k(sorted_logits, value):
    """Keep the k largest logits; of equal ones, those of the smaller ids."""
    position = ops.arange(sorted_logits.shape[1], dtype="float32")  # k may be beyond int32, as in "no limit"
    return ops.where(position < ops.cast(value, "float32"), sorted_logits, NEG_INF)


def top_p(sorted_logits, value):
    """Keep the fewest likeliest ids whose total probability reaches `value` (nucleus sampling)."""
    return ops.where(_sum_before(ops.softmax(sorted_logits)) < value, sorted_logits, NEG_INF)


def min_p(sorted_logits, value):
    """Keep ids whose probability is at least `value` times that of the likeliest."""
    return ops.where(ops.exp(sorted_logits - sorted_logits[:, :1]) >= value, sorted_logits, NEG_INF)


def typical_p(sorted_logits, value):
    """Keep ids of -log p nearest to the entropy, until their total probability reaches `value`."""
    log_p = ops.log_softmax(sorted_logits)
    p = ops.exp(log_p)
    entropy = -ops.sum(ops.where(p > 0, log_p * p, 0.0), axis=-1, keepdims=True)
    distance = ops.abs(-log_p - entropy)  # infinite for removed ids
    order = ops.argsort(distance, axis=-1)
    is_near = _sum_before(ops.take_along_axis(p, order, axis=-1)) < value
    nearest = ops.where(is_near, ops.take_along_axis(distance, order, axis=-1), 0.0)
    farthest = ops.max(ops.where(nearest < math.inf, nearest, 0.0), axis=-1, keepdims=True)
    return ops.where(distance <= farthest, sorted_logits, NEG_INF)


def _sum_before(p):
    """Return the sum of the entries before each one, `[B, V]`."""
    return ops.cumsum(ops.pad(p[:, :-1], ((0, 0), (1, 0))), axis=-1)


LOGIT_FILTERS = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "typical_p": typical_p}
"""Functions that remove or change logits before a token is sampled, by option, in the order they are applied."""


def sample_token(logits, uniform, options, in_text=None):
    """Draw one id for each row.

    Args:
        logits: `[B, V]`, of any float type. Minus infinity excludes an id.
        uniform: `[B]`, in [0, 1): the id is the first at which the cumulative probability, summed in descending order,
            exceeds it.
        options: Values of the filters to apply, by their names in `LOGIT_FILTERS` or `"repetition_penalty"`.
        in_text: Bool `[B, V]`, the ids that `repetition_penalty` applies to; needed for that filter only.

    Returns:
        int32 `[B]`; -1 where the logits are NaN, infinite, or all minus infinity.
    """
    logits = ops.cast(logits, "float32")
    finite = ops.isfinite(ops.logsumexp(logits, axis=-1))
    if "repetition_penalty" in options:
        penalty = ops.convert_to_tensor(options["repetition_penalty"], "float32")
        logits = repetition_penalty(logits, in_text, penalty)
    ids, logits = _filtered(logits, options)
    index = ops.where(finite, draw(ops.softmax(logits), uniform), 0)
    return ops.where(finite, ops.take_along_axis(ids, index[:, None], axis=-1)[:, 0], -1)


def probabilities(logits, options):
    """Compute the probabilities that `sample_token` draws ids with, without `repetition_penalty`."""
    ids, logits = _filtered(ops.cast(logits, "float32"), options)
    return ops.take_along_axis(ops.softmax(logits), ops.argsort(ids, axis=-1), axis=-1)


def _filtered(logits, options):
    """Return ids in descending order of their logits, and these logits after the filters, both `[B, V]`."""
    for name in options.keys() - LOGIT_FILTERS.keys() - {"repetition_penalty"}:
        raise ValueError(f"There is no filter {name!r}; expected some of {', '.join(LOGIT_FILTERS)}.")
    ids = ops.argsort(-logits, axis=-1)  # a stable sort on every backend, unlike ops.top_k
    logits = ops.take_along_axis(logits, ids, axis=-1)
    for name, logit_filter in LOGIT_FILTERS.items():
        if name in options:
            logits = logit_filter(logits, ops.convert_to_tensor(options[name], "float32"))
    return ids, logits


def draw(p, uniform):
    """Return the first indices at which the cumulative probability exceeds `uniform [B]`; p need not sum to 1."""
    cumulative = ops.cumsum(p, axis=-1)
    return ops.sum(ops.cast(cumulative <= uniform[:, None] * cumulative[:, -1:], "int32"), axis=-1)


def _check_float32(name, value, others=""):
    if not SMALLEST <= value <= LARGEST:
        raise ValueError(f"{name}={value}; expected {others}a number from {SMALLEST:.2g} to {LARGEST:.2g}.")


@dataclasses.dataclass(frozen=True)
class SamplingConfig:
    """Configure how the next token is sampled; None turns a logit filter off.

    Raises:
        ValueError: A value is out of its range.
    """

    temperature: float = 1.0
    """Divisor of the logits: 0 takes the likeliest token, 1 samples from the model's distribution."""
    top_k: int | None = None
    """Sample among this many of the likeliest tokens only."""
    top_p: float | None = None
    """Sample among the fewest likeliest tokens whose total probability reaches this; above 0, at most 1."""
    min_p: float | None = None
    """Sample among tokens at least this many times as likely as the likeliest; above 0, at most 1."""
    typical_p: float | None = None
    """Sample among tokens of -log p nearest to the entropy, of this total probability; above 0, at most 1."""
    repetition_penalty: float | None = None
    """Above 1, tokens that the text already has become less likely."""

    def __post_init__(self):
        """Check the fields."""
        if checks.number("temperature", self.temperature, min_value=0):
            _check_float32("temperature", self.temperature, "0, or ")
        if self.top_k is not None:
            checks.positive_integer("top_k", self.top_k)
        for name in ("top_p", "min_p", "typical_p"):
            value = getattr(self, name)
            if value is not None and not SMALLEST <= checks.positive_number(name, value) <= 1:
                raise ValueError(f"{name}={value!r}; expected a number of at least {SMALLEST:.2g} and at most 1.")
        if self.repetition_penalty is not None:
            _check_float32("repetition_penalty", checks.positive_number("repetition_penalty", self.repetition_penalty))

    @property
    def options(self) -> dict[str, np.ndarray]:
        """Values of the filters that are on, float32 scalars by name."""
        values = dataclasses.asdict(self).items()
        return {name: np.array(value, "float32") for name, value in values if value is not None}
