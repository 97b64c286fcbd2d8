"""Recurrences whose state is a matrix for each head, computed by matmuls over chunks of positions.

    S_t = w_t S_{t-1} + b_t u_t + k_t v_t          u_t = a_t (w_t S_{t-1}): what the decayed state holds for a_t
    y_t = q_t S_t                                  S: [K, V];  q, k, a, b: [K];  v, u: [V];  w: decay of each row of S

Without a and b this is linear attention with decay (gated linear attention, Mamba-2, mLSTM). With a = -k and b = k it
is the gated delta rule (Yang et al., 2024, arXiv:2412.06464): it replaces what the state holds for a key. Kimi Delta
Attention has another decay for each row, and RWKV-7 another b, too. Several delta rules at a position (DeltaProduct;
Siems et al., 2025, arXiv:2502.10297) are so many positions, of which the first one decays and the last one is read.
"""

import itertools
import math

import keras
import numpy as np
from keras import ops

from keras_seq.ops.dispatch import export_format
from keras_seq.ops.linear_recurrence import LOG_ZERO, linear_recurrence
from keras_seq.ops.recurrence import recurrence

GROUP_SIZE = 512  # positions that are computed together, at most; a longer or unknown T is computed in groups
MAX_EXPONENT = 40.0  # the factors of a product of decays are from exp(-40) to exp(40), far inside float32


def matrix_recurrence(
    q, k, v, log_decay, state, channel_log_decay=None, a=None, b=None, chunk_size=64, reset_mask=None, clip=True
):
    """Compute y at every position and the last state.

    With `clip`, the decay of a row is at least exp(-80 / chunk_size), which is faster than the exact one. Where k, v
    and a have n times the heads of `log_decay [B, T, H]`, they hold n delta rules a position, one after the other.
    """
    args = q, k, v, log_decay, channel_log_decay, a, b, reset_mask
    if (count := v.shape[2] // log_decay.shape[2]) > 1:
        return _several_rules(q, k, v, log_decay, a, reset_mask, state, count, chunk_size)
    if v.shape[1] == 1:
        return _one_position(*args, state)
    if export_format() is not None:
        return _position_by_position(*args, state)
    compute = _chunked if isinstance(v.shape[1], int) and v.shape[1] <= GROUP_SIZE else _grouped
    return compute(*args, state, chunk_size, clip)


def _several_rules(q, k, v, log_decay, a, reset_mask, state, count, chunk_size):
    """Compute `count` delta rules at each position, for k and a `[B, T, count H, K]` and v `[B, T, count H, V]`."""
    batch_size, length, heads = *ops.shape(v)[:2], log_decay.shape[2]
    if v.shape[1] == 1:
        parts = zip(*(ops.split(x, count, axis=2) for x in (k, v, a)), strict=True)
        for n, (k, v, a) in enumerate(parts):
            decay, mask = (ops.zeros_like(log_decay), None) if n else (log_decay, reset_mask)
            y, state = _one_position(q, k, v, decay, None, a, None, mask, state)
        return y, state
    k, v, a = (ops.reshape(x, (batch_size, length * count, heads, x.shape[3])) for x in (k, v, a))

    def spread(x, place):  # [B, T, ...] -> [B, T count, ...], zeros at all but one of the count places
        parts = [x if n == place else ops.zeros_like(x) for n in range(count)]
        return ops.reshape(ops.stack(parts, axis=2), (batch_size, length * count, *x.shape[2:]))

    reset_mask = None if reset_mask is None else spread(reset_mask, 0)
    q, log_decay = spread(q, count - 1), spread(log_decay, 0)
    y, state = matrix_recurrence(q, k, v, log_decay, state, a=a, chunk_size=chunk_size, reset_mask=reset_mask)
    return ops.reshape(y, (batch_size, length, count, heads, v.shape[3]))[:, :, -1], state


def _one_position(q, k, v, log_decay, channel_log_decay, a, b, reset_mask, state):
    """Compute the formula itself, for T = 1: a chunk of one position would solve a system of one equation."""
    if reset_mask is not None:
        log_decay = ops.where(ops.expand_dims(reset_mask, -1), LOG_ZERO, log_decay)
    decay = ops.exp(log_decay[:, 0, :, None, None])  # [B, H, 1, 1]
    if channel_log_decay is not None:
        decay = decay * ops.exp(channel_log_decay[:, 0, :, :, None])  # [B, H, K, 1]
    state = decay * state
    written = k[:, 0, :, :, None] * v[:, 0, :, None]  # [B, H, K, V]
    if a is not None:
        u = ops.matmul(a[:, 0, :, None], state)  # [B, H, 1, V]
        written = written + (k if b is None else b)[:, 0, :, :, None] * u
    state = state + written
    q = q[:, 0, :, None] * ops.ones_like(decay[:, :, :1])  # of every head: a product with a shared one is slower
    y = ops.matmul(q, state)  # [B, H, 1, V]
    return ops.swapaxes(y, 1, 2), state


def _position_by_position(*args):
    """Compute one position after the other, without triangular systems, of which no file knows, and for any T."""
    *args, state = args
    dtype, shape, output_shape = state.dtype, tuple(state.shape[1:]), tuple(args[2].shape[2:])
    batch_size, length = ops.shape(args[2])[:2]
    rows, parts_of = _rows(args, dtype)

    def cell(row, y_and_state):
        y, new = _one_position(*parts_of(row, -1, 1), ops.reshape(y_and_state[1], (-1, *shape)))
        return ops.reshape(y, (-1, math.prod(output_shape))), ops.reshape(new, (-1, math.prod(shape)))

    first = ops.zeros((batch_size, math.prod(output_shape)), dtype)
    state = ops.reshape(state, (batch_size, math.prod(shape)))
    y, (_, state) = recurrence(cell, rows, (first, state))
    return ops.reshape(y, (batch_size, length, *output_shape)), ops.reshape(state, (batch_size, *shape))


def _rows(args, dtype):
    """Return tensors `[B, T, ...]` as rows `[B, T, W]` of one, and a function that gives them back from such rows.

    Keras scans several tensors only where T is known. Some may be None, and the last one is a mask.
    """
    batch_size, length = ops.shape(args[2])[:2]
    shapes = [None if x is None else tuple(x.shape[2:]) for x in args]
    widths = [0 if shape is None else math.prod(shape) for shape in shapes]
    ends = [*itertools.accumulate(widths)]
    given = [(x, width) for x, width in zip(args, widths, strict=True) if x is not None]
    rows = [ops.reshape(ops.cast(x, dtype), (batch_size, length, width)) for x, width in given]

    def parts_of(rows, batch_size, length):
        *parts, mask = (
            None if shape is None else ops.reshape(rows[..., end - width : end], (batch_size, length, *shape))
            for shape, width, end in zip(shapes, widths, ends, strict=True)
        )
        return *parts, None if mask is None else mask > 0

    return ops.concatenate(rows, axis=-1), parts_of


def _grouped(q, k, v, log_decay, channel_log_decay, a, b, reset_mask, state, chunk_size, clip):
    """Compute `matrix_recurrence`, one group of chunks after the other.

    Between forward and backward pass, only the arguments and the state before each group are stored; the gradient
    computes one group after the other again.
    """
    batch_size, length, dtype = ops.shape(v)[0], ops.shape(v)[1], v.dtype
    num_groups = -(-length // max(GROUP_SIZE, chunk_size))
    size = -(-length // (num_groups * chunk_size)) * chunk_size  # positions of a group
    rows, parts_of = _rows((q, k, v, log_decay, channel_log_decay, a, b, reset_mask), dtype)
    width, output_shape, state_shape = rows.shape[-1], tuple(v.shape[2:]), tuple(state.shape[1:])

    @keras.remat
    def group(rows, state):
        parts = parts_of(ops.reshape(rows, (batch_size, size, width)), batch_size, size)
        y, state = _chunked(*parts, ops.reshape(state, (batch_size, *state_shape)), chunk_size, clip)
        y = ops.reshape(y, (batch_size, size * math.prod(output_shape)))
        return y, ops.reshape(state, (batch_size, math.prod(state_shape)))

    padding = ops.zeros((batch_size, num_groups * size - length, width), dtype)  # neither decays nor writes
    rows = ops.reshape(ops.concatenate([rows, padding], axis=1), (batch_size, num_groups, size * width))
    first = ops.zeros((batch_size, size * math.prod(output_shape)), dtype)
    state = ops.reshape(state, (batch_size, math.prod(state_shape)))
    y, (_, state) = recurrence(lambda rows, state: group(rows, state[1]), rows, (first, state))
    y = ops.reshape(y, (batch_size, num_groups * size, *output_shape))[:, :length]
    return y, ops.reshape(state, (batch_size, *state_shape))


def _chunked(q, k, v, log_decay, channel_log_decay, a, b, reset_mask, state, chunk_size, clip):
    """Compute `matrix_recurrence`, all chunks together.

    In a chunk that starts from S, with w(s, t] the product of the decays after s up to t, the u solve a triangular
    system, u_t = a_t w(0, t] S + sum_{s<t} a_t w(s, t] (b_s u_s + k_s v_s). So u = W S + U (the WY form), the state
    after the chunk is M S + N, and what remains is one loop over chunks: its graph does not depend on T.
    """
    batch_size, length, size = ops.shape(v)[0], ops.shape(v)[1], chunk_size
    if isinstance(v.shape[1], int):
        size = min(chunk_size, v.shape[1])
    count = -(-length // size)

    def chunks(x):  # [B, T, H, ...] -> [B, n, H, C, ...]; padding at the end neither decays nor writes
        x = ops.concatenate([x, ops.zeros((batch_size, count * size - length, *x.shape[2:]), x.dtype)], axis=1)
        return ops.swapaxes(ops.reshape(x, (batch_size, count, size, *x.shape[2:])), 2, 3)

    if reset_mask is not None:
        log_decay = ops.where(ops.expand_dims(reset_mask, -1), LOG_ZERO, log_decay)
    q, k, v, g = chunks(q), chunks(k), chunks(v), chunks(log_decay)
    decays, from_start, to_end = _pairwise_decays(g)  # [B, n, H, C, C], twice [B, n, H, C, 1]
    total = ops.expand_dims(from_start[..., -1, :], -1)  # [B, n, H, 1, 1]
    products = _products
    if channel_log_decay is not None:
        rates = chunks(channel_log_decay)
        if clip:
            resets = None if reset_mask is None else ops.where(reset_mask[..., None], LOG_ZERO, 0.0)
            products, *decays_of_rows = _products_from_the_middle(rates, None if resets is None else chunks(resets))
        else:
            products, *decays_of_rows = _products_by_halves(rates)
        total = total * ops.swapaxes(decays_of_rows[0][..., -1:, :], -1, -2)  # [B, n, H, K, 1]
        from_start, to_end = from_start * decays_of_rows[0], to_end * decays_of_rows[1]
    causal = ops.tril(ops.ones((size, size), "bool"))

    def scores(left, right, allowed=causal):  # left_t w(s, t] right_s for s up to t, [B, n, H, C, C]
        return decays * ops.where(allowed, products(left, right), 0.0)  # where first: later positions may be inf

    qk, written = scores(q, k), ops.matmul(ops.swapaxes(k * to_end, -1, -2), v)
    if a is None:
        before, state = _states(total, written, state)
        y = ops.matmul(q * from_start, before) + ops.matmul(qk, v)
    else:
        is_delta_rule, a = b is None, chunks(a)
        b = k if is_delta_rule else chunks(b)
        earlier = ops.tril(ops.ones((size, size), "bool"), -1)
        ab, qb = scores(a, b, earlier), qk if is_delta_rule else scores(q, b)
        ak = ab if is_delta_rule else scores(a, k, earlier)
        known = ops.concatenate([a * from_start, ops.matmul(ak, v)], axis=-1)
        known = ops.solve_triangular(ops.eye(size, dtype=ab.dtype) - ab, known, lower=True)
        b_end = ops.swapaxes(b * to_end, -1, -2)
        transition = ops.matmul(b_end, known)
        width = k.shape[-1]
        transition = transition + ops.concatenate([total * ops.eye(width, dtype=ab.dtype), written], axis=-1)
        before, state = _transformed_states(transition, state, width)
        u = ops.matmul(known[..., :width], before) + known[..., width:]
        y = ops.matmul(q * from_start, before) + ops.matmul(qk, v) + ops.matmul(qb, u)
    y = ops.reshape(ops.swapaxes(y, 2, 3), (batch_size, count * size, *state.shape[1::2]))
    return y[:, :length], state


def _pairwise_decays(g):
    """Return exp(g_{s+1} + ... + g_t) for s <= t, else 0, and these products from the start and to the end of a chunk.

    Sums are not differences of other sums: after a reset they would be lost to rounding.
    """
    size = g.shape[-1]
    is_later = ops.tril(ops.ones((size, size), "bool"), -1)
    sums = ops.cumsum(ops.where(is_later, ops.expand_dims(g, -1), 0.0), axis=-2)
    decays = ops.where(ops.tril(ops.ones((size, size), "bool")), ops.exp(sums), 0.0)
    from_start = ops.exp(sums[..., :1] + g[..., :1, None])
    return decays, from_start, ops.expand_dims(decays[..., -1, :], -1)


def _products(left, right):
    """Return left_t right_s, `[..., C, C]`."""
    return ops.matmul(left, ops.swapaxes(right, -1, -2))


# Of rows that decay each at its own rate: a function that computes left_t w(s, t] right_s for s up to t, and the decays
# from the start and to the end of a chunk, `[B, n, H, C, K]` each.


def _products_from_the_middle(rates, resets):
    """Write the decay between positions as one from a fixed point and one to it, clipped so that both are finite."""
    rates = ops.maximum(rates, -2 * MAX_EXPONENT / rates.shape[-2])
    if resets is None:
        exponents = ops.cumsum(rates, axis=3)
    else:  # sums within a document: differences of longer ones would depend on the one before, by rounding
        exponents = ops.matmul(_pairwise_decays(ops.cast(resets, rates.dtype))[0], rates)
    middle_to, to_middle = ops.exp(exponents + MAX_EXPONENT), ops.exp(-MAX_EXPONENT - exponents)
    from_start, to_end = ops.exp(exponents), ops.exp(exponents[..., -1:, :] - exponents)
    return lambda left, right: _products(left * middle_to, right * to_middle), from_start, to_end


def _products_by_halves(rates):
    """Write the decay between positions as one to a border and one from it, of which none overflows at any rate.

    Two positions lie in the two halves of one part of a chunk, of 2, 4, 8, ... positions, with the border between.
    """
    size = rates.shape[-2]
    t, s = np.arange(size)[:, None], np.arange(size)
    sums, is_pair = [s <= t, s > t, np.zeros((size, size))], [t == s]
    for half in (2**level for level in range((size - 1).bit_length())):
        border = t // (2 * half) * (2 * half) + half
        sums.append(np.where(t < border, (t < s) & (s < border), (border <= s) & (s <= t)))
        is_pair.append((border == border.T) & (s < border) & (border <= t))
    sums, is_pair = (ops.convert_to_tensor(np.stack(x).astype("float32"), rates.dtype) for x in (sums, is_pair))
    decays = ops.exp(ops.matmul(sums, ops.expand_dims(rates, -3)))  # [B, n, H, 3 + log2 C, C, K]
    by_level = decays[..., 2:, :, :]

    def products(left, right):
        left, right = ops.expand_dims(left, -3) * by_level, ops.expand_dims(right, -3) * by_level
        return ops.sum(is_pair * _products(left, right), axis=-3)

    return products, decays[..., 0, :, :], decays[..., 1, :, :]


def _states(decay, written, state):
    """Return the states before each chunk, and the last one, of S_n = decay_n S_{n-1} + written_n."""
    states = linear_recurrence(ops.broadcast_to(decay, ops.shape(written)), written, state)
    return ops.concatenate([ops.expand_dims(state, 1), states[:, :-1]], axis=1), states[:, -1]


def _transformed_states(transition, state, width):
    """Return the states before each chunk, and the last one, of S_n = M_n S_{n-1} + N_n for transitions [M_n, N_n]."""
    shape = ops.shape(transition)  # [B, n, H, K, K + V]

    def cell(transition, state):
        transition = ops.reshape(transition, (shape[0], *shape[2:]))
        state = ops.reshape(state, (shape[0], *shape[2:4], shape[4] - width))
        new = ops.matmul(transition[..., :width], state) + transition[..., width:]
        return ops.reshape(new, (shape[0], math.prod(new.shape[1:])))

    rows = ops.reshape(transition, (*shape[:2], math.prod(transition.shape[2:])))
    states, last = recurrence(cell, rows, ops.reshape(state, (shape[0], math.prod(state.shape[1:]))))
    states = ops.reshape(states, (*shape[:2], *state.shape[1:]))
    before = ops.concatenate([ops.expand_dims(state, 1), states[:, :-1]], axis=1)
    return before, ops.reshape(last, (shape[0], *state.shape[1:]))
