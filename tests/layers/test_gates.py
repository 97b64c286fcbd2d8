import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.layers import GRU, LSTM, LayerNormLSTM, MinGRU, MinLSTM
from keras_seq.layers.introspection import GATES, gates
from tests.layers.conftest import sigmoid

B, T, D, UNITS = 2, 4, 3, 5


def lstm_gates(layer, x, h, c):
    """One position after the other, as the paper has it."""
    kernel, recurrent_kernel, bias = (np.array(weight, "float64") for weight in layer.get_weights())
    expected_gates = []
    for t in range(x.shape[1]):
        i, f, g, o = np.split(x[:, t] @ kernel + h @ recurrent_kernel + bias, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        expected_gates.append({"input": sigmoid(i), "forget": sigmoid(f), "output": sigmoid(o)})
    return expected_gates


def gru_gates(layer, x, h):
    kernel, recurrent_kernel, bias = (np.array(weight, "float64") for weight in layer.get_weights())
    mine, its = bias if layer.reset_after else (bias, np.zeros_like(bias))
    expected_gates = []
    for t in range(x.shape[1]):
        z, r, g = np.split(x[:, t] @ kernel + mine, 3, axis=-1)
        (uz, ur, ug), (bz, br, bg) = np.split(recurrent_kernel, 3, axis=-1), np.split(its, 3)
        z, r = sigmoid(z + h @ uz + bz), sigmoid(r + h @ ur + br)
        candidate = np.tanh(g + r * (h @ ug + bg)) if layer.reset_after else np.tanh(g + (r * h) @ ug)
        h = z * h + (1 - z) * candidate
        expected_gates.append({"update": z, "reset": r})
    return expected_gates


def minimal_gates(layer, x, *names):
    kernel, bias = (np.array(weight, "float64") for weight in layer.get_weights())
    parts = np.split(x @ kernel + bias, len(names) + 1, axis=-1)
    return [{name: sigmoid(part[:, t]) for name, part in zip(names, parts, strict=False)} for t in range(x.shape[1])]


CASES = {
    "lstm": (lambda: LSTM(UNITS, return_sequences=True), lstm_gates),
    "gru": (lambda: GRU(UNITS, return_sequences=True), lambda layer, x, h, c: gru_gates(layer, x, h)),
    "gru, reset before": (
        lambda: GRU(UNITS, reset_after=False, return_sequences=True),
        lambda layer, x, h, c: gru_gates(layer, x, h),
    ),
    "mingru": (lambda: MinGRU(UNITS, return_sequences=True), lambda layer, x, h, c: minimal_gates(layer, x, "update")),
    "minlstm": (
        lambda: MinLSTM(UNITS, return_sequences=True),
        lambda layer, x, h, c: minimal_gates(layer, x, "forget", "input"),
    ),
}


@pytest.mark.parametrize("begun", [False, True], ids=["zero state", "some state"])
@pytest.mark.parametrize("case", CASES)
def test_gates_are_those_of_the_formula_one_position_after_the_other(case, begun, randomize):
    make, oracle = CASES[case]
    layer = make()
    layer.build((B, T, D))
    randomize(layer)
    random = np.random.default_rng(1)
    x = random.normal(size=(B, T, D)).astype("float32")
    h, c = np.abs(random.normal(size=(2, B, UNITS))).astype("float32") * begun
    y = layer(x, state=(h, c) if isinstance(layer, LSTM) else h)
    expected_gates = oracle(layer, x, h, c)
    found = gates(layer, x, y, h if begun else None)
    assert found.keys() == expected_gates[0].keys() == {name for name in GATES[type(layer)] if name}
    for name, values in found.items():
        expected = np.stack([at[name] for at in expected_gates], axis=1)
        assert expected.std() > 0.05
        np.testing.assert_allclose(ops.convert_to_numpy(values), expected, atol=2e-5)


def test_in_bfloat16_gates_are_float32_and_near(randomize):
    wide, narrow = (
        LSTM(UNITS, return_sequences=True),
        LSTM(UNITS, dtype=keras.DTypePolicy("mixed_bfloat16"), return_sequences=True),
    )
    x = np.random.default_rng(2).normal(size=(B, T, D)).astype("float32")
    for layer in (wide, narrow):
        layer.build((B, T, D))
        randomize(layer)
    one, other = (gates(layer, x, layer(x)) for layer in (wide, narrow))
    for name in one:
        assert keras.backend.standardize_dtype(other[name].dtype) == "float32"
        np.testing.assert_allclose(ops.convert_to_numpy(one[name]), ops.convert_to_numpy(other[name]), atol=0.03)


def test_a_layer_with_another_formula_is_not_taken_for_one_of_these():
    assert LayerNormLSTM not in GATES
    with pytest.raises(KeyError):
        gates(LayerNormLSTM(UNITS, return_sequences=True), None, None)
