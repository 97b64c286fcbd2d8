import math

import numpy as np
import pytest
from keras import ops

from keras_seq.layers import FeedForward, GatedFeedForward

numpy = ops.convert_to_numpy
ACTIVATIONS = {
    "relu": lambda z: np.maximum(z, 0),
    "gelu": np.vectorize(lambda z: z * (1 + math.erf(z / math.sqrt(2))) / 2),
    "silu": lambda z: z / (1 + np.exp(-z)),
}


def inputs(shape=(2, 3, 4), dtype="float64"):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def weights_of(layer):
    return {"/".join(v.path.split("/")[-2:]): numpy(v) for v in layer.trainable_weights}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_it_is_the_formula(float64, exact, randomize, kind, activation, use_bias):
    layer = kind(5, activation=activation, use_bias=use_bias, dtype="float64")
    x = inputs()
    layer(x)
    w = weights_of(randomize(layer, scale=1))
    f = ACTIVATIONS[activation]
    if kind is FeedForward:
        hidden = f(x @ w["hidden/kernel"] + w.get("hidden/bias", 0))
    else:
        gate = f(x @ w["gate/kernel"] + w.get("gate/bias", 0))
        hidden = gate * (x @ w["hidden/kernel"] + w.get("hidden/bias", 0))
    expected = hidden @ w["output/kernel"] + w.get("output/bias", 0)
    if activation == "gelu":
        exact = {"rtol": 1e-5, "atol": 1e-6}  # Keras holds sqrt(2) in float32
    np.testing.assert_allclose(numpy(layer(x)), expected, **exact)


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_gradients_are_those_of_finite_differences(float64, randomize, check_gradients, kind):
    layer = kind(5, activation="silu", dtype="float64")
    layer(inputs())
    check_gradients(randomize(layer), inputs())


@pytest.mark.parametrize("shape", [(0, 3, 4), (1, 1, 4), (2, 4), (2, 3, 5, 4)], ids=str)
@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_any_axes_before_the_width(kind, shape):
    layer, x = kind(5), inputs(shape, "float32")
    assert layer(x).shape == shape
    np.testing.assert_allclose(
        numpy(layer(x)).reshape(-1, 4), numpy(layer(x.reshape(-1, 4))), atol=1e-6
    )  # positions do not mix


def test_matrices_start_differently():
    layer = GatedFeedForward(4)
    layer.build((None, 4))
    w = weights_of(layer)
    assert not np.allclose(w["gate/kernel"], w["hidden/kernel"])
