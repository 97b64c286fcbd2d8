"""What the base class gives to all layers: configs of constructors' arguments, and matrices that change their mode."""

import gc
import inspect

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import layers

EXPORTED = [getattr(layers, name) for name in layers.__all__]
LAYERS = [kind for kind in EXPORTED if inspect.isclass(kind) and issubclass(kind, keras.layers.Layer)]


@pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.__name__)
def test_no_config_is_written_by_hand(kind):
    ours = [base for base in kind.__mro__ if base.__module__.startswith("keras_seq")]
    assert kind is layers.Dense or not any("get_config" in vars(base) for base in ours[:-1])


class Scaled(layers.ExplicitState):
    """A user's layer that keeps its arguments."""

    def __init__(self, factor, activation="relu", **kwargs):
        super().__init__(**kwargs)
        self.factor, self.activation = factor, keras.activations.get(activation)


class Forgetful(layers.ExplicitState):
    def __init__(self, factor, **kwargs):
        super().__init__(**kwargs)


class ByHand(Forgetful):
    def __init__(self, size, **kwargs):
        super().__init__(3, **kwargs)

    def get_config(self):
        return {**keras.layers.Layer.get_config(self), "size": 1}


def test_a_users_layer_is_described_by_its_arguments():
    layer = Scaled(2.0, name="mine")
    config = layer.get_config()
    assert (config["factor"], config["activation"], config["name"]) == (2.0, "relu", "mine")
    assert Scaled.from_config(config).get_config() == config
    with pytest.raises(NotImplementedError, match="Forgetful has no attribute factor"):
        Forgetful(2.0).get_config()
    assert ByHand(2).get_config()["size"] == 1


def test_a_layer_without_a_matrix_has_no_mode():
    layer = layers.RMSNormalization()
    layer.build((None, 4))
    with pytest.raises(ValueError, match="has no matrix"):
        layer.enable_lora(2)
    with pytest.raises(NotImplementedError):
        layer.quantize("int8")


def test_a_change_of_matrices_that_fails_leaves_the_layer_locked_and_garbage_collected():
    layer = layers.Dense(3)
    layer.build((None, 4))
    for before in (gc.freeze, gc.unfreeze):
        before()
        frozen = gc.get_freeze_count()
        with pytest.raises(ValueError, match="nonsense"):
            layer.enable_lora(2, a_initializer="nonsense")
        assert abs(gc.get_freeze_count() - frozen) < 100  # of thousands; some are freed
    gc.freeze()
    with pytest.raises(ValueError, match="cannot add new elements of state"):
        layer.late = keras.layers.Dense(2)


def test_a_matrix_changes_its_mode_and_comes_back():
    layer = layers.LSTM(3)
    x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32")
    expected = ops.convert_to_numpy(layer(x))
    before = [weight.path for weight in layer.weights]
    layer.enable_lora(2, b_initializer="ones")
    assert layer.matrix_mode == "lora"
    changed = ops.convert_to_numpy(layer(x))
    assert np.abs(changed - expected).max() > 1e-3
    with pytest.raises(ValueError, match="has LoRA; expected to merge it"):
        layer.quantize("int8")
    layer.merge_lora()
    assert (layer.matrix_mode, sorted(weight.path for weight in layer.weights)) == (None, sorted(before))
    np.testing.assert_allclose(ops.convert_to_numpy(layer(x)), changed, atol=1e-5)
    layer.quantize("int8")
    assert layer.matrix_mode == "int8"
    np.testing.assert_allclose(ops.convert_to_numpy(layer(x)), changed, atol=0.1)
    assert layer.matrices["kernel"].shape == (4, 12)


SEEDED = {
    "MultiHeadSelfAttention": lambda **options: layers.MultiHeadSelfAttention(2, **options),
    "GatedFeedForward": lambda **options: layers.GatedFeedForward(8, **options),
    "GatedLinearAttention": lambda **options: layers.GatedLinearAttention(2, **options),
    "RWKV7TimeMix": lambda **options: layers.RWKV7TimeMix(2, **options),
}


@pytest.mark.parametrize("name", SEEDED)
def test_matrices_of_a_seeded_initializer_differ_and_come_again(name):
    def matrices(seed):
        layer = SEEDED[name](kernel_initializer=keras.initializers.GlorotUniform(seed))
        layer(np.zeros((1, 2, 8), "float32"))
        assert layer.get_config()["kernel_initializer"]["config"]["seed"] == seed or not isinstance(seed, int)
        drawn = (w for w in layer.weights if w.path.endswith("kernel") and "output" not in w.path)
        return [ops.convert_to_numpy(weight) for weight in drawn]

    first = matrices(1)
    drawn = [matrix for matrix in first if matrix.std()]
    equal = [
        (n, m)
        for n, one in enumerate(drawn)
        for m, other in enumerate(drawn[:n])
        if one.shape == other.shape and np.allclose(one / one.std(), other / other.std())
    ]
    assert len(drawn) > 1
    assert not equal
    for one, again in zip(first, matrices(1), strict=True):
        np.testing.assert_array_equal(one, again)
    assert any((one != other).any() for one, other in zip(first, matrices(2), strict=True))
    matrices(keras.random.SeedGenerator(1))
