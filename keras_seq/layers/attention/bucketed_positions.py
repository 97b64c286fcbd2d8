"""Positions in buckets (T5: Raffel et al., 2020, arXiv:1910.10683): a learned bias for each bucket and head.

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
from keras_seq.layers.attention.relative_positions import RelativePositions

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
