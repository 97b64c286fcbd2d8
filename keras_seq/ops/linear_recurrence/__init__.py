"""Recurrences that are linear in the state, so that all positions can be computed in parallel (Blelloch, 1990).

    h_t = a_t h_{t-1} + b_t

The composition of two neighboring steps is one step:  (a_1, b_1) then (a_2, b_2)  is  (a_1 a_2, a_2 b_1 + b_2).  It is
associative, so T positions take about log2(T) rounds of it instead of T steps.
"""

import keras
from keras import ops

from keras_seq.ops.dispatch import optimized
from keras_seq.ops.recurrence import scan

LOG_ZERO = -1e30  # stands for log 0, finite so that no gradient is NaN


@optimized
def linear_recurrence(a, b, h):
    """Compute h at every position from decays a and inputs b, `[B, T, ...]` each, and the state h `[B, ...]` before."""

    def compose(first, second):
        return first[0] * second[0], second[0] * first[1] + second[1]

    return _scan(compose, a, _with_first(b[:, :1] + a[:, :1] * ops.expand_dims(h, 1), b), 0.0)


@optimized
def log_linear_recurrence(log_a, log_b, h):
    """Compute `linear_recurrence` for non-negative a and b that are given by their logarithms; h may have any sign.

    Products of many small a neither underflow nor lose precision: Feng et al., 2024, appendix B.
    """

    def compose(first, second):
        return first[0] + second[0], log_add(second[0] + first[1], second[1])

    if log_a.shape[1] == 1:
        return ops.exp(log_b) + ops.exp(log_a) * ops.expand_dims(h, 1)
    from_zero = ops.exp(_scan(compose, log_a, log_b, LOG_ZERO))
    return from_zero + ops.exp(ops.cumsum(log_a, axis=1)) * ops.expand_dims(h, 1)  # h may be negative, so no logarithm


def max_plus_recurrence(a, b, h):
    """Compute the recurrence with addition for multiplication and the maximum for addition: max(a_t + h_{t-1}, b_t)."""

    def compose(first, second):
        return first[0] + second[0], ops.maximum(second[0] + first[1], second[1])

    return _scan(compose, a, _with_first(ops.maximum(b[:, :1], a[:, :1] + ops.expand_dims(h, 1)), b), LOG_ZERO)


def log_add(a, b):
    """Compute log(exp(a) + exp(b)) elementwise.

    (`ops.logaddexp` narrows float64 on JAX and torch, and has a wrong gradient where a = b.)
    """
    largest = ops.stop_gradient(ops.maximum(a, b))
    return largest + ops.log(ops.exp(a - largest) + ops.exp(b - largest))


def has_several_positions(a, b, h) -> bool:
    """Return whether T is not known to be 1, for which the reference is one line."""
    return a.shape[1] != 1


def _with_first(first, b):
    """Return `b [B, T, ...]` with `first [B, 1, ...]` in the place of its first position."""
    return first if b.shape[1] == 1 else ops.concatenate([first, b[:, 1:]], axis=1)


def _scan(compose, a, b, identity):
    """Return b composed up to every position; adding `identity` as a b changes nothing."""
    length, rest = a.shape[1], ((0, 0),) * (len(a.shape) - 2)
    if isinstance(length, int):  # not Keras's associative scan, which XLA cannot compile on TensorFlow
        shift = 1
        while shift < length:
            padding = ((0, 0), (shift, 0), *rest)
            earlier = ops.pad(a[:, :-shift], padding), ops.pad(b[:, :-shift], padding, constant_values=identity)
            (a, b), shift = compose(earlier, (a, b)), 2 * shift
        return b

    def step(h, pair):
        return compose((pair[..., 0], h), (pair[..., 0], pair[..., 1]))[1]

    pairs = ops.swapaxes(ops.stack([a, b], axis=-1), 0, 1)  # one tensor, as `scan` takes it
    h, _ = scan(step, ops.full_like(b[:, 0], identity), pairs)
    return ops.swapaxes(h, 0, 1)


if keras.backend.backend() == "tensorflow":
    import keras_seq.ops.linear_recurrence.tensorflow
elif keras.backend.backend() == "jax":
    import keras_seq.ops.linear_recurrence.jax
elif keras.backend.backend() == "torch":
    import keras_seq.ops.linear_recurrence.torch  # noqa: F401  (binds the twins)
