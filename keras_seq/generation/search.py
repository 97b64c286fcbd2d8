"""Search for a likely sequence: greedily, with W hypotheses side by side (beam search), by contrast, or for CTC.

    log p(y) = sum over n of log softmax(logits_n)[y_n]                     in float64, in NumPy on every backend
    score(y) = log p(y) / ((5 + |y|) / 6)^a         |y| counts the end token;  Wu et al. (2016, equation 14)

A finished hypothesis keeps its place in the beam; the others share the remaining places (Sutskever et al., 2014).
Unfinished ones have the same length, so `log p` alone orders them; the score compares those of different lengths.

Contrastive search (Su et al., 2022, arXiv:2202.06417) prefers likely tokens unlike those before, where h_j is the last
hidden state at position j and h_v that of candidate v:

    next id = argmax over the k likeliest v of  (1 - a) p(v | x) - a max over j of cos(h_v, h_j)

The labels of a CTC model's frames are those of the best alignment, or of a prefix beam search (Hannun et al., 2014):

    p(y) = sum over alignments a with collapse(a) = y of p_1(a_1) ... p_T(a_T)      `collapse`: `evaluation.ctc_losses`

A prefix has two numbers: the probability of its alignments that end with a blank, b, and with its last label, l. A
frame changes both, and appends each label k:

    b'(y) = p(blank) (b(y) + l(y))          l'(y) = p(last label of y) l(y)
    l'(y + k) += p(k) (b(y) + l(y)), but p(k) b(y) where k is the last label of y

(`keras.ops.ctc_decode` has the same results; of 8 rows of 100 frames, 30 ids and 16 beams it takes 10 s on JAX and
torch.)
"""

import math
from collections.abc import Callable, Collection

import numpy as np
from keras import ops, tree

from keras_seq import checks
from keras_seq.generation.sampling_loop import check_fits, check_ids, not_finite
from keras_seq.ops import tensor_checks
from keras_seq.ops.compiled import compiled

NEG_INF = -math.inf
MAX_LENGTH_PENALTY = 10  # far beyond it scores of long texts round to 0


def greedy(step: Callable, state, start_ids, max_new_tokens: int, end_token_id: int | Collection[int] | None = None):
    """Take the likeliest next id at each step. The loop runs in NumPy, around the compiled step.

    Args:
        step: A function `step(ids [B, 1], state) -> (logits [B, V], state)`, such as `model.step`; compile it once with
            `keras_seq.ops.compiled`.
        state: State of B rows, before `start_ids`: any nest of tensors whose first axis is B, and scalars, which all
            rows share.
        start_ids: Integers `[B]`, the first inputs, not part of the result: the start token of a target, or the last
            id of a prompt.
        max_new_tokens: Length of the result, at least 1.
        end_token_id: Id that ends a row, or several such; None if there is none.

    Returns:
        Ids `[B, max_new_tokens]`, int32, zeros after the end token; and log p, float64 `[B]`.

    Raises:
        ValueError: `start_ids` is not `[B]` ids, an argument is out of its range, or logits are not finite.
    """
    last, max_new_tokens, ends = _checked(state, start_ids, max_new_tokens, end_token_id)
    rows, ids = np.arange(len(last)), np.zeros((len(last), max_new_tokens), "int32")
    log_p, finished = np.zeros(len(last)), np.zeros(len(last), bool)
    for n in range(max_new_tokens):
        logits, state = step(last[:, None], state)
        log_probabilities = _next_log_probabilities(logits, ends)
        likeliest = log_probabilities.argmax(axis=-1)
        log_p += np.where(finished, 0.0, log_probabilities[rows, likeliest])
        ids[:, n] = last = np.where(finished, 0, likeliest).astype("int32")
        finished |= np.isin(last, ends)
        if finished.all():
            break
    return ids, log_p


def beam_search(
    step: Callable,
    state,
    start_ids,
    max_new_tokens: int,
    end_token_id: int | Collection[int] | None = None,
    num_beams: int = 4,
    length_penalty: float = 0.0,
):
    """Find likely sequences by keeping the best `num_beams` hypotheses.

    The loop runs in NumPy, around the compiled step.

    ```python
    step = compiled(model.step, model)
    state = model.get_initial_state(encoder_token_ids, capacity=20)
    ids, scores = beam_search(step, state, start_ids, max_new_tokens=20, end_token_id=2)
    ```

    Args:
        step: A function `step(ids [B W, 1], state) -> (logits [B W, V], state)`; the hypotheses of a row are adjacent.
        state: State of B rows, before `start_ids`.
        start_ids: Integers `[B]`, the first inputs, not part of the result: the start token of a target, or the last
            id of a prompt.
        max_new_tokens: Length of the result, at least 1.
        end_token_id: Id that ends a hypothesis, or several such; None if there is none.
        num_beams: W, hypotheses for each row, at least 1.
        length_penalty: Exponent a in the score, from 0 to 10; 0 compares log p, which favors short sequences.

    Returns:
        Ids `[B, W, max_new_tokens]`, int32, zeros after the end token, best first; and scores, float64 `[B, W]`. If
        fewer than W sequences exist, the remaining scores are minus infinity.

    Raises:
        ValueError: `start_ids` is not `[B]` ids, an argument is out of its range, or logits are not finite.
    """
    start_ids, max_new_tokens, ends = _checked(state, start_ids, max_new_tokens, end_token_id)
    num_beams = checks.positive_integer("num_beams", num_beams)
    checks.number("length_penalty", length_penalty, min_value=0, max_value=MAX_LENGTH_PENALTY)

    batch_size = len(start_ids)
    rows = np.arange(batch_size)[:, None]
    state = gather_rows(state, np.repeat(rows, num_beams))  # each hypothesis starts from its row's state
    last = np.repeat(start_ids[:, None], num_beams, axis=1)
    # Only the first hypothesis is alive at the start: W equal ones would stay equal.
    log_p = np.tile([0.0] + [NEG_INF] * (num_beams - 1), (batch_size, 1))
    finished = np.zeros((batch_size, num_beams), bool)
    ids = np.zeros((batch_size, num_beams, max_new_tokens), "int32")
    for n in range(max_new_tokens):
        logits, state = step(last.reshape(-1, 1), state)
        log_probabilities = _next_log_probabilities(logits, ends).reshape(batch_size, num_beams, -1)
        parents, last, log_p, finished = beam_step(log_probabilities, log_p, finished, ends)
        ids = np.take_along_axis(ids, parents[..., None], axis=1)
        ids[..., n] = last
        if finished.all():
            break
        state = gather_rows(state, (rows * num_beams + parents).reshape(-1))

    is_end = np.isin(ids, ends)
    lengths = np.sum(np.cumsum(is_end, axis=-1) - is_end == 0, axis=-1)  # with the end token
    scores = log_p / ((5 + lengths) / 6) ** length_penalty
    order = np.argsort(-scores, axis=-1, kind="stable")
    return np.take_along_axis(ids, order[..., None], axis=1), np.take_along_axis(scores, order, axis=1)


def contrastive_search(
    model,
    ids: list[int],
    max_new_tokens: int,
    top_k: int = 4,
    alpha: float = 0.6,
    end_token_id: int | Collection[int] | None = None,
) -> list[int]:
    """Return the ids after one prompt by contrastive search, which draws nothing; with `alpha` 0 it is greedy.

    Args:
        model: A `LanguageModel`.
        ids: The prompt, at least one id; with `max_new_tokens` more, at most the model's context length.
        max_new_tokens: Number of ids to return at most, at least 0.
        top_k: k, candidates at each position.
        alpha: Weight a of the similarity, from 0 to 1.
        end_token_id: Id that ends the sequence, the last of the result then, or several such; None if there is none.

    Raises:
        ValueError: The model is not a `LanguageModel`, the prompt is empty, there are more ids than the context
            length, an argument is out of its range, or logits are not finite.
    """
    if not hasattr(model, "hidden_states"):
        raise ValueError(f"model={model!r}; expected a LanguageModel: contrastive search compares its hidden states.")
    checks.positive_integer("top_k", top_k)
    checks.number("alpha", alpha, min_value=0, max_value=1)
    checks.non_negative_integer("max_new_tokens", max_new_tokens)
    check_ids(ids, model.embedding.input_dim)
    check_fits(len(ids), max_new_tokens, model.context_length, model.name)
    ends = _checked_ends(end_token_id)

    def forward(ids, state):
        x, state = model.hidden_states(ids, state=state, training=False, return_state=True)
        return ops.cast(x, "float32"), model.logits(x)[:, -1], state

    forward = compiled(forward, model, reduce_retracing=True)
    hidden, logits, state = forward(np.array([ids], "int32"), model.get_initial_state(1))
    past, log_p, new = _directions(hidden)[0], log_softmax(logits)[0], []
    for _ in range(max_new_tokens):
        candidates = largest(log_p, min(top_k, len(log_p)))
        hidden, logits, states = forward(candidates[:, None].astype("int32"), gather_rows(state, 0 * candidates))
        directions = _directions(hidden)[:, 0]
        max_similarity = (directions @ past.T).max(axis=-1)
        best = int(np.argmax((1 - alpha) * np.exp(log_p[candidates]) - alpha * max_similarity))
        past, log_p = np.concatenate([past, directions[best : best + 1]]), log_softmax(logits)[best]
        state = gather_rows(states, np.array([best]))
        new.append(int(candidates[best]))
        if new[-1] in ends:
            break
    return new


def beam_step(log_probabilities, log_p, finished, ends: list[int]):
    """Select the best W of the W V continuations of each row."""
    batch_size, num_beams, vocabulary_size = log_probabilities.shape
    continued_scores = log_p[..., None] + log_probabilities  # [B, W, V]
    only = np.arange(vocabulary_size) == 0  # the single continuation of a finished hypothesis
    finished_scores = np.where(only, log_p[..., None], NEG_INF)
    # infinite rank, so that a finished hypothesis always keeps its place
    finished_ranks = np.where(only & (log_p[..., None] > NEG_INF), math.inf, NEG_INF)
    scores, ranks = (np.where(finished[..., None], x, continued_scores) for x in (finished_scores, finished_ranks))

    selected = np.stack([largest(row, num_beams) for row in ranks.reshape(batch_size, -1)])
    parents, ids = selected // vocabulary_size, (selected % vocabulary_size).astype("int32")
    finished = np.take_along_axis(finished, parents, axis=1) | np.isin(ids, ends)
    return parents, ids, np.take_along_axis(scores.reshape(batch_size, -1), selected, axis=1), finished


def log_softmax(logits) -> np.ndarray:
    """Compute log probabilities, float64 `[B, V]`, of logits `[B, V]`; raise a ValueError if a row is not finite."""
    logits = ops.convert_to_numpy(logits).astype("float64")
    with np.errstate(invalid="ignore"):  # some processors warn of NaN
        highest = logits.max(axis=-1, keepdims=True)
    if not np.isfinite(highest).all():
        causes = "compiled code also gives them for ids of no token and for positions beyond its state's capacity."
        raise ValueError(f"{not_finite()} Where the weights are sound: {causes}")
    return logits - highest - np.log(np.exp(logits - highest).sum(axis=-1, keepdims=True))


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the largest values `[N]`, in descending order; of equal ones, the first ones first."""
    candidates = np.flatnonzero(values >= np.partition(values, -count)[-count])
    return candidates[np.argsort(-values[candidates], kind="stable")[:count]]


def gather_rows(state, rows: np.ndarray):
    """Gather rows of every tensor of a state; scalars stay."""
    return tree.map_structure(lambda part: ops.take(part, rows, axis=0) if _has_rows(part) else part, state)


def _has_rows(part):
    """Return whether a part of a state is a tensor, and no scalar."""
    return len(getattr(part, "shape", ())) > 0


def _next_log_probabilities(logits, ends):
    vocabulary_size = logits.shape[-1]
    if max(ends, default=-1) >= vocabulary_size:
        raise ValueError(f"end_token_id={max(ends)}; expected None or an id of {vocabulary_size} logits.")
    return log_softmax(logits)


def _checked(state, start_ids, max_new_tokens, end_token_id):
    start_ids = ops.convert_to_numpy(start_ids)
    if start_ids.ndim != 1 or start_ids.dtype.kind not in "iu":
        received = f"dtype {start_ids.dtype} and shape {start_ids.shape}"
        raise ValueError(f"start_ids has {received}; expected [B]: one integer id for each row.")
    for id in start_ids:
        checks.integer("start_ids", int(id), 0, checks.MAX_INT32)
    rows = {part.shape[0] for part in tree.flatten(state) if _has_rows(part)}
    if rows - {len(start_ids)}:
        received = " and ".join(map(str, sorted(rows)))
        raise ValueError(f"start_ids has {len(start_ids)} ids, the state {received} rows; expected an id for each row.")
    max_new_tokens = checks.positive_integer("max_new_tokens", max_new_tokens)
    return start_ids.astype("int32"), max_new_tokens, _checked_ends(end_token_id)


def _checked_ends(end_token_id):
    """Return a list of the ids that end a sequence."""
    if end_token_id is None:
        return []
    ends = end_token_id if isinstance(end_token_id, Collection) else [end_token_id]
    reason = "or None if no id ends a sequence"
    return [checks.integer("end_token_id", id, 0, checks.MAX_INT32, reason) for id in ends]


def _directions(x):
    """Divide vectors by their norms, `[..., D]`, in float64."""
    x = ops.convert_to_numpy(x).astype("float64")
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-6)


def ctc_greedy(logits, mask=None, blank: int = 0):
    """Take the likeliest id of each frame, merge equal neighbors and remove blanks.

    Args:
        logits: `[B, T, V]`.
        mask: `[B, T]`, true at frames, or None. Other positions are left out.
        blank: Id of the blank, from 0 to V - 1.

    Returns:
        Labels `[B, T]`, int32, -1 after the last; and log p of their best alignment, float64 `[B]`.

    Raises:
        ValueError: Shapes or dtypes are others.

    >>> labels, log_p = ctc_greedy([[[0.0, 3.0, 0.0], [0.0, 3.0, 0.0], [3.0, 0.0, 0.0], [0.0, 3.0, 0.0]]])
    >>> labels.tolist()
    [[1, 1, -1, -1]]
    """
    rows, length = _log_probabilities(logits, mask, blank)
    labels, log_p = np.full((len(rows), length), -1, "int32"), np.zeros(len(rows))
    for n, row in enumerate(rows):
        ids = row.argmax(-1)
        log_p[n] = row.max(-1).sum()
        ids = ids[(np.diff(ids, prepend=-1) != 0) & (ids != blank)]
        labels[n, : len(ids)] = ids
    return labels, log_p


def ctc_beam_search(logits, mask=None, num_beams: int = 16, blank: int = 0):
    """Find likely labels by adding up the alignments of the best `num_beams` prefixes.

    Args:
        logits: `[B, T, V]`.
        mask: `[B, T]`, true at frames, or None. Other positions are left out.
        num_beams: W, prefixes of each row, at least 1. With as many as there are, probabilities are exact.
        blank: Id of the blank, from 0 to V - 1.

    Returns:
        Labels `[B, W, T]`, int32, -1 after the last, likeliest first; and log p, float64 `[B, W]`, minus infinity where
        there are fewer than W.

    Raises:
        ValueError: An argument is out of its range, or shapes or dtypes are others.

    >>> labels, log_p = ctc_beam_search(np.log([[[0.6, 0.4], [0.6, 0.4]]]), num_beams=2)  # 1-, -1 and 11 against --
    >>> labels.tolist(), np.exp(log_p).round(2).tolist()
    ([[[1, -1], [-1, -1]]], [[0.64, 0.36]])
    """
    checks.positive_integer("num_beams", num_beams)
    rows, length = _log_probabilities(logits, mask, blank)
    labels = np.full((len(rows), num_beams, length), -1, "int32")
    log_p = np.full((len(rows), num_beams), -math.inf)
    for n, row in enumerate(rows):
        prefixes, totals = _prefix_beam_search(row, num_beams, blank)
        log_p[n, : len(totals)] = totals
        for place, prefix in enumerate(prefixes):
            labels[n, place, : len(prefix)] = prefix
    return labels, log_p


def _prefix_beam_search(row, num_beams, blank):
    """Return the best prefixes, tuples, and their log p, of log-probabilities `[T, V]`."""
    size = row.shape[-1]
    prefixes, ends_blank, ends_label = [()], np.zeros(1), np.full(1, -math.inf)
    for frame in row:
        count, totals = len(prefixes), np.logaddexp(ends_blank, ends_label)
        has_label = np.array([bool(prefix) for prefix in prefixes])
        last = np.array([prefix[-1] if prefix else blank for prefix in prefixes])
        longer = totals[:, None] + frame  # [W, V], of a prefix and one more label
        longer[np.arange(count), last] = np.where(has_label, ends_blank, -math.inf) + frame[last]
        longer[:, blank] = -math.inf
        new_blank, new_label = totals + frame[blank], np.where(has_label, ends_label + frame[last], -math.inf)
        index = {prefix: n for n, prefix in enumerate(prefixes)}
        for n, prefix in enumerate(prefixes):  # which may be another one and a label
            parent = index.get(prefix[:-1]) if prefix else None
            if parent is not None:
                new_label[n] = np.logaddexp(new_label[n], longer[parent, last[n]])
                longer[parent, last[n]] = -math.inf
        scores = np.concatenate([np.logaddexp(new_blank, new_label), longer.ravel()])
        best = np.argsort(-scores, kind="stable")[:num_beams]
        best = best[scores[best] > -math.inf]
        old, added = best[best < count], divmod(best[best >= count] - count, size)
        prefixes = [prefixes[n] for n in old] + [(*prefixes[n], int(k)) for n, k in zip(*added, strict=True)]
        ends_blank = np.concatenate([new_blank[old], np.full(len(best) - len(old), -math.inf)])
        ends_label = np.concatenate([new_label[old], longer[added]])
    totals = np.logaddexp(ends_blank, ends_label)
    order = np.argsort(-totals, kind="stable")
    return [prefixes[n] for n in order], totals[order]


def _log_probabilities(logits, mask, blank):
    """Return the log-probabilities `[T, V]` of each row's frames, float64, and the T of all."""
    logits = ops.convert_to_tensor(logits)
    if len(logits.shape) != 3:
        raise ValueError(f"logits has shape {tuple(logits.shape)}; expected [B, T, V].")
    checks.integer("blank", blank, 0, logits.shape[-1] - 1)
    mask = tensor_checks.boolean_mask("mask", mask, (2,), logits)
    logits = ops.convert_to_numpy(logits)
    masks = [...] * len(logits) if mask is None else ops.convert_to_numpy(mask)
    return [log_softmax(row[is_frame]) for row, is_frame in zip(logits, masks, strict=True)], logits.shape[1]
