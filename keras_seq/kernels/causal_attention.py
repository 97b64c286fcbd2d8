"""`layers.attention.causal_attention` for long sequences on TensorFlow's CPU: in blocks of rows, nothing kept of T x T.

    scores_i = q_i k[: end_i]^T / sqrt(K)      only what lies before the end of block i, so half the work is not done
    y_i = softmax(scores_i) v[: end_i],        z_i = log sum exp(scores_i)

The gradient takes the scores once more instead of keeping them (Dao et al., 2022):

    p = exp(scores - z);    dv += p^T dy;    ds = p (dy v^T - sum(dy y));    dq = ds k;    dk += ds^T q

The products of matrices are TensorFlow's; what lies between them is one loop over memory each, compiled by XLA. Heads
are taken a few at a time, so that the scores of a block stay in the processor's cache. A block waits for the one before
the last: while one multiplies, the other is in its loop, and no more than two are in memory.
"""

import tensorflow as tf

from keras_seq.kernels.devices import on_cpu

MIN_BLOCK_ROWS, MAX_BLOCK_ROWS = 128, 512  # of a block: an eighth of the positions between the two
MIN_SEQUENCE_LENGTH = 256  # positions; below, the blocks cost more than the skipped half gives
MAX_SCORES_PER_BLOCK = 2**19  # of a block: what a cache holds
MAX_HEAD_SLICES = 16  # of the heads of all rows, lest the graph grow with the batch


def supports(q, k, v):
    """Whether the twin takes these arguments: on a CPU, float32 or bfloat16, many positions whose number is known."""
    return on_cpu() and q.dtype in (tf.float32, tf.bfloat16) and (q.shape[1] or 0) >= MIN_SEQUENCE_LENGTH


def apply(q, k, v):
    """The twin of `keras_seq.layers.attention.causal_attention`; see there."""
    (length, heads), groups = q.shape[1:3], k.shape[2]
    # Heads before positions, and the query heads that share keys beside each other: [B G, H / G, T, K]
    q = tf.reshape(_heads_first(q), (-1, heads // groups, length, q.shape[3]))
    k, v = (tf.reshape(_heads_first(x), (-1, 1, length, x.shape[3])) for x in (k, v))
    return _heads_first(tf.reshape(_attention(q, k, v), (-1, heads, length, v.shape[3])))


def _heads_first(x):
    return tf.transpose(x, (0, 2, 1, 3))  # and back


def _head_slices(q):
    """Slices of the first axis of q: what is worked on before the rest."""
    number, shared, length, _ = q.shape
    if number is None:
        return [slice(None)]
    start, end = _query_blocks(length)[0]
    size = max(MAX_SCORES_PER_BLOCK // (shared * (end - start) * length), -(-number // MAX_HEAD_SLICES), 1)
    return [slice(first, min(first + size, number)) for first in range(0, number, size)]


def _query_blocks(length):
    rows = min(max(length // 8, MIN_BLOCK_ROWS), MAX_BLOCK_ROWS)
    return [(start, min(start + rows, length)) for start in range(0, length, rows)]


@tf.custom_gradient
def _attention(q, k, v):
    scale = q.shape[3] ** -0.5
    parts, done = [], []
    for part in _head_slices(q):
        rows, normalizers = [], []
        for start, end in _query_blocks(q.shape[2]):
            with tf.control_dependencies(done[-2:-1]):
                scores = tf.matmul(q[part, :, start:end], k[part, :, :end], transpose_b=True)
            weights, normalizer = _softmax(scores, scale)
            rows.append(tf.matmul(weights, v[part, :, :end]))
            normalizers.append(normalizer)
            done.append(rows[-1])
        parts.append((tf.concat(rows, axis=2), normalizers))
    y = tf.concat([rows for rows, _ in parts], axis=0)

    def gradient(dy):
        slopes, done = [], []
        for part, (y_part, normalizers) in zip(_head_slices(q), parts, strict=True):
            dq, dk, dv = [], None, None
            for (start, end), normalizer in reversed([*zip(_query_blocks(q.shape[2]), normalizers, strict=True)]):
                q_i, dy_i, y_i = q[part, :, start:end], dy[part, :, start:end], y_part[:, :, start:end]
                k_i, v_i = k[part, :, :end], v[part, :, :end]
                with tf.control_dependencies(done[-2:-1]):
                    scores = tf.matmul(q_i, k_i, transpose_b=True)
                    d_weights = tf.matmul(dy_i, v_i, transpose_b=True)
                weights, d_scores = _softmax_gradient(scores, scale, normalizer, d_weights, dy_i, y_i)
                dq.append(tf.matmul(d_scores, k_i))
                dk = _accumulate(dk, tf.matmul(d_scores, q_i, transpose_a=True))
                dv = _accumulate(dv, tf.matmul(weights, dy_i, transpose_a=True))
                with tf.control_dependencies([dq[-1], dk, dv]):
                    done.append(tf.no_op())
            slopes.append((tf.concat(dq[::-1], axis=2), tf.cast(dk, k.dtype), tf.cast(dv, v.dtype)))
        return [tf.concat(tensors, axis=0) for tensors in zip(*slopes, strict=True)]

    return y, gradient


def _accumulate(whole, part):
    """What all query heads of a group give to the first positions `[N, H / G, end, K]`, added to `[N, 1, T, K]`."""
    part = tf.cast(part, tf.float32)
    part = tf.reduce_sum(part, axis=1, keepdims=True) if part.shape[1] > 1 else part
    if whole is None:  # the last block, which sees every position
        return part
    end = part.shape[2]
    return tf.concat([whole[:, :, :end] + part, whole[:, :, end:]], axis=2)


def _masked(scores, scale):
    """Scores `[..., rows, end]` of the last rows before `end`, in float32; what lies after a row's position is -inf."""
    rows, end = scores.shape[-2:]
    after = tf.range(end)[None] > tf.range(end - rows, end)[:, None]
    return tf.where(after, float("-inf"), scale * tf.cast(scores, tf.float32))


@tf.function(jit_compile=True)
def _softmax(scores, scale):
    masked = _masked(scores, scale)
    highest = tf.reduce_max(masked, axis=-1, keepdims=True)
    e = tf.exp(masked - highest)
    total = tf.reduce_sum(e, axis=-1, keepdims=True)
    return tf.cast(e / total, scores.dtype), highest + tf.math.log(total)


@tf.function(jit_compile=True)
def _softmax_gradient(scores, scale, normalizer, d_weights, dy, y):
    weights = tf.exp(_masked(scores, scale) - normalizer)
    mean = tf.reduce_sum(tf.cast(dy, tf.float32) * tf.cast(y, tf.float32), axis=-1, keepdims=True)
    d_scores = scale * weights * (tf.cast(d_weights, tf.float32) - mean)
    return tf.cast(weights, scores.dtype), tf.cast(d_scores, scores.dtype)
