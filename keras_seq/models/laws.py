"""Check laws that a model must keep: the future cannot leak, and stepping equals the whole pass."""

import concurrent.futures
import contextlib
import contextvars
import math
import random
import re

import keras
import numpy as np
from keras import ops

from keras_seq import checks
from keras_seq.layers.base.state import has_explicit_state
from keras_seq.layers.introspection import gives_no_sequence, has_implicit_state, is_non_causal, iter_layers
from keras_seq.layers.residual import apply_sequentially, initial_states
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


# Check that a layer steps as it passes: compare both once, on random numbers, where the layer is not of keras_seq.
#
#     whole pass    y = layer(x [B, T, D])
#     steps         y_t, state = layer(x_t [B, 1, D], state=state, return_state=True)
#                   y_t = layer(x_t [B, 1, D])                         of a layer without a state
#
# They agree where outputs depend on their own position only, and where a state holds all that counts of those before.
# The weights are replaced by others meanwhile, as a gate of zeros would hide what comes after it.


# Keras's layers that cannot mix positions, whatever their arguments; subclasses may
POINTWISE = (
    *(keras.layers.Dense, keras.layers.Dropout, keras.layers.Embedding, keras.layers.Identity),
    *(keras.layers.InputLayer, keras.layers.ReversibleEmbedding),
)
BATCH, MAX_LENGTH, SEED = 2, 64, 0
TOLERANCE, HALF_TOLERANCE = 1e-2, 5e-2  # of the largest output; a matmul of one position may round otherwise (TF32)
_enabled = contextvars.ContextVar("_enabled", default=True)


@contextlib.contextmanager
def disabled():
    """Compute nothing in this context, in which models are built without memory for their weights."""
    token = _enabled.set(False)
    try:
        yield
    finally:
        _enabled.reset(token)


BLOCK_LAWS = {  # what no layer in a block may be, and what is said of it
    is_non_causal: "it reads later positions, so it sees the id or value that it is to predict, and its loss means "
    "nothing. Use it for tagging, or use a layer that reads forwards only.",
    has_implicit_state: "its call takes and returns no state. Use a layer of keras_seq.layers, and wrap the model in "
    "Stateful to carry the state.",
    gives_no_sequence: "it does not give one output for each position. Make the recurrent layer with "
    "return_sequences=True, and without return_state=True.",
}


def check_blocks(blocks, kind: str) -> None:
    """Raise unless blocks are causal layers that take and return their state and give an output at each position."""
    for block in blocks:
        if not isinstance(block, keras.layers.Layer):
            raise ValueError(f"blocks holds {block!r}; expected layers from [B, T, D] to [B, T, D'].")
        for breaks_law, reason in BLOCK_LAWS.items():
            if any(map(breaks_law, iter_layers(block))):
                raise ValueError(f"{block.name} cannot be a block of a {kind}: {reason}")


def _is_known(layer):
    """Return whether tests of keras_seq compare the steps of a layer with its pass."""
    if type(layer) is keras.layers.Rescaling:
        return np.ndim(layer.scale) == np.ndim(layer.offset) == 0  # arrays may hold a number for each position
    if not (_package(type(layer)) == "keras_seq" or type(layer) in POINTWISE):
        return False
    functions = [v for v in vars(layer).values() if callable(v) and not isinstance(v, keras.layers.Layer | type)]
    return all(_package(function) in ("keras_seq", "keras") for function in functions)  # such as an activation


def _package(value):
    return str(value.__module__).partition(".")[0]


def check_steps(layer, x: keras.KerasTensor, length: int | None) -> None:
    """Raise unless the steps of a built layer equal its whole pass."""
    unknown = [inner for inner in iter_layers(layer, attributes=True) if not _is_known(inner)]
    if not unknown or not _enabled.get():
        return
    length = min(length or MAX_LENGTH, MAX_LENGTH)
    names = ", ".join(dict.fromkeys(type(inner).__name__ for inner in unknown))
    drawn = random.getstate()  # of Keras's seeds
    try:
        # In a thread of its own, where numbers can be computed although the model is being traced.
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            difference = executor.submit(_difference, layer, x, length).result()
    except Exception as error:  # of somebody's own code
        raise ValueError(
            f"{layer.name} ({names}) cannot be a part of a language model: it cannot be called on {length} positions "
            f"and then on one ({_message_line(error)}); if it takes fewer, give the model that context_length."
        ) from error
    finally:
        random.setstate(drawn)
    half = any(inner.compute_dtype in ("float16", "bfloat16") for inner in iter_layers(layer, attributes=True))
    if difference <= (HALF_TOLERANCE if half else TOLERANCE):
        return
    if has_explicit_state(layer):
        remedy = "let its state, and that of each layer in it, hold all that later outputs depend on"
    else:
        remedy = "give it a state, as keras_seq.layers.ExplicitState has, or use a layer of keras_seq.layers"
    raise ValueError(
        f"{layer.name} ({names}) cannot be a part of a language model: its outputs position by position differ by "
        f"{100 * difference:.0f} % from those of the whole sequence, so generated text would be none that the model "
        f"learned; {remedy}."
    )


def _difference(layer, x, length):
    """Return the largest difference of steps and pass, relative to the largest output, of two sets of weights."""
    generator = np.random.default_rng(SEED)
    shape = (BATCH, length, *x.shape[2:])
    if len(shape) == 2:
        values = generator.integers(getattr(layer, "input_dim", 2), size=shape)
    else:
        values = generator.normal(size=shape)
    inputs = ops.cast(ops.convert_to_tensor(values), x.dtype)
    moderate, large = (_draw_weights(layer, generator, moderate) for moderate in (True, False))
    # with large weights a recurrence is chaotic: over many steps, rounding would make a difference as large as outputs
    few = inputs[:, :4] if has_explicit_state(layer) else inputs
    return max(_difference_with(layer, inputs, moderate), _difference_with(layer, few, large))


def _draw_weights(layer, generator, moderate):
    """Return other values for the variables: noise that is never near zero, on their own values and scale if moderate.

    Without their own values no gate is closed, and a table of positions weighs as much as the inputs.
    """
    values = []
    for variable in layer.variables:
        value = ops.convert_to_numpy(variable.value)  # of one that is not there yet, its initial value
        value = np.resize(value, tuple(variable.shape))  # a scalar that is not there yet is an empty array: here zero
        if keras.backend.is_float_dtype(variable.dtype):
            noise = generator.choice([-1.0, 1.0], value.shape) * generator.uniform(0.3, 0.6, value.shape)
            scale = 1 / math.sqrt(math.prod(value.shape[:-1]))
            value = value.astype("float32") + scale * noise if moderate else noise
        values.append(ops.cast(ops.convert_to_tensor(value), variable.dtype))
    return values


def _difference_with(layer, inputs, weights):
    length, start, steps = inputs.shape[1], 0, []
    with keras.StatelessScope(state_mapping=[*zip(layer.variables, weights, strict=True)]):
        whole = _numpy(apply_sequentially([layer], inputs, training=False)[0])
        state = initial_states([layer], BATCH, capacity=length)
        for size in (1, 1, length - 4, 1, 1) if length > 4 else (1,) * length:
            y, state = apply_sequentially([layer], inputs[:, start : start + size], state, training=False)
            steps.append(_numpy(y))
            start += size
    steps = np.concatenate(steps, axis=1)
    finite = np.isfinite(whole) & np.isfinite(steps)
    largest = np.abs(whole[finite]).max(initial=0.0)
    return np.abs(whole - steps)[finite].max(initial=0.0) / max(largest, 1e-30)


def _numpy(x):
    return ops.convert_to_numpy(ops.cast(x, "float32"))


def _message_line(error):
    """Return the line of a message that says most: Keras's first line only names the layer."""
    lines = [line for line in re.sub(r"\x1b\[\d+m", "", str(error)).splitlines() if line.strip()]
    lines = lines[1:] if len(lines) > 1 and lines[0].startswith("Exception encountered") else lines
    return (lines or [type(error).__name__])[0].strip()[:200]
