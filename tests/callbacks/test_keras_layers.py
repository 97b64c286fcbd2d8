"""Attention and gates of keras.layers, in anybody's model."""

import keras
import numpy as np
import pytest

from keras_seq import layers
from keras_seq.callbacks.gate_saturation import gate_values
from keras_seq.interpretability import attention_weights
from keras_seq.layers.recurrent.gates import gates

X = np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32")


@pytest.mark.parametrize("heads", [{"num_heads": 2}, {"num_query_heads": 4, "num_key_value_heads": 2, "head_dim": 3}])
def test_the_weights_are_those_that_the_layer_returns(heads):
    kind = keras.layers.MultiHeadAttention if "num_heads" in heads else keras.layers.GroupQueryAttention
    layer = kind(**heads, **({"key_dim": 3} if "num_heads" in heads else {}), name="attention")
    x = keras.Input((5, 4))
    model = keras.Model(x, keras.layers.Dense(2)(layer(x, x, use_causal_mask=True)))
    before = model(X)
    expected = layer(X, X, use_causal_mask=True, return_attention_scores=True)[1]
    np.testing.assert_allclose(attention_weights(model, X)["attention"], expected, atol=1e-6)
    np.testing.assert_array_equal(model(X), before)


@pytest.mark.parametrize("options", [{}, {"return_sequences": True}, {"go_backwards": True}, {"return_state": True}])
@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_the_gates_are_those_of_our_layer_with_its_weights(name, options):
    theirs, ours = getattr(keras.layers, name)(3, name="theirs", **options), getattr(layers, name)(3)
    x = keras.Input((5, 4))
    y = theirs(x)
    model = keras.Model(x, y[0] if isinstance(y, list | tuple) else y)
    ours.build(X.shape)
    theirs.set_weights([np.random.default_rng(n).normal(size=w.shape) for n, w in enumerate(theirs.weights)])
    ours.set_weights(theirs.get_weights())
    read = np.flip(X, axis=1) if options.get("go_backwards") else X
    h, steps = ours.get_initial_state(2), []
    for t in range(5):
        y, h = ours.step(read[:, t], h)
        steps.append(y)
    expected = gates(ours, read, np.stack(steps, axis=1))
    found = gate_values(model, X)["theirs"]
    assert found.keys() == expected.keys()
    for gate, values in found.items():
        np.testing.assert_allclose(values, expected[gate], atol=1e-5)


def test_activations_of_ones_own_count_and_stateful_layers_are_left_out():
    x = keras.Input((5, 4), batch_size=2)
    layer = keras.layers.LSTM(3, recurrent_activation="hard_sigmoid", unit_forget_bias=False, name="hard")
    model = keras.Model(x, [layer(x), keras.layers.GRU(3, stateful=True)(x)])
    layer.set_weights([100 * w for w in layer.get_weights()])
    found = gate_values(model, X)
    assert [*found] == ["hard"]
    assert {0.0, 1.0} <= {*found["hard"]["input"].ravel().tolist()}
