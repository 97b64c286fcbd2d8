"""Gradients of gradients, as of penalties on gradients: those of each kernel, against differences in float64."""

import itertools

import keras
import numpy as np
import pytest

from keras_seq import layers
from tests.conftest import often

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


WAYS = {
    "in one program": lambda function, x, direction: tf.function(gradient_of_product)(function, x, direction),
    "of a program": lambda function, x, direction: gradient_of_product(tf.function(function), x, direction),
    "eagerly": gradient_of_product,  # without a loop in XLA
}
PAIRS = [(name, way) for name in CASES for way in WAYS if "XLA" not in name or way != "eagerly"]
QUICK = {*itertools.product(CASES.keys() - {"GRU in XLA"}, ["in one program"]), *itertools.product(["LSTM"], WAYS)}


@often(("name", "way"), PAIRS, QUICK)
def test_they_are_those_of_the_formula(name, way):
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
    second = WAYS[way](lambda x: gradient(layer, x), x, direction)
    np.testing.assert_allclose(second, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())
