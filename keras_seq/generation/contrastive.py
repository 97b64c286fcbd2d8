"""Contrastive search (Su et al., 2022, arXiv:2202.06417): likely tokens unlike those before. It is deterministic.

    next id = argmax over the k likeliest v of  (1 - a) p(v | x) - a max over j of cos(h_v, h_j)

h_j is the last hidden state at position j, h_v that of candidate v. With a = 0 the search is greedy.
"""

import numbers

import numpy as np
import tensorflow as tf

from keras_seq import checks
from keras_seq.generation.sampling_loop import not_finite


def contrastive_search(model, ids: list[int], max_new_tokens: int, top_k: int = 4, alpha: float = 0.6) -> list[int]:
    """Return the ids after one prompt. The loop runs eagerly, around a compiled forward pass.

    Args:
        model: A `LanguageModel`.
        ids: The prompt, at least one id; with `max_new_tokens` more, at most the model's context length.
        max_new_tokens: Number of ids to return, at least 0.
        top_k: k, candidates at each position.
        alpha: Weight a of the similarity, from 0 to 1.

    Returns:
        `max_new_tokens` ids.

    Raises:
        ValueError: The model is not a `LanguageModel`, the prompt is empty, there are more ids than the context
            length, an argument is out of its range, or logits are not finite.
    """
    if not hasattr(model, "hidden_states"):
        raise ValueError(f"model={model!r}; expected a LanguageModel: contrastive search compares its hidden states.")
    top_k = checks.positive_integer("top_k", top_k)
    checks.number("alpha", alpha, min_value=0, max_value=1)
    max_new_tokens = checks.non_negative_integer("max_new_tokens", max_new_tokens)
    if not isinstance(ids, list) or not all(isinstance(id, numbers.Integral) for id in ids):
        raise ValueError(f"ids={ids!r}; expected a list of ids.")
    if not ids:
        raise ValueError("The prompt is empty; expected at least one id.")
    checks.ids_below("ids", ids, model.embedding.input_dim)
    context_length = model.context_length
    if context_length is not None and len(ids) + max_new_tokens > context_length:
        raise ValueError(
            f"The prompt and the new tokens have {len(ids)} + {max_new_tokens} ids; contrastive search expects at most "
            f"context_length={context_length}."
        )

    @tf.function(reduce_retracing=True)
    def forward(ids, state):
        x, state = model.hidden_states(ids, state=state, training=False, return_state=True)
        return tf.nn.l2_normalize(tf.cast(x, tf.float32), axis=-1), tf.nn.softmax(model.logits(x)[:, -1]), state

    hidden, p, state = forward(tf.constant([ids], tf.int32), model.get_initial_state(1))
    past_hidden, new = [hidden[0]], []
    for _ in range(max_new_tokens):
        if not np.isfinite(p).all():
            raise not_finite()
        confidence, candidates = tf.math.top_k(p[0], min(top_k, p.shape[-1]))
        hidden, p, states = forward(candidates[:, None], _repeat(state, len(candidates)))
        similarities = tf.matmul(hidden[:, 0], tf.concat(past_hidden, axis=0), transpose_b=True)
        max_similarity = tf.reduce_max(similarities, axis=-1)
        best = int(tf.argmax((1 - alpha) * confidence - alpha * max_similarity))
        state = _select_row(states, best)
        p = p[best : best + 1]
        past_hidden.append(hidden[best])
        new.append(int(candidates[best]))
    return new


def _repeat(state, count):
    """Repeat a state of one row `count` times; scalars stay."""
    return tf.nest.map_structure(lambda part: tf.repeat(part, count, axis=0) if part.shape.rank else part, state)


def _select_row(state, row):
    """Select one row of a state, keeping the axis; scalars stay."""
    return tf.nest.map_structure(lambda part: part[row : row + 1] if part.shape.rank else part, state)
