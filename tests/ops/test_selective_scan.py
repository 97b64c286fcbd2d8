import numpy as np
import pytest
import tensorflow as tf

import keras_seq.ops
from keras_seq import layers
from keras_seq.ops import dispatch
from keras_seq.ops.selective_scan import selective_scan
from keras_seq.ops.selective_scan import tensorflow as optimized
from tests.ops.compare import assert_equal, by_reference, twins_called, values_and_gradients


def arguments(batch=3, length=7, width=5, memory=4, dtype="float32"):
    """x, delta, a, b, c and h, all of them random and none of them zero."""
    random = np.random.default_rng(length)
    shapes = [(batch, length, width)] * 2 + [(width, memory)] + [(batch, length, memory)] * 2 + [(batch, width, memory)]
    x, delta, a, b, c, h = (random.normal(scale=0.7, size=shape) for shape in shapes)
    return [tf.constant(v, dtype) for v in (x, np.exp(delta), -np.exp(a), b, c, h)]


@pytest.mark.parametrize(
    ("batch", "length", "width", "memory", "dtype"),
    [
        pytest.param(1, 1, 1, 1, "float64", marks=pytest.mark.rare),
        *((3, 1, 5, 2, "float32"), (5, 11, 3, 7, "float64"), (5, 11, 3, 7, "float32")),
    ],
)
def test_values_and_all_gradients_are_those_of_the_reference(batch, length, width, memory, dtype):
    args = arguments(batch, length, width, memory, dtype)
    assert_equal(values_and_gradients(optimized.looped, args), by_reference(selective_scan, args), dtype)


@pytest.mark.parametrize("shown", [0, 1])
def test_the_gradient_of_each_output_alone_is_right(shown):
    args = arguments(dtype="float64")
    got, expected = values_and_gradients(optimized.looped, args, {shown}), by_reference(selective_scan, args, {shown})
    assert_equal(got, expected, "float64")


def test_steps_of_no_length_change_nothing():
    x, delta, a, b, c, h = arguments(dtype="float64")
    delta *= np.array([0, 1, 0, 0, 1, 1, 0])[None, :, None]
    args = [x, delta, a, b, c, h]
    assert_equal(values_and_gradients(optimized.looped, args), by_reference(selective_scan, args), "float64")
    np.testing.assert_array_equal(optimized.looped(x, 0 * delta, a, b, c, h)[1], h)


@pytest.mark.parametrize("jit_compile", [pytest.param(False, marks=pytest.mark.rare), True])
def test_it_is_the_same_inside_a_function_that_knows_neither_batch_nor_length(jit_compile):
    position = [tf.TensorSpec([None, None, n]) for n in (5, 5, 4, 4)]
    shapes = [*position[:2], tf.TensorSpec([5, 4]), *position[2:], tf.TensorSpec([None, 5, 4])]
    compiled = tf.function(
        lambda *args: values_and_gradients(optimized.looped, args), input_signature=shapes, jit_compile=jit_compile
    )
    for batch, length in ((3, 7), (2, 1)):
        args = arguments(batch, length)
        assert_equal(compiled(*args), by_reference(selective_scan, args))


@pytest.mark.parametrize("cpu", [True, False])
def test_the_predicate_asks_for_a_machine_without_a_gpu(monkeypatch, cpu):
    monkeypatch.setattr(dispatch, "on_cpu", lambda: cpu)
    assert (selective_scan.twin(*arguments()) is optimized.looped) is cpu


def test_the_layer_runs_the_reference_where_it_is_asked_for_and_where_the_twin_cannot(monkeypatch):
    model, x = layers.SelectiveStateSpace(3), np.random.default_rng(0).normal(size=(2, 4, 5)).astype("float32")
    with twins_called(selective_scan) as calls:
        expected = model(x)
        assert len(calls) == 1
        with keras_seq.ops.reference():
            np.testing.assert_allclose(model(x), expected, atol=1e-6)
        monkeypatch.setattr(dispatch, "on_cpu", lambda: False)
        np.testing.assert_allclose(model(x), expected, atol=1e-6)
    assert len(calls) == 1
