"""Attention on TensorFlow's CPU: causal and long in blocks, without T x T scores; of one query a sequence by sums.

    scores_i = q_i k[: end_i]^T / sqrt(K)      only keys before the end of block i, which saves half of the work
    y_i = softmax(scores_i) v[: end_i],        z_i = log sum exp(scores_i)

The gradient recomputes the scores instead of storing them (FlashAttention, Dao et al., 2022, arXiv:2205.14135):

    p = exp(scores - z);    dv += p^T dy;    ds = p (dy v^T - sum(dy y));    dq = ds k;    dk += ds^T q

A sink is one more score in z, with a value of zero. Sums c of log decays add c_t - c_s to the scores; their gradients
are sums of ds over rows and columns.

The matmuls are TensorFlow's; XLA compiles the elementwise operations between them. Heads are processed a few at a time:
the scores of a block stay in the processor's cache. Each block waits for the last but one: at most two are in memory.
"""

import functools
import math

import keras
import tensorflow as tf
from keras import ops

from keras_seq.ops.attention import causal_attention, masked_attention, softmax, write_slots

MIN_BLOCK_ROWS, MAX_BLOCK_ROWS = 128, 512  # a block has T / 8 queries, within these bounds
MIN_SEQUENCE_LENGTH = 256  # T; below, the blocks cost more than the skipped half of the scores saves
MAX_SCORES_PER_BLOCK = 2**19  # numbers that fit in the processor's cache
MAX_HEAD_SLICES = 16  # over the heads of all rows, so that the graph does not grow with the batch
MIN_SIZE = 2**18  # numbers that all keys of one query have; for fewer, the reference takes as long
MIN_SIZE_OF_PARTS, NUM_PARTS = 2**21, 4  # fewer are read as a whole, which is compiled in less time than four parts


def is_long(q, k, v, dropout=None, segments=None, sinks=None, decay_sums=None) -> bool:
    """Return whether the arguments are float32 or bfloat16, with a known and large T, without dropout."""
    is_float = q.dtype in (tf.float32, tf.bfloat16)
    return dropout is None and is_float and (q.shape[1] or 0) >= MIN_SEQUENCE_LENGTH


@causal_attention.on("tensorflow", supports=is_long, device="cpu")
def blockwise(q, k, v, dropout=None, segments=None, sinks=None, decay_sums=None):
    """Compute causal attention, block by block."""
    (length, heads), kv_heads = q.shape[1:3], k.shape[2]
    # Heads before positions, and the query heads that share keys beside each other: [B G, H / G, T, K]
    q = tf.reshape(_heads_first(q), (-1, heads // kv_heads, length, q.shape[3]))
    k, v = (tf.reshape(_heads_first(x), (-1, 1, length, x.shape[3])) for x in (k, v))
    if segments is not None:
        segments = tf.repeat(segments, kv_heads, axis=0)[:, None]  # [B G, 1, T]
    extra = {}  # by query head, [B G, H / G, T]
    if sinks is not None:
        sinks = tf.broadcast_to(tf.cast(sinks, tf.float32)[:, None], (tf.shape(k)[0] // kv_heads, heads, 1))
        extra["sinks"] = tf.reshape(sinks, (-1, heads // kv_heads, 1))
    if decay_sums is not None:
        decay_sums = tf.transpose(tf.cast(decay_sums, tf.float32), (0, 2, 1))
        extra["decay_sums"] = tf.reshape(decay_sums, (-1, heads // kv_heads, length))
    attend = tf.custom_gradient(
        lambda q, k, v, *values: _attention(q, k, v, segments, **dict(zip(extra, values, strict=True)))
    )
    y = attend(q, k, v, *extra.values())
    return _heads_first(tf.reshape(y, (-1, heads, length, v.shape[3])))


@write_slots.on("tensorflow")
@tf.custom_gradient
def updated_slots(slots, start, new):
    """Replace the slots alone, which the compiler can do in place; TensorFlow has no gradient of `slice_update`."""
    first = tf.minimum(start, tf.shape(slots)[1] - tf.shape(new)[1])
    begin = [0, first, *[0] * (len(slots.shape) - 2)]

    def gradient(dy):
        return ops.slice_update(dy, begin, tf.zeros_like(new)), None, tf.slice(dy, begin, tf.shape(new))

    return ops.slice_update(slots, begin, new), gradient


def _heads_first(x):
    return tf.transpose(x, (0, 2, 1, 3))  # its own inverse


def _head_slices(q):
    """Return slices of the first axis of q that are processed one after the other."""
    number, shared, length, _ = q.shape
    if number is None:
        return [slice(None)]
    start, end = _query_blocks(length)[0]
    size = max(MAX_SCORES_PER_BLOCK // (shared * (end - start) * length), -(-number // MAX_HEAD_SLICES), 1)
    return [slice(first, min(first + size, number)) for first in range(0, number, size)]


def _query_blocks(length):
    rows = min(max(length // 8, MIN_BLOCK_ROWS), MAX_BLOCK_ROWS)
    return [(start, min(start + rows, length)) for start in range(0, length, rows)]


def _attention(q, k, v, segments, sinks=None, decay_sums=None):
    """Return y and its gradient."""
    scale = q.shape[3] ** -0.5
    parts, finished = [], []
    for part in _head_slices(q):
        rows, normalizers = [], []
        for start, end in _query_blocks(q.shape[2]):
            with tf.control_dependencies(finished[-2:-1]):
                scores = tf.matmul(q[part, :, start:end], k[part, :, :end], transpose_b=True)
            own = [_part(x, part, end) for x in (segments, sinks, decay_sums)]
            weights, normalizer = _softmax(scores, scale, *own)
            rows.append(tf.matmul(weights, v[part, :, :end]))
            normalizers.append(normalizer)
            finished.append(rows[-1])
        parts.append((tf.concat(rows, axis=2), normalizers))
    y = tf.concat([rows for rows, _ in parts], axis=0)

    def gradient(dy):
        gradients, finished = [], []
        for part, (y_part, normalizers) in zip(_head_slices(q), parts, strict=True):
            dq, dk, dv, d_sinks, d_decays = [], None, None, None, None
            for (start, end), normalizer in reversed([*zip(_query_blocks(q.shape[2]), normalizers, strict=True)]):
                q_i, dy_i, y_i = q[part, :, start:end], dy[part, :, start:end], y_part[:, :, start:end]
                k_i, v_i = k[part, :, :end], v[part, :, :end]
                with tf.control_dependencies(finished[-2:-1]):
                    scores = tf.matmul(q_i, k_i, transpose_b=True)
                    d_weights = tf.matmul(dy_i, v_i, transpose_b=True)
                own = [_part(x, part, end) for x in (segments, sinks, decay_sums)]
                weights, d_scores, d_sinks_i, d_decays_i = _softmax_gradient(
                    scores, scale, *own, normalizer, d_weights, dy_i, y_i
                )
                dq.append(tf.matmul(d_scores, k_i))
                dk = _accumulate(dk, tf.matmul(d_scores, q_i, transpose_a=True))
                dv = _accumulate(dv, tf.matmul(weights, dy_i, transpose_a=True))
                d_sinks, d_decays = _accumulate_ends(d_sinks, d_sinks_i), _accumulate_ends(d_decays, d_decays_i)
                with tf.control_dependencies([dq[-1], dk, dv]):
                    finished.append(tf.no_op())
            extra = [x for x in (d_sinks, d_decays) if x is not None]
            gradients.append((tf.concat(dq[::-1], axis=2), tf.cast(dk, k.dtype), tf.cast(dv, v.dtype), *extra))
        return [tf.concat(tensors, axis=0) for tensors in zip(*gradients, strict=True)]

    return y, gradient


def _accumulate(total, part):
    """Add the gradients `[N, H / G, end, K]` of the query heads of a group to the first positions of `[N, 1, T, K]`."""
    part = tf.cast(part, tf.float32)
    part = tf.reduce_sum(part, axis=1, keepdims=True) if part.shape[1] > 1 else part
    if total is None:  # the last block, which attends to all positions
        return part
    end = part.shape[2]
    return tf.concat([total[:, :, :end] + part, total[:, :, end:]], axis=2)


def _accumulate_ends(total, part):
    """Add the gradients `[N, H / G, end]` to the first positions of `[N, H / G, T]`."""
    if total is None:
        return part
    return total + tf.pad(part, ((0, 0), (0, 0), (0, total.shape[2] - part.shape[2])))


def _part(x, part, end):
    return None if x is None else x[part, :, :end]


def _masked(scores, scale, segments, decay_sums):
    """Scale the scores `[..., rows, end]` of the last rows before `end`, in float32, and add what is left of the keys.

    They are -inf at later positions and where the `segments [..., end]` differ.
    """
    rows, end = scores.shape[-2:]
    masked = tf.range(end)[None] > tf.range(end - rows, end)[:, None]
    if segments is not None:
        masked |= segments[..., None, :] != segments[..., end - rows :, None]
    scores = scale * tf.cast(scores, tf.float32)
    if decay_sums is not None:
        scores += decay_sums[..., end - rows :, None] - decay_sums[..., None, :]
    return tf.where(masked, float("-inf"), scores)


@tf.function(jit_compile=True, autograph=False)
def _softmax(scores, scale, segments, sinks, decay_sums):
    masked = _masked(scores, scale, segments, decay_sums)
    highest = tf.reduce_max(masked, axis=-1, keepdims=True)
    if sinks is not None:
        highest = tf.maximum(highest, sinks[..., None])
    e = tf.exp(masked - highest)
    total = tf.reduce_sum(e, axis=-1, keepdims=True)
    if sinks is not None:
        total += tf.exp(sinks[..., None] - highest)
    return tf.cast(e / total, scores.dtype), highest + tf.math.log(total)


@tf.function(jit_compile=True, autograph=False)
def _softmax_gradient(scores, scale, segments, sinks, decay_sums, normalizer, d_weights, dy, y):
    weights = tf.exp(_masked(scores, scale, segments, decay_sums) - normalizer)
    mean = tf.reduce_sum(tf.cast(dy, tf.float32) * tf.cast(y, tf.float32), axis=-1, keepdims=True)
    d_scores, d_sinks, d_decays = scale * weights * (tf.cast(d_weights, tf.float32) - mean), None, None
    if sinks is not None:
        d_sinks = -tf.reduce_sum(tf.exp(sinks[..., None] - normalizer) * mean, axis=2)
    if decay_sums is not None:
        rows, end = scores.shape[-2:]
        of_queries = tf.pad(tf.reduce_sum(d_scores, axis=3), ((0, 0), (0, 0), (end - rows, 0)))
        d_decays = (of_queries - tf.reduce_sum(d_scores, axis=2)) / scale
    return tf.cast(weights, scores.dtype), tf.cast(d_scores, scores.dtype), d_sinks, d_decays


# One query a sequence, as in generation:
#
#     scores_s = sum over K of q k_s,    y = sum over S of weights_s v_s
#
# In XLA a product of one row and a matrix for each head takes two to four times as long as these sums, which read keys
# and values once; JAX's XLA takes longer for the sums. Slots of a cache behind the last that any query may attend to
# are not read, to a quarter of its capacity.


def is_one_query(q, k, v, mask, bias, dropout, sinks=None) -> bool:
    """Return whether there is one query a sequence, and many keys, of known shapes."""
    shapes = q.shape, k.shape, v.shape
    return (
        q.shape[1] == 1
        and dropout is None
        and not any(size is None for shape in shapes for size in shape)
        and q.shape[0] == k.shape[0] == v.shape[0]
        and k.shape[1] == v.shape[1]
        and math.prod(k.shape) >= MIN_SIZE
        and keras.backend.standardize_dtype(q.dtype) != "float16"  # whose scores the reference clips
    )


@masked_attention.on("tensorflow", supports=is_one_query, device="cpu")
def one_query_attention(q, k, v, mask, bias, dropout, sinks=None):
    """Compute the attention of one query a sequence, `[B, 1, H, K']`."""
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
        weights = softmax(ops.where(mask[..., :size], scores, -1e30), sinks)
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
