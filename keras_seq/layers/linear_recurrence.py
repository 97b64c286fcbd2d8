"""Recurrences that are linear in the state, so that all positions can be computed at once (Blelloch, 1990).

    h_t = a_t h_{t-1} + b_t

Two neighbouring steps are one step:  (a_1, b_1) then (a_2, b_2)  is  (a_1 a_2, a_2 b_1 + b_2).  That composition
is associative, so T positions take about log2(T) rounds of it instead of T steps.
"""

from keras import ops

from keras_seq import kernels

LOG_ZERO = -1e30  # the logarithm of what is as good as zero, and finite, so that no gradient is NaN


def linear_recurrence(a, b, h):
    """h at every position.

    Args:
        a: `[B, T, ...]`.
        b: `[B, T, ...]`, of the same shape.
        h: `[B, ...]`, before the first position.

    Returns:
        `[B, T, ...]`.
    """
    return kernels.dispatch("linear_recurrence", _linear_recurrence, a, b, h)(a, b, h)


def log_linear_recurrence(log_a, log_b, h):
    """The same for a and b that are not negative, given by their logarithms; h may be any number.

    Products of many small a neither underflow nor lose digits: Feng et al., 2024, appendix B.
    """
    return kernels.dispatch("log_linear_recurrence", _log_linear_recurrence, log_a, log_b, h)(log_a, log_b, h)


def log_add(a, b):
    """log(exp(a) + exp(b)). (`ops.logaddexp` narrows float64 on JAX and torch, and misses a gradient where a = b.)"""
    largest = ops.stop_gradient(ops.maximum(a, b))
    return largest + ops.log(ops.exp(a - largest) + ops.exp(b - largest))


def _linear_recurrence(a, b, h):
    def then(first, second):
        return first[0] * second[0], second[0] * first[1] + second[1]

    return _scan(then, a, ops.concatenate([b[:, :1] + a[:, :1] * ops.expand_dims(h, 1), b[:, 1:]], axis=1), 0.0)


def _log_linear_recurrence(log_a, log_b, h):
    def then(first, second):
        return first[0] + second[0], log_add(second[0] + first[1], second[1])

    from_zero = ops.exp(_scan(then, log_a, log_b, LOG_ZERO))
    return from_zero + ops.exp(ops.cumsum(log_a, axis=1)) * ops.expand_dims(h, 1)  # h may be negative, so no logarithm


def _scan(then, a, b, nothing):
    """b composed up to every position; `nothing` is the b that adds nothing."""
    if isinstance(a.shape[1], int):
        h = ops.associative_scan(then, (a, b), axis=1)[1]
        return ops.reshape(h, ops.shape(b))  # TensorFlow's graphs forget the shape on the way
    # Keras's associative scan wants to know T. One tensor is scanned, for the same reason as in `recurrence`.
    pairs = ops.swapaxes(ops.stack([a, b], axis=-1), 0, 1)

    def position(before, pair):
        after = then((pair[..., 0], before), (pair[..., 0], pair[..., 1]))[1]
        return after, after

    _, h = ops.scan(position, ops.full_like(b[:, 0], nothing), pairs)
    return ops.swapaxes(h, 0, 1)
