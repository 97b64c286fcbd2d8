import keras
import numpy as np
from keras import ops

from keras_seq import layers


def test_zero_centered_weights_are_added_to_one(randomize):
    x = np.random.default_rng(0).normal(size=(2, 5, 6)).astype("float32")
    layer = layers.ZeroCenteredRMSNormalization(epsilon=0.1)
    plain = layers.RMSNormalization(epsilon=0.1)
    np.testing.assert_allclose(ops.convert_to_numpy(layer(x)), ops.convert_to_numpy(plain(x)), rtol=1e-6)
    randomize(layer)
    (weight,) = (ops.convert_to_numpy(w).astype("float64") for w in layer.weights)
    expected = (1 + weight) * x / np.sqrt((x.astype("float64") ** 2).mean(-1, keepdims=True) + 0.1)
    np.testing.assert_allclose(ops.convert_to_numpy(layer(x)), expected, rtol=1e-5, atol=1e-6)


def test_initializers_regularizers_and_constraints_are_in_the_config():
    options = {"gamma_initializer": "zeros", "beta_initializer": "ones", "gamma_regularizer": "l2"}
    layer = layers.LayerNormalization(center=True, epsilon=1e-3, beta_constraint="non_neg", **options)
    config = keras.layers.LayerNormalization(epsilon=1e-3, beta_constraint="non_neg", name=layer.name, **options)
    copy = layers.LayerNormalization.from_config(layer.get_config())
    expected = config.get_config()
    assert copy.get_config() == {name: expected[name] for name in expected.keys() - {"axis", "scale", "rms_scaling"}}
