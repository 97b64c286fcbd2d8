"""Check that a layer steps as it passes: compare both once, on random numbers, where the layer is not of keras_seq.

    whole pass    y = layer(x [B, T, D])
    steps         y_t, state = layer(x_t [B, 1, D], state=state, return_state=True)
                  y_t = layer(x_t [B, 1, D])                         of a layer without a state

They agree where outputs depend on their own position only, and where a state holds all that counts of those before. The
weights are replaced by others meanwhile, as a gate of zeros would hide what comes after it.
"""

import concurrent.futures
import contextlib
import contextvars
import math
import random
import re

import keras
import numpy as np
from keras import ops

from keras_seq.layers.explicit_state import has_explicit_state
from keras_seq.layers.introspection import iter_layers
from keras_seq.layers.residual import apply_sequentially, initial_states

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


def unknown_layers(layer) -> list[keras.layers.Layer]:
    """Return the layers in a layer, itself included, whose steps no test of keras_seq compares with their pass."""
    return [inner for inner in iter_layers(layer, attributes=True) if not _is_known(inner)]


def _is_known(layer):
    if type(layer) is keras.layers.Rescaling:
        return np.ndim(layer.scale) == np.ndim(layer.offset) == 0  # arrays may hold a number for each position
    if not (_package(type(layer)) == "keras_seq" or type(layer) in POINTWISE):
        return False
    functions = [v for v in vars(layer).values() if callable(v) and not isinstance(v, keras.layers.Layer | type)]
    return all(_package(function) in ("keras_seq", "keras") for function in functions)  # such as an activation


def _package(value):
    return str(value.__module__).partition(".")[0]


def check_steps(layer, x: keras.KerasTensor, length: int | None) -> None:
    """Raise unless the steps of a built layer equal its whole pass.

    Args:
        layer: A layer; nothing is computed for one of known layers.
        x: Spec of its inputs, ids `[B, T]` or vectors `[B, T, D]`.
        length: The maximum number of positions, None for no limit.

    Raises:
        ValueError: They differ, or the layer cannot be called on as many positions.
    """
    unknown = unknown_layers(layer)
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
