"""What the tests of layers share: float64 and gradients on any Keras backend, RNNs of any version of Keras."""

import contextlib
import functools

import hypothesis
import keras
import numpy as np
import pytest
from keras import ops

import keras_seq.ops
from tests.conftest import often

BACKEND = keras.backend.backend()
if BACKEND == "jax":  # spend little on each of many small programs
    import jax

    jax.config.update("jax_disable_most_optimizations", True)

ROUTES = ["reference", "kernel"] if BACKEND == "tensorflow" else ["reference"]

few = hypothesis.settings(max_examples=3)  # each of which compiles


def compiled(function):
    """Compile the function on JAX: outside of jit every operation would be compiled for every shape."""
    if BACKEND != "jax":
        return function
    import jax

    return jax.jit(function)


def on(route):
    """Run the reference or the kernel."""
    return keras_seq.ops.reference() if route == "reference" else contextlib.nullcontext()


def wide(y):
    return ops.convert_to_numpy(ops.cast(y, "float32"))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rare_on_jax(names, cases, quick):
    """Parametrize; on JAX, which compiles every eager call anew, all but the quick cases are `rare`."""
    return often(names, cases, quick if BACKEND == "jax" else cases)


def handing_masks_on(kind):
    """Return what makes an RNN of Keras that hands its mask on, as each does by itself up to Keras 3.15."""

    @functools.wraps(kind)
    def make(*args, **kwargs):
        layer = kind(*args, **kwargs)
        for part in (layer, getattr(layer, "forward_layer", layer), getattr(layer, "backward_layer", layer)):
            part.supports_masking = True
        return layer

    return make


@pytest.fixture
def float64():
    """JAX knows float64 only on request."""
    if BACKEND != "jax":
        yield
        return
    import jax

    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else contextlib.nullcontext():
        yield


@pytest.fixture
def exact():
    """How near a float64 oracle must be. On torch, Keras multiplies float64 matrices in float32."""
    return {"rtol": 1e-4, "atol": 2e-6} if BACKEND == "torch" else {"rtol": 1e-9, "atol": 1e-11}


@pytest.fixture
def exact_with_tanh():
    """The same for formulas with a tanh, which Keras computes in float32 on JAX, and of several matrices on torch."""
    by_backend = {"jax": {"rtol": 1e-6, "atol": 1e-6}, "torch": {"rtol": 1e-4, "atol": 2e-5}}
    return by_backend.get(BACKEND, {"rtol": 1e-8, "atol": 1e-10})


@pytest.fixture
def gradients():
    """Gradients of a scalar function of arrays, by the backend."""

    def gradients(function, arrays):
        tensors = [ops.convert_to_tensor(array) for array in arrays]
        if BACKEND == "tensorflow":
            import tensorflow as tf

            with tf.GradientTape() as tape:
                tape.watch(tensors)
                value = function(tensors)
            result = tape.gradient(value, tensors)
        elif BACKEND == "jax":
            import jax

            result = jax.grad(function)(tensors)
        else:
            tensors = [tensor.detach().requires_grad_() for tensor in tensors]
            function(tensors).backward()
            result = [tensor.grad for tensor in tensors]
        return [ops.convert_to_numpy(gradient) for gradient in result]

    return gradients


@pytest.fixture
def all_gradients(gradients):
    """The gradients of the mean square of what a layer makes of x, by its weights and by x."""

    def all_gradients(layer, x):
        def loss(values):
            y, _ = layer.stateless_call(values[:-1], [], values[-1])
            return ops.mean(ops.square(ops.cast(y, "float32")))

        return gradients(compiled(loss), [*map(ops.convert_to_numpy, layer.trainable_variables), x])

    return all_gradients


@pytest.fixture
def check_gradients(gradients):
    """Compares the gradients of a layer, for all its weights and its input, with finite differences in float64."""
    if BACKEND == "torch":
        pytest.skip("Keras multiplies float64 matrices in float32 on torch, where finite differences tell little")

    def check(layer, *inputs, step=1e-6, tolerance=1e-6, **kwargs):
        arrays = [ops.convert_to_numpy(v) for v in layer.trainable_variables] + [np.asarray(x) for x in inputs]
        count = len(layer.trainable_variables)
        shape = ops.convert_to_numpy(layer(*inputs, **kwargs)).shape
        direction = np.random.default_rng(1).normal(size=shape)

        @compiled
        def loss(values):
            y, _ = layer.stateless_call(values[:count], layer.non_trainable_variables, *values[count:], **kwargs)
            return ops.sum(y * direction)

        found = gradients(loss, arrays)
        # One random direction tests all numbers of the arrays that it moves. Float32 needs one for each array.
        together = [[n] for n in range(len(arrays))] if BACKEND == "jax" else [range(len(arrays))] * 2
        for seed, moved in enumerate(together):
            random = np.random.default_rng(seed)
            along = [random.normal(size=a.shape) if n in moved else np.zeros(a.shape) for n, a in enumerate(arrays)]
            ends = [[a + sign * step * r for a, r in zip(arrays, along, strict=True)] for sign in (1, -1)]
            up, down = (float(ops.convert_to_numpy(loss([ops.convert_to_tensor(a) for a in end]))) for end in ends)
            slope = sum((gradient * r).sum() for gradient, r in zip(found, along, strict=True))
            assert (up - down) / (2 * step) == pytest.approx(slope, rel=tolerance, abs=tolerance)

    return check
