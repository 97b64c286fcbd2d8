"""Does a model see the future? Change an id and look at the logits before it."""

import contextlib

import keras
import numpy as np
from keras import ops

from keras_seq import checks
from keras_seq.layers.precision import at_least_float32


def assert_causal(model, vocabulary_size=None, length=16, seed=0):
    """Raises if the logits at a position depend on an id after it.

    Row t of a batch of `length` rows has another id at position t; no logit of that row before t may move.

    ```python
    assert_causal(model)  # a LanguageModel, or any Keras model from ids [B, T] to logits [B, T, V]
    ```

    Args:
        model: a built Keras model that maps ids `[B, T]` to logits `[B, T, V]`.
        vocabulary_size: ids are drawn below it; V unless given. A tagger has fewer tags than ids.
        length: T, at least 2.
        seed: of the ids and of the noise below.

    A leak that reaches `length` positions ahead or more is not seen.

    While it looks, noise is added to all weights, and taken back: a matrix that starts at zero would hide a leak.

    Raises:
        AssertionError: names the first position that sees the future, and the id that it sees.
        ValueError: the logits are not `[B, T, V]`, not finite, or depend on no id at all.
    """
    if not callable(model):
        raise ValueError(f"model={model!r}; expected a Keras model from ids [B, T] to logits [B, T, V].")
    checks.positive_integer("length", length)
    if length < 2:
        raise ValueError(f"length={length}; expected at least 2: one position has no future.")
    random = np.random.default_rng(seed)
    ids = np.zeros((length, length), "int32")
    shape = tuple(ops.shape(model(ids, training=False)))
    if len(shape) != 3 or shape[:2] != ids.shape:
        raise ValueError(f"The model maps ids {ids.shape} to {shape}; expected logits [B, T, V].")
    size = vocabulary_size or shape[-1]
    if size < 2:
        raise ValueError(f"vocabulary_size={size}; expected at least 2: with one id there is none to change it into.")
    ids[:] = random.integers(size, size=length)
    changed = ids.copy()
    at = np.arange(length)
    changed[at, at] = (changed[at, at] + random.integers(1, size, size=length)) % size
    with _perturbed_weights(model, random):
        before, after = (_logits(model, v) for v in (ids, changed))
    moved = (before != after).any(axis=-1)  # [changed id, position]
    if not moved.any():
        raise ValueError("The logits depend on no id at all, so nothing can be said of the future.")
    changed_at, position = np.nonzero(np.tril(moved, k=-1))
    if len(position):
        first = position.min()
        seen = changed_at[position == first].min()
        raise AssertionError(f"The model sees the future: the logits at position {first} depend on the id at {seen}.")


def _logits(model, ids):
    logits = model(ids, training=False)
    logits = ops.convert_to_numpy(ops.cast(logits, at_least_float32(logits.dtype)))
    if not np.isfinite(logits).all():
        raise ValueError("The logits are not all finite numbers, so nothing can be said of them.")
    return logits


@contextlib.contextmanager
def _perturbed_weights(model, random):
    """Adds noise to the weights, and puts them back at the end."""
    weights = [w for w in model.weights if keras.backend.is_float_dtype(w.dtype)]
    values = [ops.convert_to_numpy(w) for w in weights]
    try:
        for weight, value in zip(weights, values, strict=True):
            weight.assign(value + random.normal(scale=0.05, size=value.shape).astype(value.dtype))
        yield
    finally:
        for weight, value in zip(weights, values, strict=True):
            weight.assign(value)
