"""`layers.attention.attention` for one query a sequence, as in generation, on a CPU: sums instead of products.

    scores_s = sum over K of q k_s,    y = sum over S of weights_s v_s

In XLA a product of one row and a matrix for each head takes two to four times as long as the sums, which read keys and
values once. Slots of a cache behind the last that any query may attend to are not read, to a quarter of its capacity.
(JAX's XLA takes longer for the sums.)
"""

import functools
import math

import keras
from keras import ops

from keras_seq.kernels.devices import on_cpu

MIN_SIZE = 2**18  # numbers that all keys have; for fewer, the reference takes as long
MIN_SIZE_OF_PARTS, NUM_PARTS = 2**21, 4  # fewer are read as a whole, which is compiled in less time than four parts


def supports(q, k, v, mask, bias, dropout) -> bool:
    """Return whether there is one query a sequence, and many keys, of known shapes.

    Args:
        q: Queries `[B, T, H, K]`.
        k: Keys `[B, S, G, K]`.
        v: Values `[B, S, G, K']`.
        mask: Booleans, or None.
        bias: Added to the scores, or None.
        dropout: A `keras.layers.Dropout` for the weights, or None.
    """
    shapes = q.shape, k.shape, v.shape
    return (
        q.shape[1] == 1
        and dropout is None
        and not any(size is None for shape in shapes for size in shape)
        and q.shape[0] == k.shape[0] == v.shape[0]
        and k.shape[1] == v.shape[1]
        and math.prod(k.shape) >= MIN_SIZE
        and keras.backend.standardize_dtype(q.dtype) != "float16"  # whose scores the reference clips
        and on_cpu()
    )


def apply(q, k, v, mask, bias, dropout):
    """Compute attention without its weights.

    Args:
        q: Queries `[B, 1, H, K]`.
        k: Keys `[B, S, G, K]` with G a divisor of H.
        v: Values `[B, S, G, K']`.
        mask: Booleans `[1, S]`, `[B, 1, S]` or `[B, H, 1, S]` (any axis may be 1), or None.
        bias: Added to the scores, broadcastable to `[B, H, 1, S]`, or None.
        dropout: None.

    Returns:
        y `[B, 1, H, K']`.
    """
    batch_size, capacity, kv_heads, _ = k.shape
    mask = ops.ones((1, 1, 1, capacity), "bool") if mask is None else ops.cast(mask, "bool")
    mask = mask[:, None] if len(mask.shape) == 3 else mask  # `[1, S]` is a row of all
    dtype = keras.backend.result_type(q.dtype, "float32")
    q = ops.reshape(ops.cast(q, dtype) * q.shape[-1] ** -0.5, (batch_size, 1, kv_heads, -1, q.shape[-1]))

    def attend_to(size):
        """Attend to the first slots."""
        keys, values = (ops.cast(x[:, :size], dtype)[:, :, :, None] for x in (k, v))  # [B, size, G, 1, K]
        scores = ops.transpose(ops.sum(q * keys, axis=-1), (0, 2, 3, 1))
        scores = ops.reshape(scores, (batch_size, -1, 1, size))
        if bias is not None:
            scores = scores + ops.cast(bias[..., :size], dtype)
        weights = ops.softmax(ops.where(mask[..., :size], scores, -1e30), axis=-1)
        weights = ops.where(mask[..., :size], weights, 0.0)  # for queries with all keys masked
        weights = ops.transpose(ops.reshape(weights, (batch_size, kv_heads, -1, size)), (0, 3, 1, 2))
        y = ops.sum(weights[..., None] * values, axis=1)
        return ops.cast(ops.reshape(y, (batch_size, 1, -1, v.shape[-1])), v.dtype)

    if math.prod(k.shape) < MIN_SIZE_OF_PARTS or mask.shape[-1] == 1:
        return attend_to(capacity)
    sizes = [-(-capacity * (n + 1) // NUM_PARTS) for n in range(NUM_PARTS)]
    slots = ops.where(ops.any(mask, axis=(*range(len(mask.shape) - 1),)), ops.arange(1, capacity + 1), 0)
    part = ops.sum(ops.cast(ops.max(slots) > ops.convert_to_tensor(sizes[:-1]), "int32"))
    return ops.switch(part, [functools.partial(attend_to, size) for size in sizes])
