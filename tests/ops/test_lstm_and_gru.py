import functools

import numpy as np
import pytest
import tensorflow as tf

import keras_seq.ops
import keras_seq.ops.gru.tensorflow
import keras_seq.ops.lstm.tensorflow
from keras_seq import layers
from keras_seq.ops import gru, lstm, xla
from tests.ops.compare import TOLERANCE, assert_equal, by_reference, twins_called, values_and_gradients

# by operation: the reference, the twin and its module
LSTM = lstm.lstm, lstm.tensorflow.fast_lstm, lstm.tensorflow
GRU = gru.gru, gru.tensorflow.fast_gru, gru.tensorflow
each = pytest.mark.parametrize("operation", [LSTM, GRU], ids=["lstm", "gru"])
rare = pytest.mark.rare


def arguments(operation, batch, length, units, dtype="float32"):
    """z, recurrent kernel, h and c, or x, h, recurrent kernel and recurrent bias: random, and none of them zero."""
    random, wide = np.random.default_rng(length), "float64" if dtype == "float64" else "float32"
    if operation is LSTM:
        shapes = {"z": (batch, length, 4 * units), "U": (units, 4 * units), "h": (batch, units), "c": (batch, units)}
    else:
        shapes = {"x": (batch, length, 3 * units), "h": (batch, units), "U": (units, 3 * units), "b": (3 * units,)}
    state = "c" if operation is LSTM else "h"
    return [
        tf.constant(random.normal(scale=0.7, size=shape), wide if name == state else dtype)
        for name, shape in shapes.items()
    ]


def both(operation, dropped, batch, units, dtype="float32"):
    """The reference and the twin, with a recurrent dropout mask, which that of a GRU does not take."""
    if not dropped:
        return operation[:2]
    mask = tf.constant((np.random.default_rng(3).random((batch, units)) < 0.7) / 0.7, dtype)
    return [functools.partial(function, dropout_mask=mask) for function in operation[:2]]


@pytest.fixture
def take(monkeypatch):
    """Makes the kernels take the loops, or unroll, with the rows in halves or not."""

    def choose(xla_loop, halved):
        for module in (LSTM[2], GRU[2]):
            monkeypatch.setattr(module, "xla_loop_is_faster", lambda *args: xla_loop)
        monkeypatch.setattr(xla, "MIN_BATCH_TO_SPLIT", 2 if halved else 100)
        monkeypatch.setattr(xla, "MIN_STATE_SIZE_TO_SPLIT", 2 if halved else 10**6)

    return choose


@pytest.mark.parametrize(
    ("operation", "batch", "length", "units", "halved", "dtype", "dropped"),  # each pair of values at least once
    [
        pytest.param(LSTM, 1, 1, 1, False, "float32", False, marks=rare),
        pytest.param(LSTM, 1, 1, 1, False, "bfloat16", True, marks=rare),
        pytest.param(LSTM, 5, 11, 4, False, "float32", True, marks=rare),
        pytest.param(LSTM, 5, 11, 4, False, "bfloat16", False, marks=rare),
        pytest.param(LSTM, 5, 11, 4, True, "float32", False, marks=rare),
        (LSTM, 5, 11, 4, True, "bfloat16", True),
        pytest.param(GRU, 1, 1, 1, False, "float32", False, marks=rare),
        pytest.param(GRU, 5, 11, 4, False, "bfloat16", False, marks=rare),
        pytest.param(GRU, 5, 11, 4, True, "bfloat16", False, marks=rare),
        (GRU, 5, 11, 4, True, "float32", False),
    ],
)
def test_the_loops_have_the_values_and_gradients_of_the_reference(
    take, operation, batch, length, units, halved, dtype, dropped
):
    args = arguments(operation, batch, length, units, dtype)
    reference, twin = both(operation, dropped, batch, units, dtype)
    take(True, halved)
    got = tf.function(lambda *args: values_and_gradients(twin, args))(*args)
    assert_equal(got, by_reference(reference, args), dtype)


@pytest.mark.parametrize(
    ("operation", "xla_loop", "jit_compile"),
    [(LSTM, True, False), (LSTM, True, True), pytest.param(LSTM, False, False, marks=rare), (GRU, False, False)],
)
def test_it_is_the_same_inside_a_function_that_does_not_know_the_batch(take, operation, xla_loop, jit_compile):
    take(xla_loop, halved=False)
    args = arguments(operation, 3, 5, 4)
    shapes = [tf.TensorSpec([None, *a.shape[1:]] if a.shape[0] == 3 else a.shape, a.dtype) for a in args]
    compiled = tf.function(
        lambda *args: values_and_gradients(operation[1], args), input_signature=shapes, jit_compile=jit_compile
    )
    assert_equal(compiled(*args), by_reference(operation[0], args))


@pytest.mark.parametrize(("operation", "dropped"), [(LSTM, False), (LSTM, True), (GRU, False)])
def test_unrolled_halves_are_the_same(take, operation, dropped):
    take(False, halved=True)
    args = arguments(operation, 5, 7, 3)
    reference, twin = both(operation, dropped, 5, 3)
    assert_equal(values_and_gradients(twin, args), by_reference(reference, args))


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


SIZES = [(1, 1, 1), (3, 1, 5), (1, 7, 3), (5, 11, 4)]
CASES = [  # each size with each operation and with each dtype, and these two with each other
    (*operation, *sizes, list(TOLERANCE)[(n + m) % 3])
    for n, sizes in enumerate(SIZES)
    for m, operation in enumerate([(LSTM, False), (LSTM, True), (GRU, False)])
]


@pytest.mark.parametrize(("operation", "dropped", "batch", "length", "units", "dtype"), CASES)
def test_values_and_all_gradients_are_those_of_the_reference(operation, dropped, batch, length, units, dtype):
    args = arguments(operation, batch, length, units, dtype)
    reference, twin = both(operation, dropped, batch, units, dtype)
    assert_equal(values_and_gradients(twin, args), by_reference(reference, args), dtype)


@pytest.mark.parametrize(("operation", "shown"), [(LSTM, 0), (LSTM, 1), (LSTM, 2), (GRU, 0), (GRU, 1)])
def test_the_gradient_of_each_output_alone_is_right(operation, shown):
    args = arguments(operation, 2, 3, 4, "float64")
    got, expected = values_and_gradients(operation[1], args, {shown}), by_reference(operation[0], args, {shown})
    assert_equal(got, expected, "float64")


def test_a_layer_takes_the_loops_also_where_it_would_not_be_unrolled(monkeypatch):
    taken, scan = [], GRU[2]._xla_loops
    monkeypatch.setattr(GRU[2], "_xla_loops", lambda x, *args: taken.append(x.shape[0]) or scan(x, *args))
    layer = layers.GRU(16, return_sequences=True)
    for length in (3, 256, 257):
        tf.function(layer)(np.zeros((1, length, 1), "float32"))
    assert taken == [256, 257]
    with tf.Graph().as_default():
        faster = [xla.xla_loop_is_faster(tf.zeros((1, n, 48)), tf.zeros((1, 16))) for n in (255, 256)]
    assert faster == [False, True]


@each
def test_the_predicate_takes_known_short_lengths_without_a_mask(operation):
    module, (z, *rest) = operation[2], arguments(operation, 2, 3, 4)
    width = z.shape[-1]
    assert module.is_plain(z, *rest)
    assert module.is_plain(z, *rest, dropout_mask=tf.ones((2, 4))) == (operation is LSTM)
    assert not module.is_plain(z, *rest, mask=tf.ones((2, 3), "bool"))
    if operation is GRU:
        assert not module.is_plain(z, *rest[:2], None)
    lengths = {0: False, 1: True, module.MAX_UNROLLED_STEPS: True, module.MAX_UNROLLED_STEPS + 1: False}
    assert {length: module.is_plain(tf.zeros((1, length, width)), *rest) for length in lengths} == lengths
    unknown = tf.function(lambda z: module.is_plain(z, *rest), input_signature=[tf.TensorSpec([2, None, width])])
    assert not unknown(z)


@pytest.mark.parametrize(("operation", "kind"), [(LSTM, layers.LSTM), (GRU, layers.GRU)])
def test_masked_and_long_inputs_run_the_reference(operation, kind):
    layer = kind(3, return_sequences=True)
    long = np.ones((1, operation[2].MAX_UNROLLED_STEPS + 1, 5), "float32")
    with twins_called(operation[0]) as calls:
        assert layer(np.ones((2, 4, 5), "float32"), mask=np.ones((2, 4), bool)).shape == (2, 4, 3)
        assert layer(long).shape == (*long.shape[:2], 3)
        with keras_seq.ops.reference():
            layer(long[:, :4])
        assert not calls
        layer(long[:, :4])
    assert len(calls) == 1
