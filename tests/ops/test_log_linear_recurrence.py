import numpy as np
import pytest
import tensorflow as tf

import keras_seq.ops
from keras_seq import layers
from keras_seq.ops.linear_recurrence import LOG_ZERO, log_linear_recurrence
from keras_seq.ops.linear_recurrence import tensorflow as optimized
from tests.ops.twins import twins_called

reference = log_linear_recurrence.__wrapped__
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}


@pytest.fixture(autouse=True, params=["cpu", "gpu"])
def _way(request, monkeypatch):
    """The kernel goes another way on a machine with a GPU; that way can be gone without one."""
    monkeypatch.setattr(optimized, "on_cpu", lambda: request.param == "cpu")


def arguments(batch=3, length=7, width=5, dtype="float32"):
    """The logarithms of a in (0, 1) and of b, and a positive h."""
    random = np.random.default_rng(length)
    log_a, log_b = np.log(random.uniform(0.01, 1, (2, batch, length, width)))
    return [tf.constant(v, dtype) for v in (log_a, log_b, random.uniform(0.1, 2, (batch, width)))]


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
@pytest.mark.parametrize(("batch", "length", "width"), [(1, 1, 1), (3, 1, 5), (5, 11, 3), (1, 6, 7)])
def test_values_and_all_gradients_are_those_of_the_reference(batch, length, width, dtype):
    args = arguments(batch, length, width, dtype)
    got, expected = (values_and_gradients(f, args) for f in (optimized.direct_form, reference))
    assert_equal(got, expected, dtype)


@pytest.mark.parametrize("shown", ["last", "both"])
def test_gradients_come_through_the_last_position_too(shown):
    args = arguments(dtype="float64")
    got, expected = (values_and_gradients(f, args, shown) for f in (optimized.direct_form, reference))
    assert_equal(got, expected, "float64")


def test_masked_positions_and_a_state_of_zero_are_those_of_the_reference():
    log_a, log_b, h = arguments(dtype="float64")
    rest = np.array([1, 0, 1, 1, 0, 0, 1], bool)[None, :, None]
    args = [tf.where(rest, tf.zeros_like(log_a), log_a), tf.where(rest, LOG_ZERO, log_b), tf.zeros_like(h)]
    got, expected = (values_and_gradients(f, args)[:3] for f in (optimized.direct_form, reference))
    for ours, theirs in zip(got, expected, strict=True):
        assert np.isfinite(ours).all()
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.rare)])
def test_it_is_the_same_inside_a_function_that_knows_neither_batch_nor_length(jit_compile):
    shapes = [tf.TensorSpec([None, None, 5]), tf.TensorSpec([None, None, 5]), tf.TensorSpec([None, 5])]
    compiled = tf.function(
        lambda *args: values_and_gradients(optimized.direct_form, args, "both"),
        input_signature=shapes,
        jit_compile=jit_compile,
    )
    for batch, length in ((3, 7), (2, 1)):
        args = arguments(batch, length)
        assert_equal(compiled(*args), values_and_gradients(reference, args, "both"))


def test_the_predicate_takes_everything():
    assert log_linear_recurrence.twin(*arguments()) is optimized.direct_form


@pytest.mark.parametrize("kind", [layers.MinGRU, layers.MinLSTM])
def test_layers_run_the_reference_where_it_is_asked_for(kind):
    model, x = kind(3, return_sequences=True), np.ones((2, 4, 5), "float32")
    with twins_called(log_linear_recurrence) as calls:
        expected = model(x)
        assert len(calls) == 1
        with keras_seq.ops.reference():
            np.testing.assert_allclose(model(x), expected, atol=1e-6)
    assert len(calls) == 1
