import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import layers

BACKEND = keras.backend.backend()


def test_zero_centered_weights_are_added_to_one(randomize):
    x = np.random.default_rng(0).normal(size=(2, 5, 6)).astype("float32")
    layer = layers.ZeroCenteredRMSNormalization(epsilon=0.1)
    plain = layers.RMSNormalization(epsilon=0.1)
    np.testing.assert_allclose(ops.convert_to_numpy(layer(x)), ops.convert_to_numpy(plain(x)), rtol=1e-6)
    randomize(layer)
    (weight,) = (ops.convert_to_numpy(w).astype("float64") for w in layer.weights)
    expected = (1 + weight) * x / np.sqrt((x.astype("float64") ** 2).mean(-1, keepdims=True) + 0.1)
    np.testing.assert_allclose(ops.convert_to_numpy(layer(x)), expected, rtol=1e-5, atol=1e-6)


PAIRS = {  # arguments that both classes of a name take
    "LayerNormalization": (
        *(((), {}), ((-1,), {}), ((2,), {}), ((-1, 1e-2, False, True, "ones"), {}), ((), {"axis": [1, 2]})),
        *(((1,), {}), ((), {"scale": False}), ((), {"scale": False, "center": False}), (([-1, 1], 1e-5), {})),
        ((), {"gamma_initializer": "zeros", "beta_initializer": "ones", "gamma_regularizer": "l2"}),
    ),
    "RMSNormalization": (((), {}), ((-1,), {}), ((2, 0.1), {}), ((), {"axis": [1, 2]})),
}
pairs = pytest.mark.parametrize(
    ("name", "args", "kwargs"), [(name, *pair) for name, several in PAIRS.items() for pair in several]
)


@pairs
def test_arguments_and_results_are_those_of_keras(randomize, name, args, kwargs):
    ours, keras_layer = (getattr(module, name)(*args, **kwargs) for module in (layers, keras.layers))
    x = 0.1 * np.random.default_rng(0).normal(size=(2, 5, 6)).astype("float32")
    ours(x)
    keras_layer.build(x.shape)
    randomize(ours)
    keras_layer.set_weights(ours.get_weights())
    if BACKEND == "torch" and kwargs.get("axis", args[0] if args else -1) == 1:
        expected = np.swapaxes(ops.convert_to_numpy(_over_last(keras_layer, np.swapaxes(x, 1, 2))), 1, 2)
    else:
        expected = ops.convert_to_numpy(keras_layer(x))
    np.testing.assert_allclose(ops.convert_to_numpy(ours(x)), expected, atol=2e-6)
    mine, theirs = ({**layer.get_config(), "name": ""} for layer in (ours, keras_layer))
    assert mine == theirs
    assert type(ours).from_config(ours.get_config()).get_config() == ours.get_config()


def numpy_in(dtype, x):
    """Round numbers to those of a dtype, as float32."""
    return ops.convert_to_numpy(ops.cast(ops.cast(x, dtype), "float32"))


def _over_last(layer, x):
    """Keras's layer over axis 1 raises on torch."""
    return ops.layer_normalization(x, layer.gamma, layer.beta, axis=-1, epsilon=layer.epsilon)


def test_root_mean_squares_over_another_axis():
    x = np.random.default_rng(0).normal(size=(2, 5, 6)).astype("float32")
    for layer in (layers.RMSNormalization(axis=1), layers.ZeroCenteredRMSNormalization(axis=1)):
        expected = x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-6)
        np.testing.assert_allclose(ops.convert_to_numpy(layer(x)), expected, atol=1e-5)


def test_a_small_weight_beside_one_is_not_rounded_away_in_half_precision():
    layer = layers.ZeroCenteredRMSNormalization(dtype="mixed_bfloat16")
    x = numpy_in("bfloat16", np.random.default_rng(0).normal(size=(2, 5, 64)))
    layer.build(x.shape)
    layer.scale.assign(np.full(64, 0.003))
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * 1.003
    assert keras.backend.standardize_dtype(layer(x).dtype) == "bfloat16"
    assert (numpy_in("float32", layer(x)) == numpy_in("bfloat16", expected)).mean() > 0.98


@pytest.mark.filterwarnings("ignore:(?s).*rms_scaling.*deprecated")
def test_rms_scaling_is_that_of_keras():
    x = np.random.default_rng(0).normal(size=(2, 5, 6)).astype("float32")
    ours, keras_layer = (module.LayerNormalization(rms_scaling=True) for module in (layers, keras.layers))
    np.testing.assert_allclose(ops.convert_to_numpy(ours(x)), ops.convert_to_numpy(keras_layer(x)), atol=1e-6)


def test_configs_of_before_and_blocks_keep_their_epsilon():
    config = layers.LayerNormalization(epsilon=1e-5, center=False).get_config()
    old = {name: value for name, value in config.items() if name not in ("axis", "scale", "rms_scaling")}
    assert layers.LayerNormalization.from_config(old).get_config() == config
    block = layers.TransformerBlock(2, 8)
    assert [layer.epsilon for layer in block.normalizations] == [1e-5, 1e-5]
    assert layers.PreNormResidual([keras.layers.Dense(4)], "layer").normalization_layer.epsilon == 1e-5
    assert layers.PreNormResidual([keras.layers.Dense(4)]).normalization_layer.epsilon == 1e-6
    assert layers.RWKV7Blocks(1, 2, 8).normalizations[0].epsilon == 1e-5


@pytest.mark.parametrize("axis", [3, [1, 1], [2, -1], 1e-5, []])
def test_an_axis_that_is_none_is_refused(axis):
    for layer in (layers.LayerNormalization, layers.RMSNormalization):
        with pytest.raises((ValueError, TypeError), match="axis"):  # Keras's TypeError for a number
            layer(axis)(np.zeros((2, 5, 6), "float32"))
