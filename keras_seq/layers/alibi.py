"""Attention with linear biases (ALiBi, Press et al., 2022): the larger the distance, the lower the score.

    score of query t and key s  -=  m_h |t - s|,      m_h = 2^(-8h / H),  h = 1 .. H

Where H is not a power of two: the slopes of the next lower power of two, then every other slope of its double.
"""

import dataclasses
import math

import keras
from keras import ops

from keras_seq.layers.relative_positions import RelativePositions


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
        """Compute the biases of the scores.

        Args:
            query_positions: `[T]` or `[B, T]`.
            key_positions: `[S]` or `[B, S]`.
            num_heads: H.

        Returns:
            float32 `[H, T, S]`, or `[B, H, T, S]` where positions differ by row.
        """
        distance = ops.expand_dims(query_positions, -1) - ops.expand_dims(key_positions, -2)  # [..., T, S]
        distance = ops.expand_dims(ops.cast(ops.abs(distance), "float32"), -3)  # [..., 1, T, S]
        return -ops.reshape(ops.convert_to_tensor(slopes(num_heads), "float32"), (-1, 1, 1)) * distance
