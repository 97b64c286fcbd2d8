"""Positions that attention sees as distances: their base class, rotary positions, linear biases, forget gates, buckets.

Buckets (T5: Raffel et al., 2020, arXiv:1910.10683) have a learned bias each, for every head:

    score of query t and key s  +=  b[bucket of s - t, h]

Half of the N buckets are of one distance n = t - s each; in the others the distances grow by a constant factor:

    bucket = n  where n < N / 2,  else  N / 2 + N / 2 log(2 n / N) / log(2 max_distance / N),  at most N - 1

Without causality, earlier and later keys have N / 2 buckets each.
"""

import dataclasses
import functools
import math

import keras
import numpy as np
from keras import ops

from keras_seq import checks
from keras_seq.ops.linear_recurrence import linear_recurrence
from keras_seq.ops.tensor_checks import at_least_float32, where_valid

MIN_LOG_DECAY = -1e3  # of a forget gate: smaller ones would cost their sums the precision of all others


class RelativePositions:
    """Base class of position objects, which rotate queries and keys, or bias the scores; itself it changes nothing.

    Both depend on positions only through their distance. Subclasses are frozen dataclasses, so that equal arguments
    give equal objects, and are registered with `keras.saving.register_keras_serializable`.
    """

    scale = None  # factor of the products of queries and keys; None for 1 / sqrt(K)

    def validate_key_dim(self, key_dim: int) -> None:
        """Raise a `ValueError` if heads of width `key_dim` are not supported."""

    def rotate(self, x, positions):
        """Rotate queries or keys.

        Args:
            x: `[B, T, H, K]`.
            positions: Positions of x, `[T]` or `[B, T]`.

        Returns:
            A tensor of the shape of x.
        """
        return x

    def bias(self, query_positions, key_positions, num_heads: int):
        """Compute the biases of the scores.

        Args:
            query_positions: `[T]` or `[B, T]`.
            key_positions: `[S]` or `[B, S]`.
            num_heads: H.

        Returns:
            A tensor that broadcasts to `[B, H, T, S]`, or None.
        """
        return None

    def get_config(self):
        """Return the fields of the dataclass."""
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config):
        """Create an object from its fields."""
        return cls(**config)


def deserialize_positions(positions):
    """Return a position object from itself or from its serialized form, a dict, and None for None."""
    if isinstance(positions, dict):
        positions = keras.saving.deserialize_keras_object(positions)
    if positions is not None and not isinstance(positions, RelativePositions):
        raise ValueError(f"positions={positions!r}; expected None, RotaryPositions(), AlibiPositions() or their kind.")
    return positions


# Rotary positions (Su et al., 2021): rotate pair i of a query or key at position p by the angle p w_i.
#
#     w_i = base^(-2i / K),   i = 0 .. K/2 - 1          the pair: elements i and i + K/2
#     (R_p q)·(R_s k) = a function of q, k and p - s
#
# For contexts longer than in training by a factor f, the frequencies w are lowered. Linear (Chen et al., 2023): w / f.
# NTK ("NTK-aware", bloc97, 2023): a larger base, which divides the lowest frequency by f and keeps the highest.
# YaRN (Peng et al., 2023): frequencies with many turns within the original length are kept, those with less than one
# turn are divided by f, and the scores are multiplied by (0.1 ln f + 1)². Llama 3.1 (Grattafiori et al., 2024): the
# same with at least four turns and another ramp in between, and the scores as they are.


def rotate(x, positions, frequencies, amplitude=1.0):
    """Rotate the pairs of elements of x `[B, T, H, K]` by position times frequency; angles are in float32 or wider."""
    dtype = at_least_float32(x.dtype)
    angles = ops.expand_dims(ops.cast(positions, dtype), -1) * ops.convert_to_tensor(frequencies, dtype)
    angles = ops.expand_dims(angles, -2)  # [..., T, 1, K / 2]
    cos, sin = ops.cast(amplitude * ops.cos(angles), x.dtype), ops.cast(amplitude * ops.sin(angles), x.dtype)
    a, b = ops.split(x, 2, axis=-1)
    swapped = ops.concatenate([b, a], axis=-1)
    return x * ops.concatenate([cos, cos], axis=-1) + swapped * ops.concatenate([-sin, sin], axis=-1)


def no_scaling(positions, key_dim: int) -> list[float]:
    """Return the K / 2 frequencies of the paper; the other scalings take and return the same."""
    return [positions.base ** (-2 * i / key_dim) for i in range(key_dim // 2)]


def linear(positions, key_dim: int) -> list[float]:
    """Return all frequencies divided by the factor, which interpolates positions into the original length."""
    return [w / positions.scaling_factor for w in no_scaling(positions, key_dim)]


def ntk(positions, key_dim: int) -> list[float]:
    """Return the frequencies for a base that divides the lowest frequency by exactly the factor."""
    base = positions.base * positions.scaling_factor ** (key_dim / (key_dim - 2))
    return [base ** (-2 * i / key_dim) for i in range(key_dim // 2)]


def _divided(positions, key_dim, shares):
    """Return the frequencies, each divided by the factor for a share from 0 to 1; others count as the nearer end."""
    shares = [min(max(share, 0.0), 1.0) for share in shares]
    frequencies = zip(no_scaling(positions, key_dim), shares, strict=True)
    return [w / positions.scaling_factor * share + w * (1 - share) for w, share in frequencies]


def yarn(positions, key_dim: int) -> list[float]:
    """Return the frequencies, divided by the factor where they are low, with a linear ramp between low and high."""

    def pair_with(turns):  # the fractional index of the pair with this number of turns
        log_period = math.log(positions.original_context_length / (turns * 2 * math.pi))
        return key_dim * log_period / (2 * math.log(positions.base))

    low = max(math.floor(pair_with(positions.high_turns)), 0)
    high = min(math.ceil(pair_with(positions.low_turns)), key_dim - 1)
    shares = [(i - low) / max(high - low, 1e-3) for i in range(key_dim // 2)]
    return _divided(positions, key_dim, shares)


def llama3(positions, key_dim: int) -> list[float]:
    """Return the frequencies, divided by the factor where they are low, with a ramp in the number of turns between."""
    low, high = positions.low_turns, positions.high_turns
    turns = [positions.original_context_length * w / (2 * math.pi) for w in no_scaling(positions, key_dim)]
    return _divided(positions, key_dim, [(high - number) / (high - low) for number in turns])


SCALINGS = {None: no_scaling, "linear": linear, "ntk": ntk, "yarn": yarn, "llama3": llama3}
TURNS = {"yarn": (1.0, 32.0), "llama3": (1.0, 4.0)}  # low and high, as published


@keras.saving.register_keras_serializable(package="keras_seq")
@dataclasses.dataclass(frozen=True)
class RotaryPositions(RelativePositions):
    """Rotations of queries and keys, for `MultiHeadSelfAttention(positions=...)`; K must be even.

    ```python
    layer = MultiHeadSelfAttention(num_heads=4, causal=True, positions=RotaryPositions())
    longer = RotaryPositions(scaling="yarn", scaling_factor=4.0, original_context_length=2048)
    ```

    Args:
        base: Greater than 1; the lowest frequency has a period of about 2π · base positions.
        scaling: None, `"linear"`, `"ntk"`, `"yarn"` or `"llama3"`.
        scaling_factor: Context length relative to training, at least 1.
        original_context_length: Context length in training; required by `"yarn"` and `"llama3"`.
        low_turns: For these two, turns within the original length below which a frequency is divided by the factor; 1
            unless given.
        high_turns: For these two, turns above which a frequency is kept; 32 for YaRN and 4 for Llama unless given.
        partial_rotary_factor: Share of the elements of a head that are rotated, its first ones; the others are left as
            they are, so that their scores depend on no position.

    Masking: positions count non-padding elements only; a masked element has position -1 and is not attended to.

    Raises:
        ValueError: If an argument is out of its range, or `scaling_factor` is not 1 without a scaling.
    """

    base: float = 10_000.0
    scaling: str | None = None
    scaling_factor: float = 1.0
    original_context_length: int | None = None
    low_turns: float | None = None
    high_turns: float | None = None
    partial_rotary_factor: float = 1.0

    def __post_init__(self):
        """Check the fields."""
        if checks.positive_number("base", self.base) <= 1:
            raise ValueError(f"base={self.base!r}; expected a number greater than 1.")
        checks.one_of("scaling", self.scaling, SCALINGS)
        if checks.positive_number("scaling_factor", self.scaling_factor) < 1:
            raise ValueError(f"scaling_factor={self.scaling_factor!r}; expected a number of at least 1.")
        if self.scaling is None and self.scaling_factor != 1:
            raise ValueError(
                f"scaling_factor={self.scaling_factor!r} with scaling=None; expected 1, or a scaling such as 'linear'."
            )
        if self.scaling in TURNS or self.original_context_length is not None:
            checks.positive_integer("original_context_length", self.original_context_length)
        if checks.positive_number("partial_rotary_factor", self.partial_rotary_factor) > 1:
            raise ValueError(f"partial_rotary_factor={self.partial_rotary_factor!r}; expected at most 1.")
        for name in ("low_turns", "high_turns"):
            value = getattr(self, name)
            if value is not None and checks.positive_number(name, value) and self.scaling not in TURNS:
                raise ValueError(f"{name}={value!r} with scaling={self.scaling!r}; expected 'yarn' or 'llama3'.")
        if self.scaling in TURNS:
            low, high = TURNS[self.scaling]
            object.__setattr__(self, "low_turns", self.low_turns or low)
            object.__setattr__(self, "high_turns", self.high_turns or high)
            if self.low_turns >= self.high_turns:
                raise ValueError(
                    f"low_turns={self.low_turns} and high_turns={self.high_turns}; expected low_turns < high_turns."
                )

    def validate_key_dim(self, key_dim: int) -> None:
        """Raise a `ValueError` unless the rotated part of K is even (at least 4 for NTK: else its base is infinite)."""
        width = self._rotated_width(key_dim)
        if width % 2 or width < 2 or (self.scaling == "ntk" and width < 4):
            expected = "an even number of at least 4" if self.scaling == "ntk" else "an even number"
            part = "" if width == key_dim else f", of which {width} are rotated"
            raise ValueError(f"key_dim={key_dim}{part}; expected {expected}, because RotaryPositions rotates pairs.")

    def _rotated_width(self, key_dim):
        return int(key_dim * self.partial_rotary_factor)

    def rotate(self, x, positions):
        """Rotate the first elements of queries or keys by their positions."""
        amplitude = 0.1 * math.log(self.scaling_factor) + 1 if self.scaling == "yarn" else 1.0
        width = self._rotated_width(x.shape[-1])
        rotated = rotate(x[..., :width], positions, SCALINGS[self.scaling](self, width), amplitude)
        return rotated if width == x.shape[-1] else ops.concatenate([rotated, x[..., width:]], axis=-1)


# Attention with linear biases (ALiBi, Press et al., 2022): the larger the distance, the lower the score.
#
#     score of query t and key s  -=  m_h |t - s|,      m_h = 2^(-8h / H),  h = 1 .. H
#
# Where H is not a power of two: the slopes of the next lower power of two, then every other slope of its double.


def slopes(num_heads: int) -> list[float]:
    """Return the slope m of each head, a list of H numbers."""
    power = 2 ** math.floor(math.log2(num_heads))
    regular = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-4 * h / power) for h in range(1, 2 * power + 1, 2)]
    return regular + between[: num_heads - power]


@keras.saving.register_keras_serializable(package="keras_seq")
@dataclasses.dataclass(frozen=True)
class AlibiPositions(RelativePositions):
    """Biases proportional to the distance, for `MultiHeadSelfAttention(positions=...)`.

    ```python
    layer = MultiHeadSelfAttention(num_heads=4, causal=True, positions=AlibiPositions())
    ```

    The paper's form is causal; without causality the distance counts in both directions.
    Masking: distances count non-padding elements only.
    """

    def bias(self, query_positions, key_positions, num_heads: int):
        """Compute the biases of the scores, float32 `[H, T, S]`, or `[B, H, T, S]` where positions differ by row."""
        distance = ops.expand_dims(query_positions, -1) - ops.expand_dims(key_positions, -2)  # [..., T, S]
        distance = ops.expand_dims(ops.cast(ops.abs(distance), "float32"), -3)  # [..., 1, T, S]
        return -ops.reshape(ops.convert_to_tensor(slopes(num_heads), "float32"), (-1, 1, 1)) * distance


# Forget gates (the Forgetting Transformer, FoX: Lin et al., 2025, arXiv:2503.02130): linear biases whose slope the text
# decides. What lies before a position counts less by its forget gate f, of each head.
#
#     f_t = sigmoid(w_f x_t + b_f)        score of query t and key s  +=  log f_(s+1) + ... + log f_t  =  c_t - c_s


@keras.saving.register_keras_serializable(package="keras_seq")
@dataclasses.dataclass(frozen=True)
class ForgettingPositions(RelativePositions):
    """Biases by forget gates, for `MultiHeadSelfAttention(causal=True, positions=...)`, which owns their weights.

    ```python
    layer = MultiHeadSelfAttention(num_heads=4, causal=True, positions=ForgettingPositions())
    ```

    The layer has a matrix `[D, H]` and a bias `[H]` more. The bias starts at 0: half of the weight is forgotten at each
    position. Nothing is rotated.
    Masking: a masked element forgets nothing.
    """

    def decay_sums(self, gates, mask=None, reset_mask=None):
        """Compute the sums c of log decays up to each position, its own included, `[B, T, H]`, float32 or wider.

        The sigmoid is applied to `gates [B, T, H]`. Where a document begins, in `reset_mask [B, T]`, the sums do, too:
        differences of sums of an earlier one would depend on it, by rounding.
        """
        log_decay = ops.log_sigmoid(ops.cast(gates, at_least_float32(gates.dtype)))
        log_decay = where_valid(mask, ops.maximum(log_decay, MIN_LOG_DECAY))
        if reset_mask is None:
            return ops.cumsum(log_decay, axis=1)
        goes_on = ops.cast(ops.logical_not(reset_mask), log_decay.dtype)[..., None]
        goes_on = ops.broadcast_to(goes_on, ops.shape(log_decay))
        return linear_recurrence(goes_on, log_decay, ops.zeros_like(log_decay[:, 0]))


MAX_DISTANCE = 2**20  # all distances are listed


@functools.lru_cache(maxsize=8)
def distance_buckets(num_buckets: int, max_distance: int, causal: bool) -> np.ndarray:
    """Return the bucket of each s - t from -max_distance to max_distance; farther ones have those of these ends."""
    offset = np.arange(-max_distance, max_distance + 1)
    distance, first = np.maximum(-offset, 0), 0
    if not causal:
        num_buckets //= 2
        distance, first = np.abs(offset), num_buckets * (offset > 0)
    exact = num_buckets // 2
    # in float32, as where the published models were trained: a distance may lie exactly between two buckets
    share = np.log(np.maximum(distance, 1).astype("float32") / exact) / math.log(max_distance / exact)
    wide = np.minimum(exact + (share * (num_buckets - exact)).astype(int), num_buckets - 1)
    return (first + np.where(distance < exact, distance, wide)).astype("int32")


@keras.saving.register_keras_serializable(package="keras_seq")
@dataclasses.dataclass(frozen=True)
class BucketedPositions(RelativePositions):
    """Learned biases by bucket of the distance, for `MultiHeadSelfAttention(positions=...)`, which owns them.

    ```python
    first = TransformerBlock(num_heads=4, feed_forward_dim=512, positions=BucketedPositions())
    second = TransformerBlock(num_heads=4, feed_forward_dim=512, positions=BucketedPositions(shared=True))
    x = first(x)
    x = second(x, bucket_bias=first.self_attention_layer.bucket_bias)  # one for all blocks, as in T5
    ```

    This is the `call` of a layer or model of your own: a functional model would keep the biases as a constant.
    The layer has a weight `[num_buckets, H]` more, its `bucket_bias`, which starts at 0. With `causal=True` all buckets
    are of earlier keys, otherwise half of them. Nothing is rotated.
    Masking: distances count non-padding elements only.

    Args:
        num_buckets: N, at least 4.
        max_distance: Distance from which on all are in the last bucket, above N / 2 and at most 2**20.
        scale: Factor of the products of queries and keys, in a `TransformerBlock` those of cross-attention too; 1 in
            T5. 1 / sqrt(K) unless given.
        shared: Whether the layer has no biases of its own, but is called with those of another.

    Raises:
        ValueError: If an argument is out of its range.
    """

    num_buckets: int = 32
    max_distance: int = 128
    scale: float | None = None
    shared: bool = False

    def __post_init__(self):
        """Check the fields."""
        checks.integer("num_buckets", self.num_buckets, 4)
        checks.integer("max_distance", self.max_distance, self.num_buckets // 2 + 1, MAX_DISTANCE)
        if self.scale is not None:
            checks.positive_number("scale", self.scale)
        checks.boolean("shared", self.shared)

    def bias_of_distance(self, bucket_bias, query_positions, key_positions, causal: bool):
        """Compute the biases of the scores, `[H, T, S]`, or `[B, H, T, S]` where positions differ by row.

        They are those of the buckets, `bucket_bias [num_buckets, H]`, which are all of earlier keys if `causal`.
        """
        size = self.max_distance
        by_distance = ops.take(bucket_bias, distance_buckets(self.num_buckets, size, causal), axis=0)
        offset = ops.expand_dims(key_positions, -2) - ops.expand_dims(query_positions, -1)  # [..., T, S]
        offset = ops.minimum(ops.maximum(ops.cast(offset, "int32"), -size), size)
        return ops.moveaxis(ops.take(by_distance, offset + size, axis=0), -1, -3)
