import functools

import numpy as np
import pytest
import tensorflow as tf

import keras_seq.ops
from keras_seq import layers
from keras_seq.ops import xla
from keras_seq.ops.lstm import lstm
from keras_seq.ops.lstm import tensorflow as optimized
from tests.ops.twins import twins_called

TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 2e-2}


def arguments(batch, length, units, dtype="float32"):
    """z, recurrent kernel, h and c, all of them random and none of them zero."""
    random = np.random.default_rng(length)
    wide = "float64" if dtype == "float64" else "float32"
    shapes = [(batch, length, 4 * units), (units, 4 * units), (batch, units), (batch, units)]
    return [
        tf.constant(random.normal(scale=0.7, size=shape), kind)
        for shape, kind in zip(shapes, (dtype, dtype, dtype, wide), strict=True)
    ]


def values_and_gradients(function, args, weights):
    """y, h, c and the gradients of a random weighted sum of those that `weights` names."""
    with tf.GradientTape() as tape:
        tape.watch(args)
        outputs = function(*args)
        random = np.random.default_rng(9)
        loss = 0.0
        for name, output in zip("yhc", outputs, strict=True):
            weight = tf.constant(random.normal(size=output.shape), "float64")
            if name in weights:
                loss += tf.reduce_sum(tf.cast(output, "float64") * weight)
    return [*outputs, *tape.gradient(loss, args, unconnected_gradients="zero")]


def values_and_gradients_of_squares(function, args):
    with tf.GradientTape() as tape:
        tape.watch(args)
        y, h, c = function(*args)
        loss = tf.reduce_sum(y * y) + tf.reduce_sum(h) + tf.reduce_sum(c * c)
    return [y, h, c, *tape.gradient(loss, args)]


def assert_equal(got, expected, dtype):
    for name, ours, theirs in zip(["y", "h", "c", "dz", "dU", "dh", "dc"], got, expected, strict=True):
        assert ours.dtype == theirs.dtype, name
        ours, theirs = (np.asarray(tf.cast(x, "float64")) for x in (ours, theirs))
        scale = max(np.abs(theirs).max(), 1e-6)
        np.testing.assert_allclose(ours / scale, theirs / scale, atol=TOLERANCE[dtype], rtol=0, err_msg=name)


@pytest.fixture
def take(monkeypatch):
    """Makes the kernel take a way, its rows in halves or not."""

    def choose(xla_loop, halved):
        monkeypatch.setattr(optimized, "xla_loop_is_faster", lambda *args: xla_loop)
        monkeypatch.setattr(xla, "MIN_BATCH_TO_SPLIT", 2 if halved else 100)
        monkeypatch.setattr(xla, "MIN_STATE_SIZE_TO_SPLIT", 2 if halved else 10**6)

    return choose


@pytest.mark.parametrize(
    ("batch", "length", "units", "halved", "dtype", "dropped"),  # each pair of values at least once
    [
        (1, 1, 1, False, "float32", False),
        pytest.param(1, 1, 1, False, "bfloat16", True, marks=pytest.mark.rare),
        (5, 11, 4, False, "float32", True),
        pytest.param(5, 11, 4, False, "bfloat16", False, marks=pytest.mark.rare),
        pytest.param(5, 11, 4, True, "float32", False, marks=pytest.mark.rare),
        (5, 11, 4, True, "bfloat16", True),
    ],
)
def test_the_loops_have_the_values_and_gradients_of_the_reference(take, batch, length, units, halved, dtype, dropped):
    args = arguments(batch, length, units, dtype)
    random = np.random.default_rng(3)
    recurrent_dropout_mask = tf.constant((random.random((batch, units)) < 0.7) / 0.7, dtype) if dropped else None
    with keras_seq.ops.reference():
        expected = values_and_gradients(
            functools.partial(lstm, recurrent_dropout_mask=recurrent_dropout_mask), args, "yhc"
        )
    take(True, halved)
    run = functools.partial(optimized.fast_lstm, recurrent_dropout_mask=recurrent_dropout_mask)
    got = tf.function(lambda *args: values_and_gradients(run, args, "yhc"))(*args)
    assert_equal(got, expected, dtype)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_loops_are_the_same_where_the_batch_is_not_known(take, jit_compile):
    take(True, halved=False)
    args = arguments(3, 5, 4)
    shapes = [tf.TensorSpec([None, *a.shape[1:]] if n != 1 else a.shape, a.dtype) for n, a in enumerate(args)]
    compiled = tf.function(
        lambda *args: values_and_gradients_of_squares(optimized.fast_lstm, args),
        input_signature=shapes,
        jit_compile=jit_compile,
    )
    with keras_seq.ops.reference():
        expected = values_and_gradients_of_squares(lstm, args)
    assert_equal(compiled(*args), expected, "float32")


@pytest.mark.parametrize("dropped", [False, True])
def test_unrolled_halves_are_the_same(take, dropped):
    take(False, halved=True)
    args = arguments(5, 7, 3)
    recurrent_dropout_mask = tf.constant([[2.0], [0.0], [1.0], [3.0], [0.5]]) * tf.ones((5, 3)) if dropped else None
    with keras_seq.ops.reference():
        expected = values_and_gradients(
            functools.partial(lstm, recurrent_dropout_mask=recurrent_dropout_mask), args, "yhc"
        )
    assert_equal(
        values_and_gradients(
            functools.partial(optimized.fast_lstm, recurrent_dropout_mask=recurrent_dropout_mask), args, "yhc"
        ),
        expected,
        "float32",
    )


def test_large_batches_are_halved():
    def halved(number, units, xla_loop):
        return len(xla.batch_halves(tf.TensorSpec((number, units)), xla_loop)) == 2

    assert halved(8, 4, xla_loop=True)
    assert not halved(7, 4, xla_loop=True)
    assert not halved(None, 4, xla_loop=True)
    assert halved(16, 1024, xla_loop=False)
    assert not halved(15, 1024, xla_loop=False)
    assert not halved(None, 4, xla_loop=False)
    assert xla.batch_halves(tf.TensorSpec((9, 4)), True) == [slice(0, 4), slice(4, 9)]


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("batch", "length", "units"), [(1, 1, 1), (3, 1, 5), (1, 7, 3), (5, 11, 4)])
def test_values_and_all_gradients_are_those_of_the_reference(batch, length, units, dtype, dropped):
    args = arguments(batch, length, units, dtype)
    random = np.random.default_rng(3)
    recurrent_dropout_mask = tf.constant((random.random((batch, units)) < 0.7) / 0.7, dtype) if dropped else None
    with keras_seq.ops.reference():
        expected = values_and_gradients(
            functools.partial(lstm, recurrent_dropout_mask=recurrent_dropout_mask), args, "yhc"
        )
    assert_equal(
        values_and_gradients(
            functools.partial(optimized.fast_lstm, recurrent_dropout_mask=recurrent_dropout_mask), args, "yhc"
        ),
        expected,
        dtype,
    )


@pytest.mark.parametrize("weights", ["y", "h", "c"])
def test_the_gradient_of_each_output_alone_is_right(weights):
    args = arguments(2, 3, 4, "float64")
    with keras_seq.ops.reference():
        expected = values_and_gradients(lstm, args, weights)
    assert_equal(values_and_gradients(optimized.fast_lstm, args, weights), expected, "float64")


def test_it_is_the_same_inside_a_function_that_does_not_know_the_batch():
    args = arguments(3, 5, 4)
    shapes = [tf.TensorSpec([None, *a.shape[1:]] if n != 1 else a.shape, a.dtype) for n, a in enumerate(args)]

    @tf.function(input_signature=shapes)
    def compiled(*args):
        return values_and_gradients_of_squares(optimized.fast_lstm, args)

    with keras_seq.ops.reference():
        expected = values_and_gradients_of_squares(lstm, args)
    assert_equal(compiled(*args), expected, "float32")


def test_the_predicate_takes_known_short_lengths_without_a_mask():
    z, *rest = arguments(2, 3, 4)
    assert optimized.is_plain(z, *rest, None)
    assert optimized.is_plain(z, *rest, None, tf.ones((2, 4)))
    assert not optimized.is_plain(z, *rest, tf.ones((2, 3), "bool"))
    taken = {
        length: optimized.is_plain(tf.zeros((1, length, 8)), *rest, None)
        for length in (0, 1, optimized.MAX_UNROLLED_STEPS)
    }
    assert taken == {0: False, 1: True, optimized.MAX_UNROLLED_STEPS: True}
    assert not optimized.is_plain(tf.zeros((1, optimized.MAX_UNROLLED_STEPS + 1, 8)), *rest, None)
    unknown = tf.function(lambda z: optimized.is_plain(z, *rest, None), input_signature=[tf.TensorSpec([2, None, 16])])
    assert not unknown(z)


def test_masked_and_long_inputs_run_the_reference():
    layer = layers.LSTM(3, return_sequences=True)
    long = np.ones((1, optimized.MAX_UNROLLED_STEPS + 1, 5), "float32")
    with twins_called(lstm) as calls:
        assert layer(np.ones((2, 4, 5), "float32"), mask=np.ones((2, 4), bool)).shape == (2, 4, 3)
        assert layer(long).shape == (*long.shape[:2], 3)
        assert not calls
        layer(long[:, :4])
    assert calls
