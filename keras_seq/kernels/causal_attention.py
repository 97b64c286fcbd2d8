"""`layers.attention.causal_attention` for long sequences on TensorFlow's CPU: in blocks of rows, nothing kept of T x T.

    scores_i = q_i k[: end_i]^T / sqrt(K)      only what lies before the end of block i, so half the work is not done
    y_i = softmax(scores_i) v[: end_i],        z_i = log sum exp(scores_i)

The gradient takes the scores once more instead of keeping them (Dao et al., 2022):

    p = exp(scores - z);    dv += p^T dy;    ds = p (dy v^T - sum(dy y));    dq = ds k;    dk += ds^T q

One block waits for the other, so no more than one is in memory. The products of matrices are TensorFlow's; what lies
between them is one loop over memory each, compiled by XLA.
"""

import tensorflow as tf

from keras_seq.kernels.devices import on_cpu

FEWEST_ROWS, MOST_ROWS = 128, 512  # of a block: an eighth of the positions between the two
SHORTEST = 256  # positions; below, the blocks cost more than the skipped half gives


def can_run(q, k, v):
    """Whether the twin takes these arguments: on a CPU, float32 or bfloat16, many positions whose number is known."""
    return on_cpu() and q.dtype in (tf.float32, tf.bfloat16) and (q.shape[1] or 0) >= SHORTEST


def run(q, k, v):
    """The twin of `keras_seq.layers.attention.causal_attention`; see there."""
    groups = k.shape[2]
    q = q * tf.cast(q.shape[-1] ** -0.5, q.dtype)
    # Heads before positions, and the query heads that share keys beside each other: [B, G, H / G, T, K]
    q = tf.stack([_heads_first(part) for part in tf.split(q, groups, axis=2)], axis=1)
    k, v = (_heads_first(x)[:, :, None] for x in (k, v))  # [B, G, 1, T, K]
    y = _attention(q, k, v)
    y = tf.concat([_heads_first(part) for part in tf.unstack(y, axis=1)], axis=2)
    return y  # [B, T, H, K']


def _heads_first(x):
    return tf.transpose(x, (0, 2, 1, 3))  # and back


def _blocks(length):
    rows = min(max(length // 8, FEWEST_ROWS), MOST_ROWS)
    return [(start, min(start + rows, length)) for start in range(0, length, rows)]


@tf.custom_gradient
def _attention(q, k, v):
    rows, normalizers = [], []
    for start, end in _blocks(q.shape[3]):
        with tf.control_dependencies(rows[-1:]):
            scores = tf.matmul(q[..., start:end, :], k[..., :end, :], transpose_b=True)
        weights, normalizer = _softmax(scores)
        rows.append(tf.matmul(weights, v[..., :end, :]))
        normalizers.append(normalizer)
    y = tf.concat(rows, axis=3)

    def gradient(dy):
        dk, dv = (tf.zeros(tf.shape(x), tf.float32) for x in (k, v))
        dq = []
        for (start, end), normalizer in zip(_blocks(q.shape[3]), normalizers, strict=True):
            q_i, dy_i, y_i = (x[..., start:end, :] for x in (q, dy, y))
            with tf.control_dependencies([*dq[-1:], dk, dv]):
                scores = tf.matmul(q_i, k[..., :end, :], transpose_b=True)
                d_weights = tf.matmul(dy_i, v[..., :end, :], transpose_b=True)
            weights, d_scores = _softmax_gradient(scores, normalizer, d_weights, dy_i, y_i)
            dq.append(tf.matmul(d_scores, k[..., :end, :]))
            dk += _until(tf.matmul(d_scores, q_i, transpose_a=True), k)
            dv += _until(tf.matmul(weights, dy_i, transpose_a=True), v)
        return tf.concat(dq, axis=3), tf.cast(dk, k.dtype), tf.cast(dv, v.dtype)

    return y, gradient


def _until(part, whole):
    """What all query heads of a group give to the first positions `[B, G, H / G, end, K]`, as `[B, G, 1, T, K]`."""
    part = tf.reduce_sum(tf.cast(part, tf.float32), axis=2, keepdims=True)
    missing = whole.shape[3] - part.shape[3]
    return tf.pad(part, [[0, 0], [0, 0], [0, 0], [0, missing], [0, 0]])


def _masked(scores):
    """Scores `[..., rows, end]` of the last rows before `end`, in float32; what lies after a row's position is -inf."""
    rows, end = scores.shape[-2:]
    after = tf.range(end)[None] > tf.range(end - rows, end)[:, None]
    return tf.where(after, float("-inf"), tf.cast(scores, tf.float32))


@tf.function(jit_compile=True)
def _softmax(scores):
    masked = _masked(scores)
    highest = tf.reduce_max(masked, axis=-1, keepdims=True)
    e = tf.exp(masked - highest)
    total = tf.reduce_sum(e, axis=-1, keepdims=True)
    return tf.cast(e / total, scores.dtype), highest + tf.math.log(total)


@tf.function(jit_compile=True)
def _softmax_gradient(scores, normalizer, d_weights, dy, y):
    weights = tf.exp(_masked(scores) - normalizer)
    mean = tf.reduce_sum(tf.cast(dy, tf.float32) * tf.cast(y, tf.float32), axis=-1, keepdims=True)
    d_scores = weights * (tf.cast(d_weights, tf.float32) - mean)
    return tf.cast(weights, scores.dtype), tf.cast(d_scores, scores.dtype)
