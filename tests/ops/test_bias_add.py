import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_seq.ops
from keras_seq import layers
from keras_seq.ops import dispatch
from keras_seq.ops.position_wise import add_bias
from keras_seq.ops.position_wise import tensorflow as optimized


def outputs_and_gradient(layer, x, dy):
    """y and the gradients of x and of the bias, where `dy` comes back to y."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x)
    return y, *tape.gradient(y, [x, layer.bias.value], output_gradients=dy)


@pytest.fixture
def arguments():
    """`x [50, 200, 8]` and `dy [50, 200, 3]`, whose mean is not zero."""
    random = np.random.default_rng(0)
    shapes = {8: 0.0, 3: 0.1}
    return [tf.constant(random.normal(mean, size=(50, 200, n)), "bfloat16") for n, mean in shapes.items()]


@pytest.fixture
def layer():
    layer = layers.Dense(3, bias_initializer="normal", dtype="mixed_bfloat16")
    layer.build((None, None, 8))
    return layer


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("multiplies", sorted({False, optimized.cpu_multiplies_bfloat16()}))
def test_the_bias_in_bfloat16_gets_the_sum_of_what_comes_back(layer, arguments, compiled, multiplies, monkeypatch):
    monkeypatch.setattr(optimized, "cpu_multiplies_bfloat16", lambda: multiplies)
    x, dy = arguments
    call = tf.function(outputs_and_gradient) if compiled else outputs_and_gradient
    *_, gradient = call(layer, x, dy)
    expected = np.asarray(dy, "float64").sum((0, 1))
    np.testing.assert_allclose(gradient, expected, rtol=2**-8)


def test_all_else_is_what_keras_gives(layer, arguments):
    theirs = keras.layers.Dense(3, dtype="mixed_bfloat16")
    theirs.build((None, None, 8))
    theirs.set_weights(layer.get_weights())
    y, dx, gradient = outputs_and_gradient(layer, *arguments)
    expected = outputs_and_gradient(theirs, *arguments)
    assert np.array_equal(y, expected[0])
    assert np.array_equal(dx, expected[1])
    assert not np.allclose(gradient, expected[2], rtol=0.02)  # else Keras has mended it, and the kernel can go
    with keras_seq.ops.reference():
        assert np.array_equal(outputs_and_gradient(layer, *arguments)[2], expected[2])


def test_it_is_the_same_where_the_batch_is_not_known(layer, arguments):
    x, dy = arguments
    *_, expected = outputs_and_gradient(layer, x, dy)
    signature = [tf.TensorSpec((None, None, n), "bfloat16") for n in (8, 3)]
    call = tf.function(lambda x, dy: outputs_and_gradient(layer, x, dy)[2], input_signature=signature)
    np.testing.assert_array_equal(call(x, dy), expected)
    assert not call(x[:0], dy[:0]).numpy().any()


def test_only_bfloat16_on_a_cpu_needs_it(monkeypatch):
    bias = tf.ones(3)
    assert add_bias.twin(tf.ones((2, 3), "bfloat16"), bias)
    assert not any(add_bias.twin(tf.ones((2, 3), kind), bias) for kind in ("float16", "float32", "float64"))
    monkeypatch.setattr(dispatch, "on_cpu", lambda: False)
    assert not add_bias.twin(tf.ones((2, 3), "bfloat16"), bias)
