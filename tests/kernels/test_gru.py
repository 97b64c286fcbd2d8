import numpy as np
import pytest
import tensorflow as tf

from keras_seq import kernels, layers
from keras_seq.kernels.tensorflow import batch_split, gru_xla, xla_loops
from keras_seq.kernels.tensorflow import gru as optimized
from keras_seq.layers import gru as reference

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
    with kernels.disabled():
        expected = values_and_gradients(reference.gru, args)
    assert_equal(values_and_gradients(optimized.apply, args), expected, dtype)


@pytest.fixture
def take(monkeypatch):
    """Makes the kernel take the loops, or unroll, with the rows in halves or not."""

    def choose(xla_loop, halved):
        monkeypatch.setattr(xla_loops, "xla_loop_is_faster", lambda *args: xla_loop)
        monkeypatch.setattr(batch_split, "MIN_BATCH_TO_SPLIT", 2 if halved else 100)
        monkeypatch.setattr(batch_split, "MIN_STATE_SIZE_TO_SPLIT", 2 if halved else 10**6)

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
    with kernels.disabled():
        expected = values_and_gradients(reference.gru, args)
    take(xla_loop=True, halved=halved)
    got = tf.function(lambda *args: values_and_gradients(optimized.apply, args))(*args)
    assert_equal(got, expected, dtype)


def test_unrolled_halves_are_the_same(take):
    args = arguments(5, 7, 3)
    with kernels.disabled():
        expected = values_and_gradients(reference.gru, args)
    take(xla_loop=False, halved=True)
    assert_equal(values_and_gradients(optimized.apply, args), expected, "float32")


def test_a_layer_takes_the_loops_also_where_it_would_not_be_unrolled(monkeypatch):
    taken, scan = [], gru_xla.scan_with_vjp
    monkeypatch.setattr(gru_xla, "scan_with_vjp", lambda x, *args: taken.append(x.shape[0]) or scan(x, *args))
    layer = layers.GRU(16, return_sequences=True)
    for length in (3, 256, 257):
        tf.function(layer)(np.zeros((1, length, 1), "float32"))
    assert taken == [256, 257]
    with tf.Graph().as_default():
        faster = [xla_loops.xla_loop_is_faster(tf.zeros((1, n, 48)), tf.zeros((1, 16))) for n in (255, 256)]
    assert faster == [False, True]


@pytest.mark.parametrize("weights", ["y", "h"])
def test_the_gradient_of_each_output_alone_is_right(weights):
    args = arguments(2, 3, 4, "float64")
    with kernels.disabled():
        expected = values_and_gradients(reference.gru, args, weights)
    assert_equal(values_and_gradients(optimized.apply, args, weights), expected, "float64")


def test_it_is_the_same_inside_a_function_that_does_not_know_the_batch():
    args = arguments(3, 5, 4)
    shapes = [tf.TensorSpec([None, *a.shape[1:]] if n < 2 else a.shape, a.dtype) for n, a in enumerate(args)]

    @tf.function(input_signature=shapes)
    def compiled(*args):
        with tf.GradientTape() as tape:
            tape.watch(args)
            y, h = optimized.apply(*args)
            loss = tf.reduce_sum(y * y) + tf.reduce_sum(h)
        return [y, h, *tape.gradient(loss, args)]

    with tf.GradientTape() as tape, kernels.disabled():
        tape.watch(args)
        y, h = reference.gru(*args)
        loss = tf.reduce_sum(y * y) + tf.reduce_sum(h)
    assert_equal(compiled(*args), [y, h, *tape.gradient(loss, args)], "float32")


def test_the_predicate_takes_known_short_lengths_reset_after_and_nothing_special():
    x, *rest = arguments(2, 3, 4)
    assert optimized.supports(x, *rest)
    h, kernel, _ = rest
    assert not optimized.supports(x, h, kernel, None)
    assert not optimized.supports(x, *rest, mask=tf.ones((2, 3), "bool"))
    assert not optimized.supports(x, *rest, recurrent_dropout_mask=tf.ones((2, 4)))
    taken = {
        length: optimized.supports(tf.zeros((1, length, 12)), *rest) for length in (0, 1, optimized.MAX_UNROLLED_STEPS)
    }
    assert taken == {0: False, 1: True, optimized.MAX_UNROLLED_STEPS: True}
    assert not optimized.supports(tf.zeros((1, optimized.MAX_UNROLLED_STEPS + 1, 12)), *rest)
    unknown = tf.function(lambda x: optimized.supports(x, *rest), input_signature=[tf.TensorSpec([2, None, 12])])
    assert not unknown(x)


def test_the_layer_runs_it_unless_it_is_disabled(monkeypatch):
    def run(*args):
        raise AssertionError("the kernel ran")

    monkeypatch.setattr(optimized, "apply", run)
    layer, x = layers.GRU(3, return_sequences=True), np.ones((2, 4, 5), "float32")
    layer.build(x.shape)
    with kernels.disabled():
        layer(x)
    with pytest.raises(AssertionError, match="the kernel ran"):
        layer(x)
    assert layers.GRU(3, reset_after=False, return_sequences=True)(x).shape == (2, 4, 3)
