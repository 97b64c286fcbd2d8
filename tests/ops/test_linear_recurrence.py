"""The twins of linear recurrences on TensorFlow; the laws, on any backend, are in tests/layers of the same name."""

import numpy as np
import pytest
import tensorflow as tf

import keras_seq.ops
from keras_seq import layers
from keras_seq.ops.linear_recurrence import LOG_ZERO, linear_recurrence, log_linear_recurrence
from keras_seq.ops.linear_recurrence import tensorflow as optimized
from tests.conftest import often
from tests.ops.compare import assert_equal, by_reference, twins_called, values_and_gradients

each = pytest.mark.parametrize("operation", [linear_recurrence, log_linear_recurrence], ids=["linear", "log"])
TWINS = {linear_recurrence: optimized.looped_or_composed, log_linear_recurrence: optimized.direct_form}


@pytest.fixture(autouse=True, params=["cpu", "gpu"])
def _way(request, monkeypatch):
    """The kernel goes another way on a machine with a GPU; that way can be gone without one."""
    monkeypatch.setattr(optimized, "on_cpu", lambda: request.param == "cpu")


def arguments(operation, batch=3, length=7, trailing=(5,), dtype="float32"):
    """a, b and h: of either sign, or a in (0, 1) and all positive, a and b by their logarithms."""
    random = np.random.default_rng(length)
    shapes = [(batch, length, *trailing), (batch, length, *trailing), (batch, *trailing)]
    if operation is linear_recurrence:
        return [tf.constant(random.normal(scale=0.7, size=shape), dtype) for shape in shapes]
    a, b, h = (random.uniform(0.01, 1, shape) for shape in shapes)
    return [tf.constant(v, dtype) for v in (np.log(a), np.log(b), 0.1 + 2 * h)]


def with_last(function):
    """The last position by itself, too."""

    def both(*args):
        y = function(*args)
        return y, y[:, -1]

    return both


@each
@pytest.mark.parametrize(
    ("batch", "length", "trailing", "dtype"),
    [
        *((1, 1, (1,), "float64"), (3, 1, (5,), "float32"), (5, 11, (3,), "float64")),
        *((2, 7, (3, 2), "float32"), (3, 5, (), "float64")),
    ],
)
def test_values_and_all_gradients_are_those_of_the_reference(operation, batch, length, trailing, dtype):
    args = arguments(operation, batch, length, trailing, dtype)
    got, expected = values_and_gradients(with_last(TWINS[operation]), args), by_reference(with_last(operation), args)
    assert_equal(got, expected, dtype)


@each
def test_gradients_come_through_the_last_position_too(operation):
    args = arguments(operation, dtype="float64")
    got = values_and_gradients(with_last(TWINS[operation]), args, shown={1})
    assert_equal(got, by_reference(with_last(operation), args, shown={1}), "float64")


def test_masked_positions_and_a_state_of_zero_are_those_of_the_reference():
    log_a, log_b, h = arguments(log_linear_recurrence, dtype="float64")
    rest = np.array([1, 0, 1, 1, 0, 0, 1], bool)[None, :, None]
    args = [tf.where(rest, tf.zeros_like(log_a), log_a), tf.where(rest, LOG_ZERO, log_b), tf.zeros_like(h)]
    got = values_and_gradients(with_last(optimized.direct_form), args)[:4]
    assert all(np.isfinite(v).all() for v in got)
    assert_equal(got, by_reference(with_last(log_linear_recurrence), args)[:4], "float64")


@often("operation", {"linear": linear_recurrence, "log": log_linear_recurrence}, ["log"])  # the linear one is a part
@pytest.mark.parametrize("jit_compile", [pytest.param(False, marks=pytest.mark.rare), True])
def test_it_is_the_same_inside_a_function_that_knows_neither_batch_nor_length(operation, jit_compile):
    shapes = [tf.TensorSpec([None, None, 5]), tf.TensorSpec([None, None, 5]), tf.TensorSpec([None, 5])]
    compiled = tf.function(
        lambda *args: values_and_gradients(with_last(TWINS[operation]), args),
        input_signature=shapes,
        jit_compile=jit_compile,
    )
    for batch, length in ((3, 7), (2, 1)):
        args = arguments(operation, batch, length)
        assert_equal(compiled(*args), by_reference(with_last(operation), args))


def test_variables_are_taken():
    args = arguments(linear_recurrence)
    variables = [tf.Variable(v) for v in args]
    np.testing.assert_array_equal(optimized.looped_or_composed(*variables), optimized.looped_or_composed(*args))


@each
def test_it_runs_for_everything_unless_the_reference_is_asked_for(operation):
    assert operation.twin(*arguments(operation)) is TWINS[operation]
    with twins_called(operation) as calls:
        operation(*arguments(operation))
        assert len(calls) == 1
        with keras_seq.ops.reference():
            operation(*arguments(operation))
    assert len(calls) == 1


@pytest.mark.parametrize("kind", [layers.MinGRU, layers.MinLSTM])
def test_layers_run_it(kind):
    with twins_called(log_linear_recurrence) as calls:
        kind(3, return_sequences=True)(np.ones((2, 4, 5), "float32"))
    assert len(calls) == 1
