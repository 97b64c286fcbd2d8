import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_seq.ops
from keras_seq import layers
from keras_seq.ops import xla
from keras_seq.ops.position_wise import tensorflow as optimized
from keras_seq.training import guard, optimizers
from tests.conftest import often


def gelu(x):
    return keras.activations.gelu(x, approximate=True)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_a_pointwise_function_has_its_values_and_gradient(dtype):
    x = tf.cast(np.random.default_rng(0).normal(size=(3, 5, 7)), dtype)
    dy = tf.cast(np.random.default_rng(1).normal(size=x.shape), dtype)

    def both(function, x, dy):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return y, tape.gradient(y, x, output_gradients=dy)

    got = tf.function(lambda x, dy: both(lambda x: optimized.fused_activation(gelu, x), x, dy))(x, dy)
    expected = both(gelu, tf.cast(x, tf.float64), tf.cast(dy, tf.float64))
    tolerance = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 1e-2, "float16": 2e-3}[dtype]
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype == dtype
        np.testing.assert_allclose(tf.cast(ours, tf.float64), theirs, rtol=tolerance, atol=tolerance)


def test_large_tensors_of_known_size_are_compiled_inside_a_function(monkeypatch):
    monkeypatch.setattr(xla, "MIN_FUSED_ELEMENTS", 6)
    taken = {}

    @tf.function
    def inside(x):
        taken[tuple(x.shape)] = optimized.is_large_input(gelu, x)

    for shape in [(2, 3), (2, 2)]:
        inside(tf.zeros(shape))
    inside.get_concrete_function(tf.TensorSpec([None, 3]))
    assert taken == {(2, 3): True, (2, 2): False, (None, 3): False}
    with tf.Graph().as_default():
        assert not optimized.is_large_input(keras.layers.PReLU(), tf.zeros((2, 3)))  # its weights would get no gradient
    assert not optimized.is_large_input(gelu, tf.zeros((2, 3)))  # eager: it would be compiled at every call


@often("name", [*optimizers.OPTIMIZERS], ("adamw", "muon"))
def test_an_optimizer_takes_the_same_steps_in_one_program(name, monkeypatch):
    """Three steps, with the update compiled and without."""
    monkeypatch.setattr(guard, "MIN_FUSED_PARAMS", 1)

    def steps(fused):
        random = np.random.default_rng(0)
        weights = [keras.Variable(random.normal(size=shape), dtype="float32") for shape in ((4, 6), (6,))]
        optimizer = optimizers.OPTIMIZERS[name](0.01)
        optimizer.build(weights)

        @tf.function
        def step(*gradients):
            optimizer.apply(list(gradients), weights)

        for _ in range(3):
            gradients = [tf.constant(random.normal(size=w.shape), "float32") for w in weights]
            if fused:
                step(*gradients)
            else:
                with keras_seq.ops.reference():
                    step(*gradients)
        return [w.numpy() for w in weights], float(optimizer.gradient_norm)

    (ours, norm), (theirs, expected_norm) = steps(True), steps(False)
    assert norm == pytest.approx(expected_norm, rel=1e-6)
    for got, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("norm_first", [True, pytest.param(False, marks=pytest.mark.rare)])
def test_a_block_trains_alike_with_its_parts_compiled(monkeypatch, norm_first):
    monkeypatch.setattr(xla, "MIN_FUSED_ELEMENTS", 1)
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    block = layers.TransformerBlock(num_heads=2, feed_forward_dim=12, norm_first=norm_first)
    block.build(x.shape)

    @tf.function
    def gradients(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.sin(3 * block(x)))
        return tape.gradient(loss, [x, *(w.value for w in block.trainable_weights)])

    got = gradients(tf.constant(x))
    with keras_seq.ops.reference():
        expected = tf.function(gradients.python_function)(tf.constant(x))
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_layers_of_one_shape_share_one_program():
    calls = []

    def activation(x):
        calls.append(x.shape)
        return keras.ops.tanh(x)

    @tf.function
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = optimized.fused_activation(activation, optimized.fused_activation(activation, x))
        return tape.gradient(y, x)

    x = tf.constant([[0.1, -2.0, 3.0]])
    np.testing.assert_allclose(gradient(x), (1 - np.tanh(x) ** 2) * (1 - np.tanh(np.tanh(x)) ** 2), rtol=1e-4)
    assert len(calls) == 2  # once forward and once for the gradient
