"""The sums and maxima of a linear-chain conditional random field (Lafferty et al., 2001) over all K^T taggings.

    log p(y) = phi_1(y_0, y_1) + ... + phi_T(y_{T-1}, y_T) - log Z          y_0 = 0
    phi_t(i, j) = A_ij + x_tj           x: emissions, A: transitions; at the first tag s_j for A_ij, at the last + e_j
    a_t(j) = log sum over i of exp(a_{t-1}(i) + phi_t(i, j)),   log Z = log sum over j of exp(a_T(j))

The best tagging is the same with a maximum for the sum (Viterbi, 1967). Potentials phi `[B, T, K, K]` hold the mask,
too: at padding they are the identity, 0 where i = j and log 0 elsewhere, so that the tag before it is copied. Numbers
are float32 or wider.
"""

from keras import ops

from keras_seq.ops import tensor_checks
from keras_seq.ops.linear_recurrence import LOG_ZERO
from keras_seq.ops.recurrence import recurrence
from keras_seq.ops.tensor_checks import where_valid


def crf_potentials(emissions, transitions, start, end, mask=None):
    """Compute the potentials `[B, T, K, K]` of emissions `[B, T, K]`, of which masked ones are not read."""
    x, num_tags = where_valid(mask, emissions), emissions.shape[-1]
    valid = ops.ones_like(x[..., 0], dtype="int32") if mask is None else ops.cast(mask, "int32")
    is_first = ops.logical_and(valid > 0, ops.cumsum(valid, axis=1) == 1)
    is_last = ops.logical_and(valid > 0, ops.flip(ops.cumsum(ops.flip(valid, axis=1), axis=1), axis=1) == 1)
    before = ops.where(ops.expand_dims(is_first, (-2, -1)), start, transitions)  # [B, T, K, K], a row for each tag i
    after = ops.where(ops.expand_dims(is_last, -1), x + end, x)  # [B, T, K]
    potentials = ops.expand_dims(after, 2) + before
    identity = (1 - ops.eye(num_tags, dtype=potentials.dtype)) * LOG_ZERO
    return potentials if mask is None else ops.where(ops.expand_dims(mask, (-2, -1)), potentials, identity)


def crf_mask(potentials):
    """Return which positions have a tag, bool `[B, T]`: those whose potentials are not the identity."""
    others = 1 - ops.eye(potentials.shape[-1], dtype=potentials.dtype)
    is_padding = ops.all(ops.where(others > 0, potentials <= LOG_ZERO / 2, potentials == 0), axis=(2, 3))
    return ops.logical_not(is_padding)


def crf_log_likelihood(potentials, tags):
    """Compute the log-probability of a tagging, in nats.

    Args:
        potentials: `[B, T, K, K]`, the output of a `CRF` layer.
        tags: Integers `[B, T]`. A tag below zero is unknown: the probabilities of all its values are added
            (Tsuboi et al., 2008). What stands at padding is not read; a tag of K or more makes the result NaN.

    Returns:
        `[B]`; 0 for a row without a position.

    Raises:
        ValueError: The potentials have another shape, or tags are no integers `[B, T]`.

    >>> tagging = crf_log_likelihood(ops.zeros((1, 3, 4, 4)), [[3, 1, 0]])
    >>> round(float(tagging[0]), 3)  # -3 log 4
    -4.159
    """
    potentials = _checked(potentials)
    tags = tensor_checks.integers("tags", ops.convert_to_tensor(tags))
    tensor_checks.same_axes("tags", tags, potentials, 2)
    potentials = tensor_checks.with_axes_of(potentials, tags, 2)
    has_tag, num_tags = crf_mask(potentials), potentials.shape[-1]
    is_other = ops.logical_and(tags[..., None] != ops.arange(num_tags), tags[..., None] >= 0)  # [B, T, K]
    is_other = ops.logical_and(is_other, has_tag[..., None])
    of_tags = ops.where(ops.expand_dims(is_other, 2), LOG_ZERO, potentials)
    *_, both = _forward(ops.concatenate([of_tags, potentials]), ops.logsumexp)  # one loop for the two sums
    log_p = ops.subtract(*ops.split(both, 2))
    is_invalid = ops.any(ops.logical_and(tags >= num_tags, has_tag), axis=1)
    return ops.where(is_invalid, float("nan"), log_p)


def crf_log_partition(potentials):
    """Compute log Z `[B]`, the log of the sum over all taggings, of potentials `[B, T, K, K]`; 0 without a tag."""
    return _forward(_checked(potentials), ops.logsumexp)[-1]


def crf_marginals(potentials):
    """Compute the probability of each tag at each position, by the forward-backward algorithm.

    Args:
        potentials: `[B, T, K, K]`, the output of a `CRF` layer.

    Returns:
        `[B, T, K]`, with a sum of 1 over the tags; zeros at padding.

    Raises:
        ValueError: The potentials have another shape.

    >>> ops.convert_to_numpy(crf_marginals(ops.zeros((1, 2, 2, 2)))).tolist()
    [[[0.5, 0.5], [0.5, 0.5]]]
    """
    potentials = _checked(potentials)
    before, *_ = _forward(potentials, ops.logsumexp)
    zeros = ops.zeros((ops.shape(potentials)[0], potentials.shape[-1]), potentials.dtype)
    backward = ops.flip(ops.swapaxes(potentials, 2, 3), axis=1)
    after, *_ = _forward(backward, ops.logsumexp, zeros)  # of positions T - 1, ..., 0
    after = ops.concatenate([ops.flip(after, axis=1)[:, 1:], zeros[:, None]], axis=1)
    return where_valid(crf_mask(potentials), ops.softmax(before + after))


def viterbi(potentials):
    """Find the likeliest tagging of each row (Viterbi, 1967).

    Args:
        potentials: `[B, T, K, K]`, the output of a `CRF` layer.

    Returns:
        `(tags [B, T], scores [B])`: int32, -1 at padding; and the sums of the tagging's potentials. Of taggings with
        equal scores one is returned. `scores - keras_seq.ops.crf.crf_log_partition(potentials)`
        are log-probabilities.

    Raises:
        ValueError: The potentials have another shape.

    >>> tags, scores = viterbi(ops.convert_to_tensor([[[[0.0, 2.0]] * 2, [[0.0, 0.0], [3.0, 1.0]]]]))
    >>> ops.convert_to_numpy(tags).tolist(), float(scores[0])
    ([[1, 0]], 5.0)
    """
    potentials = _checked(potentials)
    num_tags = potentials.shape[-1]
    best, last, scores = _forward(potentials, ops.max)  # best [B, T, K]: the score of the best tags up to a tag
    last = ops.one_hot(ops.argmax(last, axis=-1), num_tags, dtype=best.dtype)
    before = ops.concatenate([_before_the_first(potentials)[:, None], best[:, :-1]], axis=1)
    columns = ops.concatenate([_flat(potentials), before], axis=-1)

    def previous_tag(columns, tag):
        of_tag = ops.sum(ops.reshape(columns[:, : num_tags**2], (-1, num_tags, num_tags)) * tag[:, None], axis=-1)
        return ops.one_hot(ops.argmax(columns[:, num_tags**2 :] + of_tag, axis=-1), num_tags, dtype=tag.dtype)

    previous, _ = recurrence(previous_tag, ops.flip(columns, axis=1), last)  # of positions T - 1, ..., 0
    tags = ops.concatenate([ops.flip(previous, axis=1)[:, 1:], last[:, None]], axis=1)
    tags = ops.cast(ops.argmax(tags, axis=-1), "int32")
    return ops.where(crf_mask(potentials), tags, -1), scores


def _checked(potentials):
    """Return potentials as a tensor of float32 or wider, of which none is minus infinity."""
    potentials = ops.convert_to_tensor(potentials)
    shape = tuple(potentials.shape)
    if len(shape) != 4 or shape[1] == 0 or shape[-1] is None or shape[-1] != shape[-2] or shape[-1] < 2:
        raise ValueError(f"potentials has shape {shape}; expected [B, T, K, K], T > 0, K > 1, as a CRF layer returns.")
    dtype = tensor_checks.at_least_float32(tensor_checks.real("potentials", potentials, "float32").dtype)
    return ops.maximum(ops.cast(potentials, dtype), LOG_ZERO)


def _before_the_first(potentials):
    """Return a_0 `[B, K]`, for which y_0 = 0."""
    a = ops.where(ops.arange(potentials.shape[-1]) == 0, 0.0, LOG_ZERO)
    return ops.tile(ops.cast(a, potentials.dtype)[None], (ops.shape(potentials)[0], 1))


def _forward(potentials, total, a=None):
    """Compute a_t at every position and the last one, less their maxima to keep digits; and the last one's total."""
    num_tags = potentials.shape[-1]

    def step(columns, state):
        a, shift = state
        a = total(a[:, :, None] + ops.reshape(columns, (-1, num_tags, num_tags)), axis=1)
        largest = ops.stop_gradient(ops.max(a, axis=-1, keepdims=True))
        return a - largest, shift + largest

    a = _before_the_first(potentials) if a is None else a
    every, (last, shift) = recurrence(step, _flat(potentials), (a, ops.zeros_like(a[:, :1])))
    return every, last, total(last, axis=-1) + shift[:, 0]


def _flat(potentials):
    """Reshape `[B, T, K, K]` to `[B, T, K K]`."""
    return ops.reshape(potentials, (*ops.shape(potentials)[:2], potentials.shape[-1] ** 2))
