"""Check that a model is causal: change an id and compare the logits before it."""

import contextlib

import keras
import numpy as np
from keras import ops

from keras_seq import checks
from keras_seq.ops.tensor_checks import at_least_float32


def assert_causal(model, vocabulary_size: int | None = None, length: int = 16, seed: int = 0) -> None:
    """Raise an AssertionError if the logits at a position depend on a later id.

    Row t of a batch of `length` rows has another id at position t; no logit of that row before t may change. Meanwhile
    random noise is added to all weights, because a matrix that is zero would hide a leak; the weights are restored
    afterwards. A leak from `length` positions ahead or more is not detected.

    ```python
    assert_causal(model)  # a LanguageModel, or any Keras model from ids [B, T] to logits [B, T, V]
    ```

    Args:
        model: A built Keras model from ids `[B, T]` to logits `[B, T, V]`.
        vocabulary_size: Ids are drawn below it; by default V of the logits. Needed for a tagger, which has fewer tags
            than ids.
        length: T, at least 2.
        seed: Seed of the ids and the noise.

    Raises:
        AssertionError: The model is not causal. The message names the first position whose logits depend on a later
            id, and that id's position.
        ValueError: The logits are not `[B, T, V]`, not finite, or depend on no id at all.
    """
    if not callable(model):
        raise ValueError(f"model={model!r}; expected a Keras model from ids [B, T] to logits [B, T, V].")
    checks.positive_integer("length", length)
    if length < 2:
        raise ValueError(f"length={length}; expected at least 2: one position has no later one.")
    random = np.random.default_rng(seed)
    ids = np.zeros((length, length), "int32")
    shape = tuple(ops.shape(model(ids, training=False)))
    if len(shape) != 3 or shape[:2] != ids.shape:
        raise ValueError(f"The model maps ids {ids.shape} to {shape}; expected logits [B, T, V].")
    size = vocabulary_size or shape[-1]
    if size < 2:
        raise ValueError(f"vocabulary_size={size}; expected at least 2 different ids.")
    ids[:] = random.integers(size, size=length)
    perturbed = ids.copy()
    diagonal = np.arange(length)
    perturbed[diagonal, diagonal] = (perturbed[diagonal, diagonal] + random.integers(1, size, size=length)) % size
    with _perturbed_weights(model, random):
        logits, perturbed_logits = (_logits(model, v) for v in (ids, perturbed))
    differs = (logits != perturbed_logits).any(axis=-1)  # [perturbed position, position of the logits]
    if not differs.any():
        raise ValueError("The logits depend on no id at all, so causality cannot be checked.")
    perturbed_at, position = np.nonzero(np.tril(differs, k=-1))
    if len(position):
        first = position.min()
        later = perturbed_at[position == first].min()
        raise AssertionError(f"The model is not causal: the logits at position {first} depend on the id at {later}.")


def _logits(model, ids):
    logits = model(ids, training=False)
    logits = ops.convert_to_numpy(ops.cast(logits, at_least_float32(logits.dtype)))
    if not np.isfinite(logits).all():
        raise ValueError("The logits are not all finite, so causality cannot be checked.")
    return logits


@contextlib.contextmanager
def _perturbed_weights(model, random):
    """Add noise to the weights, and restore them at the end."""
    weights = [w for w in model.weights if keras.backend.is_float_dtype(w.dtype)]
    values = [ops.convert_to_numpy(w) for w in weights]
    try:
        for weight, value in zip(weights, values, strict=True):
            weight.assign(value + random.normal(scale=0.05, size=value.shape).astype(value.dtype))
        yield
    finally:
        for weight, value in zip(weights, values, strict=True):
            weight.assign(value)
