"""The likeliest sequence, looked for id by id: greedily, or with W hypotheses side by side (beam search).

    log p(y) = sum over n of log softmax(logits_n)[y_n]                     in float32
    score(y) = log p(y) / ((5 + |y|) / 6)^a         the end counts in |y|;  Wu et al. (2016, equation 14)

A step is any `step(ids [B, 1], state) -> (logits [B, V], state)`, such as `model.step`; compile it once with
`tf.function`. The state is any nest of tensors whose first axis is B; one without axes belongs to all rows alike.

A hypothesis that has ended keeps its place, and the others share the places that are left (Sutskever et al., 2014).
Live ones have the same length, so `log p` alone orders them; the score compares those that ended at different lengths.
"""

import math

import tensorflow as tf

from keras_seq import checks
from keras_seq.generation.sampling_loop import not_finite

NEG_INF, INF = -math.inf, math.inf
NO_END = -1


def greedy(step, state, first, length, end=None):
    """The likeliest next id, again and again. It runs eagerly, around the compiled step.

    Args:
        step: see above.
        state: that of B rows, before `first`.
        first: ids `[B]` that go in first and are not part of the result: the start of a target, a prompt's last id.
        length: the most ids to write.
        end: the id after which a row has ended; None where there is none.

    Returns:
        ids `[B, length]`, int32, with zeros after the end, and log p `[B]`.

    Raises:
        ValueError: `first` is no `[B]`; a length or an end out of its range; logits that are not finite.
    """
    last, length, end = _checked(first, length, end)
    log_p, ended = tf.zeros(last.shape, tf.float32), tf.zeros(last.shape, tf.bool)
    ids, finite = [], tf.constant(True)
    for _ in range(length):
        logits, state = step(last[:, None], state)
        finite &= _finite(logits)
        log_probabilities = tf.nn.log_softmax(tf.cast(logits, tf.float32))
        likeliest = tf.argmax(log_probabilities, axis=-1, output_type=tf.int32)
        log_p += tf.where(ended, 0.0, tf.gather(log_probabilities, likeliest, batch_dims=1))
        last = tf.where(ended, 0, likeliest)
        ended |= last == end
        ids.append(last)
        if tf.reduce_all(ended):
            break
    if not finite:
        raise not_finite()
    return _pad(tf.stack(ids, axis=1), length), log_p


def beam_search(step, state, first, length, end=None, width=4, length_penalty=0.0):
    """The best sequences that are found by keeping `width` hypotheses. It runs eagerly, around the compiled step.

    ```python
    step = tf.function(model.step)
    ids, scores = beam_search(step, model.initial_state(source, capacity=20), start, length=20, end=2)
    ```

    Args:
        step, state, first, length, end: as for `greedy`.
        width: W, hypotheses for each row. They lie side by side along the first axis: the step sees B W rows.
        length_penalty: a in the formula; 0 compares plain log p, which favours short sequences.

    Returns:
        ids `[B, W, length]`, int32, with zeros after the end, the best first; and their scores `[B, W]`. Where there
        are fewer sequences than W, scores of minus infinity stand in for the rest.

    Raises:
        ValueError: as for `greedy`; a width or a penalty out of its range.
    """
    first, length, end = _checked(first, length, end)
    width = checks.positive_integer("width", width)
    checks.number("length_penalty", length_penalty, min_value=0)

    batch_size = first.shape[0]
    rows = tf.range(batch_size)[:, None]
    own = tf.repeat(rows, width, axis=1)  # [B, W]: every hypothesis begins with its row's state
    state, last = _gather_rows(state, own), tf.gather(first, own)
    # One to begin with: W equal ones would stay equal.
    log_p = tf.tile([[0.0] + [NEG_INF] * (width - 1)], (batch_size, 1))
    ended = tf.zeros((batch_size, width), tf.bool)
    ids, finite = tf.zeros((batch_size, width, 0), tf.int32), tf.constant(True)
    for _ in range(length):
        logits, state = step(tf.reshape(last, (-1, 1)), state)
        finite &= _finite(logits)
        parents, last, log_p, ended = beam_step(tf.reshape(logits, (batch_size, width, -1)), log_p, ended, end)
        ids = tf.concat([tf.gather(ids, parents, batch_dims=1), last[..., None]], axis=-1)
        if tf.reduce_all(ended):
            break
        state = _gather_rows(state, rows * width + parents)

    if not finite:
        raise not_finite()
    passed = tf.cumsum(tf.cast(ids == end, tf.int32), axis=-1, exclusive=True)
    lengths = tf.reduce_sum(tf.cast(passed == 0, tf.float32), axis=-1)
    scores, order = tf.math.top_k(log_p / ((5 + lengths) / 6) ** length_penalty, width)
    return _pad(tf.gather(ids, order, batch_dims=1), length), scores


def beam_step(logits, log_p, ended, end):
    """One position further: the W best of the W V continuations in each row.

    Args:
        logits: `[B, W, V]`.
        log_p: float32 `[B, W]`, of the hypotheses so far.
        ended: bool `[B, W]`.
        end: the id that ends one.

    Returns:
        For each that is kept, `[B, W]`: which one it goes on from, its new id (0 where it had ended before), its
        `log_p`, and whether it has ended.
    """
    size = logits.shape[-1]
    goes_on = log_p[..., None] + tf.nn.log_softmax(tf.cast(logits, tf.float32))  # [B, W, V]
    only = tf.range(size) == 0  # the one continuation of what has ended
    stays = tf.where(only, log_p[..., None], NEG_INF)
    place = tf.where(only & (log_p[..., None] > NEG_INF), INF, NEG_INF)
    log_ps, places = (tf.where(ended[..., None], of_ended, goes_on) for of_ended in (stays, place))

    flat = (len(logits), -1)
    chosen = tf.math.top_k(tf.reshape(places, flat), logits.shape[1]).indices
    parents, ids = chosen // size, chosen % size
    ended = tf.gather(ended, parents, batch_dims=1) | (ids == end)
    return parents, ids, tf.gather(tf.reshape(log_ps, flat), chosen, batch_dims=1), ended


def _finite(logits):
    """Whether every row has something to choose from."""
    return tf.reduce_all(tf.math.is_finite(tf.reduce_logsumexp(tf.cast(logits, tf.float32), axis=-1)))


def _gather_rows(state, rows):
    """The rows of every tensor of a state, `rows` in reading order."""
    rows = tf.reshape(rows, (-1,))
    return tf.nest.map_structure(lambda part: tf.gather(part, rows) if len(part.shape) else part, state)


def _pad(ids, length):
    """Ids `[..., length]`, zeros where the search stopped early because all had ended."""
    missing = length - ids.shape[-1]
    return tf.pad(ids, [(0, 0)] * (ids.shape.rank - 1) + [(0, missing)])


def _checked(first, length, end):
    first = tf.convert_to_tensor(first)
    if first.shape.rank != 1 or not first.dtype.is_integer:
        given = f"the type {first.dtype.name} and the shape {tuple(first.shape)}"
        raise ValueError(f"first has {given}; expected [B]: one id a row.")
    first = tf.cast(first, tf.int32)
    if end is not None and (isinstance(end, bool) or not isinstance(end, int) or not 0 <= end <= checks.MAX_INT32):
        raise ValueError(f"end={end!r}; expected an id, or None where no id ends a sequence.")
    return first, checks.positive_integer("length", length), NO_END if end is None else end
