import numpy as np
import pytest
import tensorflow as tf

import keras_seq.ops
from keras_seq.ops.linear_recurrence import linear_recurrence
from keras_seq.ops.linear_recurrence import tensorflow as optimized
from tests.ops.twins import twins_called

reference = linear_recurrence.__wrapped__
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}


@pytest.fixture(autouse=True, params=["cpu", "gpu"])
def _way(request, monkeypatch):
    """The kernel goes another way on a machine with a GPU; that way can be gone without one."""
    monkeypatch.setattr(optimized, "on_cpu", lambda: request.param == "cpu")


def arguments(batch=3, length=7, trailing=(5,), dtype="float32"):
    """a, b and h, all of them random and of either sign."""
    random = np.random.default_rng(length)
    shapes = [(batch, length, *trailing), (batch, length, *trailing), (batch, *trailing)]
    return [tf.constant(random.normal(scale=0.7, size=shape), dtype) for shape in shapes]


def values_and_gradients(function, args, shown="all"):
    """h and the gradients of a sum of what is shown of it: all, the last position, or all and the last again."""
    with tf.GradientTape() as tape:
        tape.watch(args)
        y = function(*args)
        loss = tf.reduce_sum(y[:, -1] ** 2) if shown in ("last", "both") else 0.0
        loss += tf.reduce_sum(tf.sin(y)) if shown in ("all", "both") else 0.0
    return [y, *tape.gradient(loss, args)]


def assert_equal(got, expected, dtype="float32"):
    for name, ours, theirs in zip(["y", "da", "db", "dh"], got, expected, strict=True):
        assert ours.dtype == theirs.dtype, name
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        scale = max(np.abs(theirs).max(), 1e-6)
        np.testing.assert_allclose(ours / scale, theirs / scale, atol=TOLERANCE[dtype], rtol=0, err_msg=name)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("batch", "length", "trailing"), [(1, 1, (1,)), (3, 1, (5,)), (5, 11, (3,)), (2, 7, (3, 2)), (3, 5, ())]
)
def test_values_and_all_gradients_are_those_of_the_reference(batch, length, trailing, dtype):
    args = arguments(batch, length, trailing, dtype)
    got, expected = (values_and_gradients(f, args) for f in (optimized.looped_or_composed, reference))
    assert_equal(got, expected, dtype)


@pytest.mark.parametrize("shown", ["last", "both"])
def test_gradients_come_through_the_last_position_too(shown):
    args = arguments(dtype="float64")
    got, expected = (values_and_gradients(f, args, shown) for f in (optimized.looped_or_composed, reference))
    assert_equal(got, expected, "float64")


@pytest.mark.parametrize("jit_compile", [pytest.param(False, marks=pytest.mark.rare), True])
def test_it_is_the_same_inside_a_function_that_knows_neither_batch_nor_length(jit_compile):
    shapes = [tf.TensorSpec([None, None, 5]), tf.TensorSpec([None, None, 5]), tf.TensorSpec([None, 5])]
    compiled = tf.function(
        lambda *args: values_and_gradients(optimized.looped_or_composed, args, "both"),
        input_signature=shapes,
        jit_compile=jit_compile,
    )
    for batch, length in ((3, 7), (2, 1)):
        args = arguments(batch, length)
        assert_equal(compiled(*args), values_and_gradients(reference, args, "both"))


def test_variables_are_taken():
    args = arguments()
    variables = [tf.Variable(v) for v in args]
    np.testing.assert_array_equal(optimized.looped_or_composed(*variables), optimized.looped_or_composed(*args))


def test_the_predicate_takes_everything():
    assert linear_recurrence.twin(*arguments()) is optimized.looped_or_composed


def test_the_reference_runs_where_it_is_asked_for():
    with twins_called(linear_recurrence) as calls:
        linear_recurrence(*arguments())
        assert len(calls) == 1
        with keras_seq.ops.reference():
            linear_recurrence(*arguments())
    assert len(calls) == 1


def test_the_gradient_can_be_differentiated_once_more():
    random = np.random.default_rng(3)
    a, b, h = (tf.constant(random.uniform(0.1, 0.9, size=s)) for s in ((2, 5, 3), (2, 5, 3), (2, 3)))

    def second(function):
        with tf.GradientTape() as outer:
            outer.watch([a, b, h])
            with tf.GradientTape() as inner:
                inner.watch([a, b, h])
                loss = tf.reduce_sum(function(a, b, h) ** 3)
            penalty = sum(tf.reduce_sum(g**2) for g in inner.gradient(loss, [a, b, h]))
        return outer.gradient(penalty, [a, b, h])

    with keras_seq.ops.reference():
        expected = second(reference)
    for ours, theirs in zip(second(optimized.looped_or_composed), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
