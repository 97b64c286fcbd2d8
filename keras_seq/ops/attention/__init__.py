"""Scaled dot-product attention (Vaswani et al., 2017), and which positions may attend to which.

    weights = softmax(q kᵀ / sqrt(K) + bias)         over the positions that the mask allows
    y = weights v

Without 1 / sqrt(K) the scores grow with K, and the softmax saturates. Several query heads may share one head of keys
and values (multi-query: Shazeer, 2019; grouped-query: Ainslie et al., 2023). Two additions:

    weights_s = e^score_s / (e^sink + sum e^score)   a sink a head takes a part of the weight (gpt-oss: OpenAI, 2025)
    score_ts += c_t - c_s                            c: log decays, summed from the first position on (Lin et al., 2025)
"""

import functools
from collections.abc import Callable

import keras
from keras import ops

from keras_seq.ops import tensor_checks
from keras_seq.ops.dispatch import export_format, optimized
from keras_seq.ops.tensor_checks import at_least_float32, where_valid


def attention(q, k, v, mask=None, bias=None, scale: float | None = None, dropout: Callable | None = None, sinks=None):
    """Compute softmax attention, with the softmax in float32 or wider.

    Args:
        q: Queries `[B, T, H, K]`.
        k: Keys `[B, S, G, K]` with G a divisor of H: query head h attends to key head h * G // H.
        v: Values `[B, S, G, K']`.
        mask: Booleans (or 0 and 1) `[T, S]`, `[B, T, S]` or `[B, H, T, S]` (any axis may be 1), true where attending is
            allowed. A query with nothing to attend to gives zeros. Keys and values that are not finite count for the
            queries that may attend to them only. An additive float mask is a `bias`.
        bias: Added to the scores, broadcastable to `[B, H, T, S]`.
        scale: Factor of the scores; 1 / sqrt(K) unless given.
        dropout: A function applied to the weights before the product with the values.
        sinks: Scores `[H]` of a key without a value, which every query attends to; zeros make the softmax "off by
            one". None for none.

    Returns:
        `(y [B, T, H, K'], weights [B, H, T, S])`, weights before dropout, both in the dtype of v. The weights of a
        query sum to 1, with sinks to less.

    Raises:
        ValueError: If the shapes do not match, a tensor is complex, or the mask is a float mask.
    """
    q, k, v, mask = checked_attention_inputs(q, k, v, mask)
    if mask is None:
        return softmax_attention(q, k, v, mask, bias, scale, dropout, sinks)
    is_finite, k, v = finite_slots(k, v)  # a weight of 0 times NaN is NaN
    y, weights = softmax_attention(q, k, v, mask, bias, scale, dropout, sinks)
    mask = mask[None] if len(mask.shape) == 2 else mask
    mask = mask[:, None] if len(mask.shape) == 3 else mask  # [B, H, T, S]
    is_nan = ops.any(ops.logical_and(mask, ops.logical_not(is_finite)[:, None, None]), axis=-1, keepdims=True)
    y = ops.where(ops.swapaxes(is_nan, 1, 2), float("nan"), y)
    return y, ops.where(is_nan, float("nan"), weights)


def finite_slots(k, v):
    """Return which slots `[B, S]` hold numbers, and keys and values `[B, S, G, K]`, zeros in the others."""
    is_finite = ops.logical_and(*(ops.all(ops.isfinite(x), axis=(2, 3)) for x in (k, v)))
    return is_finite, where_valid(is_finite, k), where_valid(is_finite, v)


def checked_attention_inputs(q, k, v, mask):
    """Return q, k, v and the mask of `attention`, real and boolean, or raise what it raises."""
    tensors = {"q": q, "k": k, "v": v}
    q, k, v = (tensor_checks.real(name, ops.convert_to_tensor(x), "float32") for name, x in tensors.items())
    shapes = {"q": tuple(q.shape), "k": tuple(k.shape), "v": tuple(v.shape)}
    for name, shape in shapes.items():
        if len(shape) != 4:
            raise ValueError(f"{name} has shape {shape}; expected [B, T, H, K].")
    shapes = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    if q.shape[3] != k.shape[3] or k.shape[2] != v.shape[2] or q.shape[2] % k.shape[2]:
        raise ValueError(
            f"{shapes}; expected q and k of one width, k and v with one number of heads, a divisor of q's."
        )
    if _sizes_differ(q.shape[0], k.shape[0], v.shape[0]) or _sizes_differ(k.shape[1], v.shape[1]):
        raise ValueError(f"{shapes}; expected one batch size B, and k and v of one length S.")
    q = tensor_checks.where_boolean(q, mask)
    mask = tensor_checks.attention_mask("mask", mask, q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    return q, k, v, mask


def softmax_attention(q, k, v, mask, bias=None, scale=None, dropout=None, sinks=None):
    """Compute `attention` of checked arguments, keys and values finite where a mask hides some."""
    heads, key_dim = q.shape[2:]
    kv_heads = k.shape[2]
    (batch_size, length), size = batch_and_length(q), ops.shape(k)[1]
    if 0 in (q.shape[1], k.shape[1]):  # which TensorFlow's einsum refuses
        y_shape, shape = (batch_size, length, heads, v.shape[-1]), (batch_size, heads, length, size)
        return ops.zeros(y_shape, v.dtype), ops.zeros(shape, v.dtype)
    scale = ops.convert_to_tensor(key_dim**-0.5 if scale is None else scale, q.dtype)
    q = q * scale  # before the product, so that float16 overflows later
    q = ops.reshape(q, (batch_size, length, kv_heads, heads // kv_heads, key_dim))
    scores = ops.einsum("btngk,bsnk->bngts", q, k)
    # an error where k has another batch size in a graph
    scores = ops.reshape(scores, (batch_size, heads, length, size))
    if keras.backend.standardize_dtype(scores.dtype) == "float16":
        scores = ops.clip(scores, -65504, 65504)  # an infinite score would make the softmax NaN
    scores = ops.cast(scores, at_least_float32(scores.dtype))
    if bias is not None:
        scores = scores + ops.cast(bias, scores.dtype)
    if mask is not None:
        if len(mask.shape) == 3:
            mask = ops.expand_dims(mask, 1)  # [B, 1, T, S]
        scores = ops.where(mask, scores, -1e30)
    weights = softmax(scores, sinks)
    if mask is not None:
        weights = ops.where(mask, weights, 0.0)  # for queries with all keys masked
    weights = ops.cast(weights, v.dtype)
    dropped_weights = weights if dropout is None else dropout(weights)
    # an error where the mask has another batch size in a graph
    dropped_weights = ops.reshape(dropped_weights, (batch_size, kv_heads, heads // kv_heads, length, size))
    y = ops.einsum("bngts,bsnk->btngk", dropped_weights, v)
    return ops.reshape(y, (batch_size, length, heads, v.shape[-1])), weights


def softmax(scores, sinks=None):
    """Compute the softmax of `scores [B, H, T, S]`, with `sinks [H]` in its denominator."""
    if sinks is None:
        return ops.softmax(scores, axis=-1)
    sinks = ops.reshape(ops.cast(sinks, scores.dtype), (-1, 1, 1))  # [H, 1, 1]
    highest = ops.max(scores, axis=-1, keepdims=True, initial=-1e30)  # with a first value, of an empty batch too
    highest = ops.stop_gradient(ops.maximum(highest, sinks))
    e = ops.exp(scores - highest)
    return e / (ops.sum(e, axis=-1, keepdims=True) + ops.exp(sinks - highest))


def decay_bias(queries, keys):
    """Return what is left of keys at queries, in logarithms `[B, H, T, S]`, of sums `[B, T, H]` and `[B, S, H]`."""
    queries, keys = (ops.swapaxes(x, 1, 2) for x in (queries, keys))
    return ops.expand_dims(queries, 3) - ops.expand_dims(keys, 2)


def _sizes_differ(*sizes):
    """Return whether the known sizes are not all equal; an exporter of torch has symbols for those it does not know."""
    return len({size for size in sizes if isinstance(size, int)}) > 1


def batch_and_length(x):
    """Return B and T of `[B, T, ...]` for a reshape; -1 only for a symbolic B, as -1 is ambiguous where T is 0."""
    batch_size, length = ops.shape(x)[:2]
    return -1 if batch_size is None else batch_size, length


@optimized
def masked_attention(q, k, v, mask, bias, dropout, sinks=None):
    """Compute `attention` without its weights, of keys and values that are finite where a mask hides some.

    Here dropout is a `keras.layers.Dropout`, or None; the other arguments are those of `attention`.
    """
    q, k, v, mask = checked_attention_inputs(q, k, v, mask)
    return softmax_attention(q, k, v, mask, bias, dropout=_in_training(dropout), sinks=sinks)[0]


@optimized
def causal_attention(q, k, v, dropout=None, segments=None, sinks=None, decay_sums=None):
    """Compute `masked_attention` of every position to itself and all earlier ones.

    segments are the numbers of the documents, int32 `[B, T]`, of which only the own is attended to, decay_sums log
    decays, summed from the first position on, `[B, T, H]`, float32 or wider; each may be None.
    """
    positions = ops.arange(ops.shape(q)[1])
    mask = compute_attention_mask(positions, positions, causal=True)
    if segments is not None:
        is_same = ops.equal(ops.expand_dims(segments, -1), ops.expand_dims(segments, -2))
        mask = ops.logical_and(mask, is_same)
    q, k, v, mask = checked_attention_inputs(q, k, v, mask)
    bias = None if decay_sums is None else decay_bias(decay_sums, decay_sums)
    return softmax_attention(q, k, v, mask, bias, dropout=_in_training(dropout), sinks=sinks)[0]


@optimized
def write_slots(slots, start, new):
    """Return `slots [B, S, ...]` of a cache with T of them replaced by `new [B, T, ...]`, from an int32 scalar on.

    If they do not fit, the last T are.
    """
    size, length = ops.shape(slots)[1], ops.shape(new)[1]
    first = start - ops.maximum(start + length - size, 0)
    index = ops.arange(size, dtype="int32") - first  # in the new ones
    is_new = ops.logical_and(index >= 0, index < length)
    if new.shape[1] != 1:  # rows of a matrix, which every exporter can take where T is unknown
        rows = ops.reshape(ops.swapaxes(new, 0, 1), (length, -1))  # [T, B ...]
        rows = ops.take(rows, ops.where(is_new, index, 0), axis=0)  # [S, B ...]
        new = ops.swapaxes(ops.reshape(rows, (size, -1, *slots.shape[2:])), 0, 1)
    return ops.where(ops.reshape(is_new, (-1, *[1] * (len(slots.shape) - 2))), new, slots)


@write_slots.on("jax")
def updated_slots(slots, start, new):
    """Replace the slots alone, which the compiler can do in place."""
    zero = ops.zeros((), "int32")
    return ops.slice_update(slots, (zero, start, *[zero] * (len(slots.shape) - 2)), new)


def _in_training(dropout):
    """Return a dropout layer as a function that drops, None as it is."""
    return dropout and functools.partial(dropout, training=True)


# The position of an element is the number of non-padding elements before it; padding has position -1. So order,
# distances and the sliding window of a padded sequence are those of the sequence without padding. A row may hold
# several documents, which begin where `reset_mask` is true:
#
#     mask      1  1  0  1            may attend (causal) = 0 <= key position <= query position
#     position  0  1 -1  2
#     reset     0  0  1  0  0  1
#     segment   0  0  1  1  1  2      a query attends to keys of its own segment only
#     position  0  1  0  1  2  0


def segment_numbers(reset_mask):
    """Return how many documents begin in a row up to each position, int32 `[B, T]`, from booleans `[B, T]`."""
    return ops.cast(ops.cumsum(ops.cast(reset_mask, "int32"), axis=-1), "int32")


def true_first(mask):
    """Return the positions of a mask `[B, T]`, those where it is true first: `[B, T]`, in order."""
    if export_format() is not None and keras.backend.backend() == "torch":  # which writes no stable sort
        raise ValueError(
            f'A layer that shifts positions cannot be exported by Model.export(format="{export_format()}") on torch '
            'with a mask: use keras_seq.export for a language model with its state, or format="torch".'
        )
    length = ops.shape(mask)[1]
    position = ops.arange(length, dtype="int32")
    return ops.argsort(ops.where(mask, position, position + length), axis=-1)


def count_elements(length, mask=None, start=0, reset_mask=None):
    """Count the non-padding elements of a document up to each position, its own included; see `compute_positions`."""
    if mask is None:
        counted = ops.arange(length, dtype="int32") + 1
    else:
        counted = ops.cast(ops.cumsum(ops.cast(mask, "int32"), axis=-1), "int32")
    if not isinstance(start, int):
        start = ops.cast(start, "int32")
        start = ops.expand_dims(start, -1) if len(start.shape) else start  # [B, 1] or a scalar
    if reset_mask is None:
        return counted + start
    if isinstance(length, int) and length == 1:
        return ops.where(reset_mask, counted, counted + start)
    counted = ops.broadcast_to(counted, ops.shape(reset_mask))
    segment, begins = segment_numbers(reset_mask), true_first(reset_mask)  # of segment n + 1 in entry n
    begin = ops.take_along_axis(ops.cast(begins, "int32"), ops.maximum(segment - 1, 0), axis=-1)
    before = ops.take_along_axis(counted if mask is None else counted - ops.cast(mask, "int32"), begin, axis=-1)
    before = before - 1 if mask is None else before
    return ops.where(segment > 0, counted - before, counted + start)


def compute_positions(length, mask=None, start=0, reset_mask=None):
    """Compute the positions of `length` elements: int32 `[T]`, or `[B, T]` where they differ by row.

    `start`, the non-padding elements before them, is an int, a scalar tensor or `[B]`. Positions are -1 where `mask [B,
    T]` is false, and begin again at 0 where `reset_mask [B, T]` is true; both may be None.
    """
    positions = count_elements(length, mask, start, reset_mask) - 1
    return positions if mask is None else ops.where(mask, positions, -1)


def compute_attention_mask(query_positions, key_positions, causal: bool = False, sliding_window: int | None = None):
    """Compute which query may attend to which key: booleans, broadcastable to `[B, T, S]`, or None where each to all.

    Positions are `[T]` and `[S]`, or `[B, T]` and `[B, S]`, -1 for a key that must not be attended to. A sliding window
    is of positions less than this far away, the own one included.
    """
    keys = ops.expand_dims(key_positions, -2)  # [..., 1, S]
    conditions = []
    if len(key_positions.shape) == 2:  # only positions by row can be absent
        conditions.append(keys >= 0)
    if causal or sliding_window is not None:
        distance = ops.expand_dims(query_positions, -1) - keys  # [..., T, S]
        if causal:
            conditions.append(distance >= 0)
        if sliding_window is not None:
            conditions.append(distance < sliding_window if causal else ops.abs(distance) < sliding_window)
    return functools.reduce(ops.logical_and, conditions) if conditions else None


if keras.backend.backend() == "tensorflow":
    import keras_seq.ops.attention.tensorflow
elif keras.backend.backend() == "jax":
    import keras_seq.ops.attention.jax
elif keras.backend.backend() == "torch":
    import keras_seq.ops.attention.torch  # noqa: F401  (binds the twins)
