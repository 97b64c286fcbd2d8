"""Gradients of gradients, as of penalties on gradients: those of each kernel, against differences in float64."""

import keras
import numpy as np
import pytest

from keras_seq import layers

if keras.backend.backend() != "tensorflow":
    pytest.skip("of TensorFlow's kernels", allow_module_level=True)

import tensorflow as tf

LONG = {"return_sequences": True}
CASES = {  # a layer and T; as long as its loop in XLA needs it
    "MultiHeadSelfAttention": (lambda **k: layers.MultiHeadSelfAttention(2, causal=True, **k), 5),
    "FeedForward": (lambda **k: layers.FeedForward(9, **k), 5),
    "LayerNormalization": (lambda **k: layers.LayerNormalization(**k), 5),
    "RMSNormalization": (lambda **k: layers.RMSNormalization(**k), 5),
    "LSTM": (lambda **k: layers.LSTM(4, **LONG, **k), 5),
    "LSTM in XLA": (lambda **k: layers.LSTM(256, **LONG, **k), 16),
    "GRU in XLA": (lambda **k: layers.GRU(256, **LONG, **k), 16),
    "MinGRU": (lambda **k: layers.MinGRU(4, **LONG, **k), 5),
    "SelectiveStateSpace": (lambda **k: layers.SelectiveStateSpace(state_dim=3, **k), 3),
    "RGLRU": (lambda **k: layers.RGLRU(2, **k), 5),
    "GatedDeltaNet": (lambda **k: layers.GatedDeltaNet(2, **k), 3),
}


def gradient(layer, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.sin(2 * layer(x)))
    return tape.gradient(loss, x)


def gradient_of_product(function, x, direction):
    with tf.GradientTape() as tape:
        tape.watch(x)
        product = tf.reduce_sum(function(x) * direction)
    return tape.gradient(product, x)


@pytest.mark.parametrize("name", CASES)
def test_they_are_those_of_the_formula(name):
    make, length = CASES[name]
    random = np.random.default_rng(0)
    x, direction = random.normal(size=(2, 5, length, 6))
    wide, layer = make(dtype="float64"), make(dtype="float32")
    wide(x), layer(x)
    for weight in wide.weights:
        weight.assign(weight + random.normal(scale=0.2, size=weight.shape))
    layer.set_weights(wide.get_weights())
    step = 1e-6
    after, before = (gradient(wide, tf.constant(x + sign * step * direction)) for sign in (1, -1))
    expected = (after - before).numpy() / (2 * step)

    x, direction = (tf.constant(v, tf.float32) for v in (x, direction))
    traced = tf.function(lambda x: gradient(layer, x))
    whole = tf.function(lambda x: gradient_of_product(lambda x: gradient(layer, x), x, direction))
    ways = [lambda: whole(x), lambda: gradient_of_product(traced, x, direction)]
    if "XLA" not in name:  # eagerly there is no loop in XLA
        ways.append(lambda: gradient_of_product(lambda x: gradient(layer, x), x, direction))
    for second in ways:
        np.testing.assert_allclose(second(), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())
