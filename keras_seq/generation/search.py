"""Search for the likeliest sequence: greedily, or with W hypotheses side by side (beam search).

    log p(y) = sum over n of log softmax(logits_n)[y_n]                     in float32
    score(y) = log p(y) / ((5 + |y|) / 6)^a         |y| counts the end token;  Wu et al. (2016, equation 14)

A step is any `step(ids [B, 1], state) -> (logits [B, V], state)`, such as `model.step`; compile it once with
`tf.function`. The state is any nest of tensors whose first axis is B; scalars are shared by all rows.

A finished hypothesis keeps its place in the beam; the others share the remaining places (Sutskever et al., 2014).
Unfinished ones have the same length, so `log p` alone orders them; the score compares those of different lengths.
"""

import math
from collections.abc import Callable

import tensorflow as tf

from keras_seq import checks
from keras_seq.generation.sampling_loop import not_finite

NEG_INF, INF = -math.inf, math.inf
NO_END = -1


def greedy(step: Callable, state, start_ids, max_new_tokens: int, end_token_id: int | None = None):
    """Take the likeliest next id at each step. The loop runs eagerly, around the compiled step.

    Args:
        step: A function `step(ids [B, 1], state) -> (logits [B, V], state)`.
        state: State of B rows, before `start_ids`.
        start_ids: Integers `[B]`, the first inputs, not part of the result: the start token of a target, or the last
            id of a prompt.
        max_new_tokens: Length of the result, at least 1.
        end_token_id: Id that ends a row; None if there is none.

    Returns:
        Ids `[B, max_new_tokens]`, int32, zeros after the end token; and log p, float32 `[B]`.

    Raises:
        ValueError: `start_ids` is not `[B]` integers, an argument is out of its range, or logits are not finite.
    """
    last, max_new_tokens, end_token_id = _checked(start_ids, max_new_tokens, end_token_id)
    log_p, finished = tf.zeros(last.shape, tf.float32), tf.zeros(last.shape, tf.bool)
    ids, finite = [], tf.constant(True)
    for _ in range(max_new_tokens):
        logits, state = step(last[:, None], state)
        finite &= _all_finite(logits)
        log_probabilities = tf.nn.log_softmax(tf.cast(logits, tf.float32))
        likeliest = tf.argmax(log_probabilities, axis=-1, output_type=tf.int32)
        log_p += tf.where(finished, 0.0, tf.gather(log_probabilities, likeliest, batch_dims=1))
        last = tf.where(finished, 0, likeliest)
        finished |= last == end_token_id
        ids.append(last)
        if tf.reduce_all(finished):
            break
    if not finite:
        raise not_finite()
    return _pad(tf.stack(ids, axis=1), max_new_tokens), log_p


def beam_search(
    step: Callable,
    state,
    start_ids,
    max_new_tokens: int,
    end_token_id: int | None = None,
    num_beams: int = 4,
    length_penalty: float = 0.0,
):
    """Find likely sequences by keeping the best `num_beams` hypotheses.

    The loop runs eagerly, around the compiled step.

    ```python
    step = tf.function(model.step)
    state = model.get_initial_state(encoder_token_ids, capacity=20)
    ids, scores = beam_search(step, state, start_ids, max_new_tokens=20, end_token_id=2)
    ```

    Args:
        step: A function `step(ids [B W, 1], state) -> (logits [B W, V], state)`; the hypotheses of a row are adjacent.
        state: State of B rows, before `start_ids`.
        start_ids: Integers `[B]`, the first inputs, not part of the result: the start token of a target, or the last
            id of a prompt.
        max_new_tokens: Length of the result, at least 1.
        end_token_id: Id that ends a hypothesis; None if there is none.
        num_beams: W, hypotheses for each row, at least 1.
        length_penalty: Exponent a in the score, at least 0; 0 compares log p, which favors short sequences.

    Returns:
        Ids `[B, W, max_new_tokens]`, int32, zeros after the end token, best first; and scores, float32 `[B, W]`. If
        fewer than W sequences exist, the remaining scores are minus infinity.

    Raises:
        ValueError: `start_ids` is not `[B]` integers, an argument is out of its range, or logits are not finite.
    """
    start_ids, max_new_tokens, end_token_id = _checked(start_ids, max_new_tokens, end_token_id)
    num_beams = checks.positive_integer("num_beams", num_beams)
    checks.number("length_penalty", length_penalty, min_value=0)

    batch_size = start_ids.shape[0]
    rows = tf.range(batch_size)[:, None]
    row_of_beam = tf.repeat(rows, num_beams, axis=1)  # [B, W]: each hypothesis starts from its row's state
    state, last = _gather_rows(state, row_of_beam), tf.gather(start_ids, row_of_beam)
    # Only the first hypothesis is alive at the start: W equal ones would stay equal.
    log_p = tf.tile([[0.0] + [NEG_INF] * (num_beams - 1)], (batch_size, 1))
    finished = tf.zeros((batch_size, num_beams), tf.bool)
    ids, finite = tf.zeros((batch_size, num_beams, 0), tf.int32), tf.constant(True)
    for _ in range(max_new_tokens):
        logits, state = step(tf.reshape(last, (-1, 1)), state)
        finite &= _all_finite(logits)
        logits = tf.reshape(logits, (batch_size, num_beams, -1))
        parents, last, log_p, finished = beam_step(logits, log_p, finished, end_token_id)
        ids = tf.concat([tf.gather(ids, parents, batch_dims=1), last[..., None]], axis=-1)
        if tf.reduce_all(finished):
            break
        state = _gather_rows(state, rows * num_beams + parents)

    if not finite:
        raise not_finite()
    num_ends_before = tf.cumsum(tf.cast(ids == end_token_id, tf.int32), axis=-1, exclusive=True)
    lengths = tf.reduce_sum(tf.cast(num_ends_before == 0, tf.float32), axis=-1)
    scores, order = tf.math.top_k(log_p / ((5 + lengths) / 6) ** length_penalty, num_beams)
    return _pad(tf.gather(ids, order, batch_dims=1), max_new_tokens), scores


def beam_step(logits, log_p, finished, end_token_id: int):
    """Select the best W of the W V continuations of each row.

    Args:
        logits: `[B, W, V]`.
        log_p: float32 `[B, W]`, of the hypotheses so far.
        finished: Bool `[B, W]`.
        end_token_id: Id that ends a hypothesis; -1 if there is none.

    Returns:
        Four tensors `[B, W]`, one entry for each selected hypothesis: the index of the one that it continues, its new
        id (0 if that one was finished), its `log_p`, and whether it is finished.
    """
    vocabulary_size = logits.shape[-1]
    continued_scores = log_p[..., None] + tf.nn.log_softmax(tf.cast(logits, tf.float32))  # [B, W, V]
    only = tf.range(vocabulary_size) == 0  # the single continuation of a finished hypothesis
    finished_scores = tf.where(only, log_p[..., None], NEG_INF)
    # infinite rank, so that a finished hypothesis always keeps its place
    finished_ranks = tf.where(only & (log_p[..., None] > NEG_INF), INF, NEG_INF)
    scores, ranks = (tf.where(finished[..., None], x, continued_scores) for x in (finished_scores, finished_ranks))

    flat = (len(logits), -1)
    selected = tf.math.top_k(tf.reshape(ranks, flat), logits.shape[1]).indices
    parents, ids = selected // vocabulary_size, selected % vocabulary_size
    finished = tf.gather(finished, parents, batch_dims=1) | (ids == end_token_id)
    return parents, ids, tf.gather(tf.reshape(scores, flat), selected, batch_dims=1), finished


def _all_finite(logits):
    """Return whether every row has a finite logit and none that is NaN or plus infinity."""
    return tf.reduce_all(tf.math.is_finite(tf.reduce_logsumexp(tf.cast(logits, tf.float32), axis=-1)))


def _gather_rows(state, rows):
    """Gather rows of every tensor of a state but scalars; `rows` is flattened first."""
    rows = tf.reshape(rows, (-1,))
    return tf.nest.map_structure(lambda part: tf.gather(part, rows) if len(part.shape) else part, state)


def _pad(ids, length):
    """Pad ids with zeros to `[..., length]`, where the search stopped early because all rows were finished."""
    missing = length - ids.shape[-1]
    return tf.pad(ids, [(0, 0)] * (ids.shape.rank - 1) + [(0, missing)])


def _checked(start_ids, max_new_tokens, end_token_id):
    start_ids = tf.convert_to_tensor(start_ids)
    if start_ids.shape.rank != 1 or not start_ids.dtype.is_integer:
        received = f"dtype {start_ids.dtype.name} and shape {tuple(start_ids.shape)}"
        raise ValueError(f"start_ids has {received}; expected [B]: one integer id for each row.")
    start_ids = tf.cast(start_ids, tf.int32)
    is_integer = isinstance(end_token_id, int) and not isinstance(end_token_id, bool)
    if end_token_id is not None and not (is_integer and 0 <= end_token_id <= checks.MAX_INT32):
        raise ValueError(f"end_token_id={end_token_id!r}; expected an id, or None if no id ends a sequence.")
    max_new_tokens = checks.positive_integer("max_new_tokens", max_new_tokens)
    return start_ids, max_new_tokens, NO_END if end_token_id is None else end_token_id
