"""Contrastive search (Su et al., 2022, arXiv:2202.06417): likely tokens unlike those before. It is deterministic.

    next id = argmax over the k likeliest v of  (1 - a) p(v | x) - a max over j of cos(h_v, h_j)

h_j is the last hidden state at position j, h_v that of candidate v. With a = 0 the search is greedy.
"""

import numbers

import numpy as np
from keras import ops

from keras_seq import checks
from keras_seq.generation.search import gather_rows, largest, log_softmax
from keras_seq.kernels.compiled import compiled


def contrastive_search(model, ids: list[int], max_new_tokens: int, top_k: int = 4, alpha: float = 0.6) -> list[int]:
    """Return the ids after one prompt. The loop runs in NumPy, around a compiled forward pass.

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
    return new


def _directions(x):
    """Divide vectors by their norms, `[..., D]`, in float64."""
    x = ops.convert_to_numpy(x).astype("float64")
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-6)
