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

from keras_seq.ops import xla

LONG = {"return_sequences": True}
CASES = {  # a layer and T
    "MultiHeadSelfAttention": (lambda **k: layers.MultiHeadSelfAttention(2, causal=True, **k), 5),
    "FeedForward": (lambda **k: layers.FeedForward(9, **k), 5),
    "LayerNormalization": (lambda **k: layers.LayerNormalization(**k), 5),
    "RMSNormalization": (lambda **k: layers.RMSNormalization(**k), 5),
    "LSTM": (lambda **k: layers.LSTM(4, **LONG, **k), 5),
    "LSTM in XLA": (lambda **k: layers.LSTM(4, **LONG, **k), 5),
    "GRU in XLA": (lambda **k: layers.GRU(4, **LONG, **k), 5),
    "MinGRU": (lambda **k: layers.MinGRU(4, **LONG, **k), 5),
    "SelectiveStateSpace": (lambda **k: layers.SelectiveStateSpace(state_dim=3, **k), 2),
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
IN_A_PROGRAM = ("LSTM in XLA", "LayerNormalization")  # by kernels of their own there
QUICK = {*itertools.product(IN_A_PROGRAM, ["in one program"]), *itertools.product(["LSTM"], WAYS)}
QUICK |= {(name, "eagerly") for name in CASES.keys() - {*IN_A_PROGRAM}}


@often(("name", "way"), PAIRS, QUICK)
def test_they_are_those_of_the_formula(name, way, monkeypatch):
    if "XLA" in name:
        monkeypatch.setattr(xla, "MIN_STEPS_X_UNITS", 1)
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
