"""Measure whether a model continues a sequence that it has read before: induction (Olsson et al., 2022).

    ids               r_1 .. r_n r_1 .. r_n, random
    induction score   1 - loss(second half) / loss(first half):   0 if the repetition is not noticed, 1 if it is copied
    prefix matching   mean attention weight from the second r_i to what followed the first: position i + 1

The first needs nothing but logits, so that an LSTM has a score too. The second finds the heads that do it.
https://arxiv.org/abs/2209.11895
"""

import keras
import numpy as np
from keras import ops

from keras_seq import checks
from keras_seq.evaluation.attention_weights import attention_weights
from keras_seq.evaluation.losses import token_losses
from keras_seq.layers.introspection import vocabulary_size

LENGTH = 24  # n, unless the model's context length is below 2 n


def repeated_sequences(model, length: int | None = None, count: int = 16, seed: int = 0) -> np.ndarray:
    """Draw random sequences and repeat each.

    Args:
        model: A `LanguageModel`, for its vocabulary, context length and document token, which is not drawn.
        length: n; unless given 24, or half of the context length if that is less.
        count: B.
        seed: Seed of the draws.

    Returns:
        int32 `[B, 2 n]`.

    Raises:
        ValueError: An argument is out of its range, or 2 n ids are more than the context length.
    """
    limit = (getattr(model, "context_length", None) or 2 * LENGTH) // 2
    length = min(LENGTH, limit) if length is None else checks.positive_integer("length", length)
    checks.positive_integer("count", count)
    if (getattr(model, "context_length", None) and length > limit) or length < 2:
        raise ValueError(f"length={length}; expected 2 to {limit}, half of the model's context length.")
    ids = np.random.default_rng(seed).choice(ordinary_tokens(model), size=(count, length))
    return np.concatenate([ids, ids], axis=1).astype("int32")


def ordinary_tokens(model) -> np.ndarray:
    """Return the ids of a model's vocabulary without its document token, where states would begin anew."""
    ids = np.arange(vocabulary_size(model))
    return ids[ids != getattr(model, "document_token", None)]


def induction_score(model: keras.Model, ids) -> float:
    """Return how much of the loss a repetition takes away.

    ```python
    score = induction_score(model, repeated_sequences(model))
    ```

    Args:
        model: Any model from ids `[B, T]` to logits `[B, T, V]`.
        ids: Integers `[B, 2 n]`, whose second half repeats the first.

    Returns:
        1 - loss(second half) / loss(first half); below 0 if the repetition misleads. The first id of each half, which
        nothing can predict, does not count.

    Raises:
        ValueError: The second half of `ids` is not the first.
    """
    ids = _checked(ids)
    losses = ops.convert_to_numpy(token_losses(model(ids[:, :-1], training=False), ids[:, 1:]))  # [B, 2 n - 1]
    n = ids.shape[1] // 2
    return float(1 - losses[:, n:].mean() / losses[:, : n - 1].mean())


def prefix_matching_scores(model: keras.Model, ids) -> dict[str, np.ndarray]:
    """Return how much each attention head looks at what followed the same id before.

    Args:
        model: Any Keras model with attention layers of keras_seq or keras.layers.
        ids: Integers `[B, 2 n]`, whose second half repeats the first.

    Returns:
        `[H]` by the name of the attention layer, from 0 to 1; uniform attention has about 0.7 / n. Empty for a model
        without attention.

    Raises:
        ValueError: The second half of `ids` is not the first.
    """
    ids = _checked(ids)
    i = np.arange(ids.shape[1] // 2 - 1)
    weights = attention_weights(model, ids)
    return {name: maps[:, :, len(i) + 1 + i, i + 1].mean(axis=(0, 2)) for name, maps in weights.items()}


def _checked(ids):
    ids = np.asarray(ids)
    n = ids.shape[-1] // 2
    if ids.ndim != 2 or n < 2 or not np.array_equal(ids[:, :n], ids[:, n:]):
        raise ValueError(f"ids has shape {ids.shape}; expected [B, 2 n] with equal halves, as of repeated_sequences.")
    return ids
