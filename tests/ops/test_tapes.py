"""Persistent tapes, and tapes over references in a `tf.function`, give the values of any other."""

import numpy as np
import pytest
import tensorflow as tf

import keras_seq.ops
from keras_seq import layers

LENGTH, UNITS = 64, 64  # where `xla_loop_is_faster`


def gradients(layer, x, persistent):
    @tf.function
    def of_all(x):
        with tf.GradientTape(persistent=persistent) as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.square(layer(x)))
        return tape.gradient(loss, [x, *layer.trainable_weights])

    return of_all(x)


@pytest.mark.rare
@pytest.mark.parametrize("kind", [layers.LSTM, pytest.param(layers.GRU, marks=pytest.mark.rare)])
def test_a_persistent_tape_in_a_function_gives_the_gradients_of_any_other(kind):
    layer, x = kind(UNITS), tf.random.stateless_normal((2, LENGTH, 3), (0, 1))
    layer.build(x.shape)
    for got, expected in zip(gradients(layer, x, True), gradients(layer, x, False), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-6)
    with keras_seq.ops.reference():
        reference = gradients(layer, x, True)
    for got, expected in zip(gradients(layer, x, True), reference, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5 * max(1.0, float(tf.reduce_max(tf.abs(expected)))))


@pytest.mark.parametrize("shape", [(2, 6, 4), (None, None, 4)], ids=["known", "unknown"])
def test_mambas_reference_is_traced(shape):
    layer, x = layers.SelectiveStateSpace(3), tf.random.stateless_normal((2, 6, 4), (0, 1))
    expected = layer(x)
    with keras_seq.ops.reference():
        got = tf.function(layer, input_signature=[tf.TensorSpec(shape)])(x)
    np.testing.assert_allclose(got, expected, atol=1e-6)
