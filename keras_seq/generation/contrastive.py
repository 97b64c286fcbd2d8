"""Contrastive search (Su et al., 2022): likely, but unlike what is there already. No chance is involved.

    next id = argmax over the k likeliest v of  (1 - a) p(v | x) - a max over j of cos(h_v, h_j)

h_j is what the model makes its logits of at position j, h_v that at v as if v had been chosen. With a = 0 it is greedy.
"""

import numbers

import numpy as np
import tensorflow as tf

from keras_seq import checks
from keras_seq.generation.sampling_loop import not_finite


def contrastive_search(model, ids, length, top_k=4, alpha=0.6):
    """The ids after one prompt. It runs eagerly, around the compiled step.

    Args:
        model: a `LanguageModel`.
        ids: the prompt, at least one id; with `length` more, no more than a model's context.
        length: ids to write.
        top_k: k, candidates at each position.
        alpha: a, from 0 to 1: what being different is worth.

    Returns:
        A list of `length` ids.

    Raises:
        ValueError: an empty prompt, more ids than the context, a number out of its range, logits that are not finite.
    """
    if not hasattr(model, "hidden_states"):
        raise ValueError(f"model={model!r}; expected a LanguageModel: contrastive search compares what it represents.")
    top_k = checks.positive_integer("top_k", top_k)
    checks.number("alpha", alpha, min_value=0, max_value=1)
    if isinstance(length, bool) or not isinstance(length, int) or length < 0:
        raise ValueError(f"length={length!r}; expected a whole number, 0 or more.")
    if not isinstance(ids, list) or not all(isinstance(id, numbers.Integral) for id in ids):
        raise ValueError(f"ids={ids!r}; expected a list of ids.")
    if not ids:
        raise ValueError("The prompt is empty; expected at least one id.")
    checks.ids_below("ids", ids, model.embedding.input_dim)
    if model.context_length is not None and len(ids) + length > model.context_length:
        raise ValueError(
            f"{len(ids)} + {length} ids; contrastive search goes no further than context={model.context_length}."
        )

    @tf.function(reduce_retracing=True)
    def read(ids, state):
        x, state = model.hidden_states(ids, state=state, training=False, return_state=True)
        return tf.nn.l2_normalize(tf.cast(x, tf.float32), axis=-1), tf.nn.softmax(model.logits(x)[:, -1]), state

    shown, p, state = read(tf.constant([ids], tf.int32), model.get_initial_state(1))
    known, new = [shown[0]], []
    for _ in range(length):
        if not np.isfinite(p).all():
            raise not_finite()
        confidence, candidates = tf.math.top_k(p[0], min(top_k, p.shape[-1]))
        shown, p, states = read(candidates[:, None], _repeated(state, len(candidates)))
        alike = tf.reduce_max(tf.matmul(shown[:, 0], tf.concat(known, axis=0), transpose_b=True), axis=-1)
        best = int(tf.argmax((1 - alpha) * confidence - alpha * alike))
        state = _row(states, best)
        p = p[best : best + 1]
        known.append(shown[best])
        new.append(int(candidates[best]))
    return new


def _repeated(state, count):
    """A state of one row, `count` times; what has no rows as it is."""
    return tf.nest.map_structure(lambda part: tf.repeat(part, count, axis=0) if part.shape.rank else part, state)


def _row(state, row):
    """One row of a state."""
    return tf.nest.map_structure(lambda part: part[row : row + 1] if part.shape.rank else part, state)
