"""Linear recurrences on any backend, by the reference and by what the backend has; tests/ops has TensorFlow's twins."""

import contextlib

import keras
import numpy as np
import pytest
from keras import ops

import keras_seq.ops
from keras_seq.ops.linear_recurrence import LOG_ZERO, linear_recurrence, log_linear_recurrence
from tests.layers.conftest import compiled

BACKEND = keras.backend.backend()
LONG = 4096
numpy = ops.convert_to_numpy
ROUTES = ("reference", "kernel")


def by_route(function):
    """The function on the route of the test; JAX keeps what it compiled, so each has a program of its own."""
    programs = {route: compiled(lambda *args: function(*args)) for route in ROUTES}
    return lambda *args: programs[by_route.now](*args)


linear_recurrence, log_linear_recurrence = by_route(linear_recurrence), by_route(log_linear_recurrence)


def in_logarithms(a, b, h):
    return log_linear_recurrence(ops.log(a), ops.log(b), h)


NARROW = {"rtol": 2e-6, "atol": 2e-6}  # Keras takes logaddexp in float32 on JAX and torch
each = pytest.mark.parametrize("recurrence", [linear_recurrence, in_logarithms], ids=["plain", "logarithms"])


@pytest.fixture(autouse=True, params=ROUTES)
def _route(request):
    by_route.now = request.param
    with keras_seq.ops.reference() if request.param == "reference" else contextlib.nullcontext():
        yield


def loop(a, b, h):
    """One position after the other, in float64."""
    h, states = np.asarray(h, "float64"), []
    for t in range(a.shape[1]):
        h = np.asarray(a[:, t], "float64") * h + b[:, t]
        states.append(h)
    return np.stack(states, axis=1)


def arguments(batch=2, length=7, trailing=(3,), dtype="float64", seed=0):
    """a in (0, 1), b and h positive."""
    random = np.random.default_rng(seed)
    a, b, h = (random.uniform(0.05, 0.99, (batch, n, *trailing)).astype(dtype) for n in (length, length, 1))
    return a, b, h[:, 0]


def tensors(*values):
    return [ops.convert_to_tensor(v) for v in values]


@each
@pytest.mark.parametrize(("length", "trailing"), [(1, (3,)), (2, ()), (7, (3,)), (13, (2, 3)), (5, ())])
def test_it_is_the_loop(float64, exact, recurrence, length, trailing):
    args = arguments(2, length, trailing)
    y = recurrence(*tensors(*args))
    narrow = recurrence is in_logarithms and BACKEND != "tensorflow"
    np.testing.assert_allclose(numpy(y), loop(*args), **NARROW if narrow else exact)


def test_the_linear_one_takes_any_sign(float64, exact):
    random = np.random.default_rng(1)
    args = [random.normal(size=shape) for shape in [(3, 9, 2), (3, 9, 2), (3, 2)]]
    np.testing.assert_allclose(numpy(linear_recurrence(*tensors(*args))), loop(*args), **exact)


def differences(function, arrays, step=1e-6):
    """The gradients of a NumPy function by every number of every array."""
    result = []
    for n, array in enumerate(arrays):
        gradient = np.zeros(array.shape)
        for index in np.ndindex(*array.shape):
            moved = []
            for sign in (1, -1):
                changed = [a.copy() for a in arrays]
                changed[n][index] += sign * step
                moved.append(function(*changed))
            gradient[index] = (moved[0] - moved[1]) / (2 * step)
        result.append(gradient)
    return result


@each
@pytest.mark.parametrize("length", [1, 6])
def test_gradients_are_those_of_the_loop(float64, gradients, recurrence, length):
    args = arguments(2, length, (2,))
    weights = np.random.default_rng(1).normal(size=args[0].shape)
    got = gradients(lambda v: ops.sum(recurrence(*v) * ops.convert_to_tensor(weights)), args)
    expected = differences(lambda *v: (loop(*v) * weights).sum(), args)
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-7 if BACKEND == "tensorflow" else 2e-5)


def slow_and_fast(dtype="float32"):
    """Features whose a are: anywhere in (0, 1); one, nearly; exp(-80); all of these in turn."""
    random = np.random.default_rng(2)
    log_a = np.stack(
        [np.log(random.uniform(0.001, 0.999, LONG)), np.full(LONG, -1e-6), np.full(LONG, -80.0), np.zeros(LONG)],
        axis=-1,
    )
    log_a[:, 3] = np.choose(np.arange(LONG) % 3, log_a[:, :3].T)
    log_b = np.log(random.uniform(0.01, 1, (LONG, 4)))
    return log_a[None].astype(dtype), log_b[None].astype(dtype), np.zeros((1, 4), dtype)


@each
def test_thousands_of_positions_neither_overflow_nor_drift(gradients, recurrence):
    log_a, log_b, h = slow_and_fast()
    if recurrence is linear_recurrence:
        function, args = linear_recurrence, (np.exp(log_a), np.exp(log_b), h)
        expected = loop(*args)
    else:
        function, args = log_linear_recurrence, (log_a, log_b, h)
        expected = loop(np.exp(log_a, dtype="float64"), np.exp(log_b, dtype="float64"), h)
    y = numpy(function(*tensors(*args)))
    np.testing.assert_allclose(y, expected, rtol=1e-4)
    for gradient in gradients(lambda v: ops.sum(function(*v)), args):
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() > 0 or gradient.shape == h.shape


@pytest.mark.parametrize("start", [0.0, 0.7])
def test_a_step_that_changes_nothing_copies_the_state(gradients, start):
    rest = np.array([1, 1, 0, 1, 0, 0, 1, 1, 1], bool)[None, :, None]
    log_a, log_b, h = (v.astype("float32") for v in arguments(2, 9, (3,)))
    log_a, log_b = np.where(rest, np.float32(0), np.log(log_a)), np.where(rest, np.float32(LOG_ZERO), np.log(log_b))
    h = np.full_like(h, start)
    y = numpy(log_linear_recurrence(*tensors(log_a, log_b, h)))
    before = np.concatenate([h[:, None], y[:, :-1]], axis=1)
    np.testing.assert_allclose(y[:, rest[0, :, 0]], before[:, rest[0, :, 0]], rtol=1e-6)
    if start == 0:
        np.testing.assert_array_equal(y[:, :2], 0.0)
    got = gradients(lambda v: ops.sum(log_linear_recurrence(*v) ** 2), (log_a, log_b, h))
    assert all(np.isfinite(gradient).all() for gradient in got)
    np.testing.assert_array_equal(got[1][:, rest[0, :, 0]], 0.0)


def test_from_nothing_nothing_comes(gradients):
    log_a, log_b = np.full((1, 5, 2), -1.0, "float32"), np.full((1, 5, 2), LOG_ZERO, "float32")
    args = log_a, log_b, np.zeros((1, 2), "float32")
    np.testing.assert_array_equal(numpy(log_linear_recurrence(*tensors(*args))), 0.0)
    assert all(np.isfinite(g).all() for g in gradients(lambda v: ops.sum(log_linear_recurrence(*v)), args))
