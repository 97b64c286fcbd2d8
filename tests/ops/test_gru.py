import numpy as np
import pytest
import tensorflow as tf

import keras_seq.ops
from keras_seq import layers
from keras_seq.ops import xla
from keras_seq.ops.gru import gru
from keras_seq.ops.gru import tensorflow as optimized
from tests.ops.twins import twins_called

TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 2e-2}


def arguments(batch, length, units, dtype="float32"):
    """x, h, recurrent kernel and recurrent bias, all of them random and none of them zero."""
    random = np.random.default_rng(length)
    wide = "float64" if dtype == "float64" else "float32"
    shapes = [(batch, length, 3 * units), (batch, units), (units, 3 * units), (3 * units,)]
    return [
        tf.constant(random.normal(scale=0.7, size=shape), kind)
        for shape, kind in zip(shapes, (dtype, wide, dtype, dtype), strict=True)
    ]


def values_and_gradients(function, args, weights="yh"):
    """y, h and the gradients of a random weighted sum of those that `weights` names."""
    with tf.GradientTape() as tape:
        tape.watch(args)
        outputs = function(*args)
        random = np.random.default_rng(9)
        loss = 0.0
        for name, output in zip("yh", outputs, strict=True):
            weight = tf.constant(random.normal(size=output.shape), "float64")
            if name in weights:
                loss += tf.reduce_sum(tf.cast(output, "float64") * weight)
    return [*outputs, *tape.gradient(loss, args, unconnected_gradients="zero")]


def assert_equal(got, expected, dtype):
    for name, ours, theirs in zip(["y", "h", "dx", "dh", "dU", "dc"], got, expected, strict=True):
        assert ours.dtype == theirs.dtype, name
        ours, theirs = (np.asarray(tf.cast(x, "float64")) for x in (ours, theirs))
        scale = max(np.abs(theirs).max(), 1e-6)
        np.testing.assert_allclose(ours / scale, theirs / scale, atol=TOLERANCE[dtype], rtol=0, err_msg=name)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("batch", "length", "units"), [(1, 1, 1), (3, 1, 5), (1, 7, 3), (5, 11, 4)])
def test_values_and_all_gradients_are_those_of_the_reference(batch, length, units, dtype):
    args = arguments(batch, length, units, dtype)
    with keras_seq.ops.reference():
        expected = values_and_gradients(gru, args)
    assert_equal(values_and_gradients(optimized.fast_gru, args), expected, dtype)


@pytest.fixture
def take(monkeypatch):
    """Makes the kernel take the loops, or unroll, with the rows in halves or not."""

    def choose(xla_loop, halved):
        monkeypatch.setattr(optimized, "xla_loop_is_faster", lambda *args: xla_loop)
        monkeypatch.setattr(xla, "MIN_BATCH_TO_SPLIT", 2 if halved else 100)
        monkeypatch.setattr(xla, "MIN_STATE_SIZE_TO_SPLIT", 2 if halved else 10**6)

    return choose


@pytest.mark.parametrize(
    ("batch", "length", "units", "halved", "dtype"),
    [
        pytest.param(1, 1, 1, False, "float32", marks=pytest.mark.rare),
        pytest.param(1, 1, 1, False, "bfloat16", marks=pytest.mark.rare),
        (5, 11, 4, False, "bfloat16"),
        pytest.param(5, 11, 4, False, "float32", marks=pytest.mark.rare),
        (5, 11, 4, True, "float32"),
        pytest.param(5, 11, 4, True, "bfloat16", marks=pytest.mark.rare),
    ],
)
def test_the_loops_have_the_values_and_gradients_of_the_reference(take, batch, length, units, halved, dtype):
    args = arguments(batch, length, units, dtype)
    with keras_seq.ops.reference():
        expected = values_and_gradients(gru, args)
    take(xla_loop=True, halved=halved)
    got = tf.function(lambda *args: values_and_gradients(optimized.fast_gru, args))(*args)
    assert_equal(got, expected, dtype)


def test_unrolled_halves_are_the_same(take):
    args = arguments(5, 7, 3)
    with keras_seq.ops.reference():
        expected = values_and_gradients(gru, args)
    take(xla_loop=False, halved=True)
    assert_equal(values_and_gradients(optimized.fast_gru, args), expected, "float32")


def test_a_layer_takes_the_loops_also_where_it_would_not_be_unrolled(monkeypatch):
    taken, scan = [], optimized._xla_loops
    monkeypatch.setattr(optimized, "_xla_loops", lambda x, *args: taken.append(x.shape[0]) or scan(x, *args))
    layer = layers.GRU(16, return_sequences=True)
    for length in (3, 256, 257):
        tf.function(layer)(np.zeros((1, length, 1), "float32"))
    assert taken == [256, 257]
    with tf.Graph().as_default():
        faster = [xla.xla_loop_is_faster(tf.zeros((1, n, 48)), tf.zeros((1, 16))) for n in (255, 256)]
    assert faster == [False, True]


@pytest.mark.parametrize("weights", ["y", "h"])
def test_the_gradient_of_each_output_alone_is_right(weights):
    args = arguments(2, 3, 4, "float64")
    with keras_seq.ops.reference():
        expected = values_and_gradients(gru, args, weights)
    assert_equal(values_and_gradients(optimized.fast_gru, args, weights), expected, "float64")


def test_it_is_the_same_inside_a_function_that_does_not_know_the_batch():
    args = arguments(3, 5, 4)
    shapes = [tf.TensorSpec([None, *a.shape[1:]] if n < 2 else a.shape, a.dtype) for n, a in enumerate(args)]

    @tf.function(input_signature=shapes)
    def compiled(*args):
        with tf.GradientTape() as tape:
            tape.watch(args)
            y, h = optimized.fast_gru(*args)
            loss = tf.reduce_sum(y * y) + tf.reduce_sum(h)
        return [y, h, *tape.gradient(loss, args)]

    with tf.GradientTape() as tape, keras_seq.ops.reference():
        tape.watch(args)
        y, h = gru(*args)
        loss = tf.reduce_sum(y * y) + tf.reduce_sum(h)
    assert_equal(compiled(*args), [y, h, *tape.gradient(loss, args)], "float32")


def test_the_predicate_takes_known_short_lengths_reset_after_and_nothing_special():
    x, *rest = arguments(2, 3, 4)
    assert optimized.is_plain(x, *rest)
    h, kernel, _ = rest
    assert not optimized.is_plain(x, h, kernel, None)
    assert not optimized.is_plain(x, *rest, mask=tf.ones((2, 3), "bool"))
    assert not optimized.is_plain(x, *rest, recurrent_dropout_mask=tf.ones((2, 4)))
    taken = {
        length: optimized.is_plain(tf.zeros((1, length, 12)), *rest) for length in (0, 1, optimized.MAX_UNROLLED_STEPS)
    }
    assert taken == {0: False, 1: True, optimized.MAX_UNROLLED_STEPS: True}
    assert not optimized.is_plain(tf.zeros((1, optimized.MAX_UNROLLED_STEPS + 1, 12)), *rest)
    unknown = tf.function(lambda x: optimized.is_plain(x, *rest), input_signature=[tf.TensorSpec([2, None, 12])])
    assert not unknown(x)


def test_the_layer_runs_it_unless_the_reference_is_asked_for():
    layer, x = layers.GRU(3, return_sequences=True), np.ones((2, 4, 5), "float32")
    with twins_called(gru) as calls:
        with keras_seq.ops.reference():
            layer(x)
        assert not calls
        layer(x)
    assert len(calls) == 1
