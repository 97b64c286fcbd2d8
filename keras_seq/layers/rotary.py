"""Rotary positions (Su et al., 2021): turn the pair of numbers i of a query or key at position p by the angle p w_i.

    w_i = base^(-2i / K),   i = 0 .. K/2 - 1          the pair: elements i and i + K/2
    (R_p q)·(R_s k) = a function of q, k and p - s

To go beyond the length of training by a factor f, the frequencies w are lowered. Linear (Chen et al., 2023): w / f.
NTK ("NTK-aware", bloc97, 2023): a larger base, so that the slowest pair is slowed by f and the fastest not at all.
YaRN (Peng et al., 2023): pairs that turn often within the original length stay as they are, pairs that turn less than
once are slowed by f, and the scores grow by (0.1 ln f + 1)².
"""

import dataclasses
import math

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.precision import at_least_float32
from keras_seq.layers.relative_positions import RelativePositions


def rotate(x, positions, frequencies, amplitude=1.0):
    """Turns `x [B, T, H, K]` at `positions` (`[T]` or `[B, T]`) by `frequencies`, K / 2 numbers; angles in float32."""
    dtype = at_least_float32(x.dtype)
    angles = ops.expand_dims(ops.cast(positions, dtype), -1) * ops.convert_to_tensor(frequencies, dtype)
    angles = ops.expand_dims(angles, -2)  # [..., T, 1, K / 2]
    cos, sin = ops.cast(amplitude * ops.cos(angles), x.dtype), ops.cast(amplitude * ops.sin(angles), x.dtype)
    a, b = ops.split(x, 2, axis=-1)
    return ops.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def no_scaling(positions, key_dim):
    """The frequencies of the paper."""
    return [positions.base ** (-2 * i / key_dim) for i in range(key_dim // 2)]


def linear(positions, key_dim):
    """All frequencies divided by the factor: positions are squeezed into the original length."""
    return [w / positions.scaling_factor for w in no_scaling(positions, key_dim)]


def ntk(positions, key_dim):
    """A base at which the slowest pair is slowed by exactly the factor."""
    base = positions.base * positions.scaling_factor ** (key_dim / (key_dim - 2))
    return [base ** (-2 * i / key_dim) for i in range(key_dim // 2)]


def yarn(positions, key_dim, slow=1, fast=32):
    """Divided by the factor below `slow` turns in the original length, untouched above `fast`, a ramp between."""

    def pair_with(turns):  # the (fractional) pair that makes so many turns
        return (
            key_dim
            * math.log(positions.original_context_length / (turns * 2 * math.pi))
            / (2 * math.log(positions.base))
        )

    low, high = max(math.floor(pair_with(fast)), 0), min(math.ceil(pair_with(slow)), key_dim - 1)
    frequencies = []
    for i, w in enumerate(no_scaling(positions, key_dim)):
        squeezed = min(max((i - low) / max(high - low, 1e-3), 0.0), 1.0)
        frequencies.append(w / positions.scaling_factor * squeezed + w * (1 - squeezed))
    return frequencies


SCALINGS = {None: no_scaling, "linear": linear, "ntk": ntk, "yarn": yarn}


@keras.saving.register_keras_serializable(package="keras_seq")
@dataclasses.dataclass(frozen=True)
class RotaryPositions(RelativePositions):
    """Rotations of queries and keys, for `MultiHeadSelfAttention(positions=...)`; K must be even.

    ```python
    layer = MultiHeadSelfAttention(num_heads=4, causal=True, positions=RotaryPositions())
    longer = RotaryPositions(scaling="yarn", factor=4.0, original_length=2048)
    ```

    Args:
        base: the slowest pair turns once in about 2π · base positions.
        scaling: None, `"linear"`, `"ntk"` or `"yarn"`.
        factor: how many times longer than in training; at least 1.
        original_length: positions in training; needed by YaRN, which asks how often a pair turns within it.

    Masking: positions count real elements only; a masked element stands at -1 and is attended to by nothing.
    """

    base: float = 10_000.0
    scaling: str | None = None
    scaling_factor: float = 1.0
    original_context_length: int | None = None

    def __post_init__(self):
        if checks.positive_number("base", self.base) <= 1:
            raise ValueError(f"base={self.base!r}; expected a number greater than 1.")
        checks.one_of("scaling", self.scaling, SCALINGS)
        if checks.positive_number("scaling_factor", self.scaling_factor) < 1:
            raise ValueError(f"factor={self.scaling_factor!r}; expected a number of at least 1.")
        if self.scaling is None and self.scaling_factor != 1:
            raise ValueError(
                f"factor={self.scaling_factor!r} with scaling=None; expected a scaling: 'linear', 'ntk' or 'yarn'."
            )
        if self.scaling == "yarn" or self.original_context_length is not None:
            checks.positive_integer("original_context_length", self.original_context_length)

    def validate_key_dim(self, key_dim):
        """Raises `ValueError` unless K is even (and at least 4 for NTK, whose base would be infinite)."""
        if key_dim % 2 or (self.scaling == "ntk" and key_dim < 4):
            least = "an even number of at least 4" if self.scaling == "ntk" else "an even number"
            raise ValueError(f"key_dim={key_dim}; expected {least}: RotaryPositions turns pairs.")

    def rotate(self, x, positions):
        """Queries or keys `[B, T, H, K]` that stand at `positions` (`[T]` or `[B, T]`), rotated."""
        amplitude = 0.1 * math.log(self.scaling_factor) + 1 if self.scaling == "yarn" else 1.0
        return rotate(x, positions, SCALINGS[self.scaling](self, x.shape[-1]), amplitude)
