"""Laws of the layers that apply a cell to one position after the other."""

import dataclasses
import itertools
from collections.abc import Callable

import keras
import numpy as np
import pytest
from keras import ops, tree

from keras_seq.layers import GRU, LSTM, LayerNormLSTM, SimpleRNN
from tests.conftest import often
from tests.layers.conftest import rare_on_jax, sigmoid

BACKEND = keras.backend.backend()
D, UNITS = 3, 2
# Keras computes tanh in float32 on the other backends, whatever it is given
ORACLE_DTYPE, ORACLE_NEAR = ("float64", {"rtol": 1e-9}) if BACKEND == "tensorflow" else ("float32", {"atol": 2e-5})
numpy = ops.convert_to_numpy


# One position of one row, in float64: x [D], the state's parts [UNITS] each, the weights in the layer's order.


def rnn(x, state, kernel, recurrent, bias, activation=np.tanh):
    (h,) = state
    return (activation(x @ kernel + h @ recurrent + bias),)


def relu_rnn(x, state, *weights):
    return rnn(x, state, *weights, activation=lambda v: np.maximum(v, 0))


def gru(x, state, kernel, recurrent, bias):
    (h,) = state
    to_update, to_reset, to_candidate = np.split(kernel, 3, -1)
    from_update, from_reset, from_candidate = np.split(recurrent, 3, -1)
    (b_update, b_reset, b_candidate), (c_update, c_reset, c_candidate) = (np.split(row, 3) for row in bias)
    update = sigmoid(x @ to_update + b_update + h @ from_update + c_update)
    reset = sigmoid(x @ to_reset + b_reset + h @ from_reset + c_reset)
    candidate = np.tanh(x @ to_candidate + b_candidate + reset * (h @ from_candidate + c_candidate))
    return (update * h + (1 - update) * candidate,)


def gru_reset_before(x, state, kernel, recurrent, bias):
    (h,) = state
    to_update, to_reset, to_candidate = np.split(kernel, 3, -1)
    from_update, from_reset, from_candidate = np.split(recurrent, 3, -1)
    b_update, b_reset, b_candidate = np.split(bias, 3)
    update = sigmoid(x @ to_update + h @ from_update + b_update)
    reset = sigmoid(x @ to_reset + h @ from_reset + b_reset)
    candidate = np.tanh(x @ to_candidate + (reset * h) @ from_candidate + b_candidate)
    return (update * h + (1 - update) * candidate,)


def lstm(x, state, kernel, recurrent, bias):
    h, c = state
    parts = zip(np.split(kernel, 4, -1), np.split(recurrent, 4, -1), np.split(bias, 4), strict=True)
    input_gate, forget_gate, candidate, output_gate = (x @ w + h @ u + b for w, u, b in parts)
    c = sigmoid(forget_gate) * c + sigmoid(input_gate) * np.tanh(candidate)
    return sigmoid(output_gate) * np.tanh(c), c


def norm(v, epsilon=1e-5):
    return (v - v.mean()) / np.sqrt(v.var() + epsilon)


def layer_norm_lstm(
    x, state, kernel, recurrent, bias, kernel_gamma, recurrent_gamma, cell_gamma, cell_beta
):  # fmt: skip
    h, c = state
    z = kernel_gamma * norm(x @ kernel) + recurrent_gamma * norm(h @ recurrent) + bias
    input_gate, forget_gate, candidate, output_gate = np.split(z, 4)
    c = sigmoid(forget_gate) * c + sigmoid(input_gate) * np.tanh(candidate)
    return sigmoid(output_gate) * np.tanh(cell_gamma * norm(c) + cell_beta), c


def oracle(cell, x, weights, state, mask=None):
    """`(y, *state)` after all positions of all rows, one by one."""
    y, state = np.zeros((*x.shape[:2], UNITS)), [np.array(part) for part in state]
    for row, t in itertools.product(range(x.shape[0]), range(x.shape[1])):
        if mask is None or mask[row, t]:
            for part, new in zip(state, cell(x[row, t], [part[row] for part in state], *weights), strict=True):
                part[row] = new
        y[row, t] = state[0][row]
    return y, *state


@dataclasses.dataclass(frozen=True)
class Case:
    make: Callable  # (**kwargs) -> a new layer of UNITS units
    cell: Callable  # its oracle
    gates: int = 1
    keras: Callable | None = None  # (**kwargs) -> the layer of Keras that computes the same


CASES = {
    "tanh": Case(
        lambda **k: SimpleRNN(UNITS, return_sequences=True, **k),
        rnn,
        keras=lambda **k: keras.layers.SimpleRNN(UNITS, **k),
    ),
    "relu": Case(
        lambda **k: SimpleRNN(UNITS, "relu", return_sequences=True, **k),
        relu_rnn,
        keras=lambda **k: keras.layers.SimpleRNN(UNITS, activation="relu", **k),
    ),
    "gru": Case(lambda **k: GRU(UNITS, return_sequences=True, **k), gru, 3, lambda **k: keras.layers.GRU(UNITS, **k)),
    "gru_reset_before": Case(
        lambda **k: GRU(UNITS, reset_after=False, return_sequences=True, **k),
        gru_reset_before,
        3,
        lambda **k: keras.layers.GRU(UNITS, reset_after=False, **k),
    ),
    "lstm": Case(
        lambda **k: LSTM(UNITS, return_sequences=True, **k), lstm, 4, lambda **k: keras.layers.LSTM(UNITS, **k)
    ),
    "layer_norm_lstm": Case(lambda **k: LayerNormLSTM(UNITS, return_sequences=True, **k), layer_norm_lstm, 4),
}
QUICK = ("tanh", "gru_reset_before", "lstm", "layer_norm_lstm")
each = rare_on_jax("case", CASES, QUICK)
# in a compiled program the cells differ by the parts of their state
functional = often("case", CASES, ("gru_reset_before", "lstm"))
of_keras = rare_on_jax("case", {name: case for name, case in CASES.items() if case.keras}, QUICK)


def draw(*shape, seed=0, dtype="float32"):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def weighted(layer, seed=5):
    """The layer, built, every weight random."""
    layer.build((None, None, D))
    random = np.random.default_rng(seed)
    layer.set_weights([random.normal(size=w.shape) for w in layer.weights])
    return layer


def state_like(layer, batch, seed=7):
    """A random state, in the layer's dtypes."""
    parts = enumerate(tree.flatten(layer.get_initial_state(batch)))
    drawn = [ops.cast(draw(*part.shape, seed=seed + n, dtype="float64"), part.dtype) for n, part in parts]
    return tree.pack_sequence_as(layer.get_initial_state(batch), drawn)


def values(*outputs):
    """All tensors of the outputs, as arrays."""
    return [numpy(v if v.dtype == "float64" else ops.cast(v, "float32")) for v in tree.flatten(outputs)]


def wide(v):
    return numpy(v).astype("float64")


def assert_close(got, expected, **tolerance):
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, **tolerance)


MASK = np.array([[1, 1, 0, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 1], [1] * 7], bool)


@each
@pytest.mark.parametrize(
    ("batch", "length", "mask"), [(1, 1, None), (3, 7, None), (3, 7, MASK)], ids=["1", "3x7", "masked"]
)
def test_it_is_the_formula(case, batch, length, mask):
    layer = weighted(case.make(dtype=ORACLE_DTYPE))
    x, state = draw(batch, length, D, dtype=ORACLE_DTYPE), state_like(layer, batch)
    got = values(layer(x, state=state, mask=mask, return_state=True))
    weights = [wide(w) for w in layer.weights]
    assert_close(got, oracle(case.cell, x, weights, [wide(part) for part in tree.flatten(state)], mask), **ORACLE_NEAR)


@of_keras
def test_the_defaults_of_keras_are_ours(case):
    ours, theirs = case.make(), case.keras(return_sequences=True)
    for layer in (ours, theirs):
        layer.build((None, None, D))
    np.testing.assert_array_equal(ours.get_weights()[2], theirs.get_weights()[2])  # the bias
    recurrent = ours.get_weights()[1]
    np.testing.assert_allclose(recurrent @ recurrent.T, np.eye(UNITS), atol=1e-5)  # orthogonal, both
    ours.set_weights(theirs.get_weights())
    x = draw(2, 4, D)
    np.testing.assert_allclose(numpy(ours(x)), numpy(theirs(x)), atol=2e-6)


class Started(keras.layers.Layer):
    """A layer whose state comes part by part, so that each is an input of its own."""

    def __init__(self, layer):
        super().__init__(dtype=layer.dtype_policy)
        self.supports_masking = True
        self.layer = layer

    def call(self, x, h, c=None, mask=None):
        return self.layer(x, state=h if c is None else (h, c), mask=mask)


@each
@pytest.mark.parametrize("mask", [None, [[0, 1, 1], [1, 0, 1]]], ids=["whole", "masked"])
def test_gradients_are_those_of_finite_differences(check_gradients, case, mask):
    """For the input, the state before it and every weight."""
    if BACKEND != "tensorflow":
        pytest.skip("Keras computes tanh in float32 on this backend, where finite differences tell little")
    layer = weighted(case.make(dtype="float64"))
    state = [wide(part) for part in tree.flatten(state_like(layer, 2))]
    kwargs = {} if mask is None else {"mask": np.array(mask, bool)}
    check_gradients(Started(layer), draw(2, 3, D, dtype="float64"), *state, **kwargs)


@pytest.mark.parametrize(
    ("make", "dtypes"),
    [
        (lambda **k: SimpleRNN(2, return_sequences=True, **k), ["float16"]),
        (lambda **k: GRU(2, return_sequences=True, **k), ["float32"]),
        (lambda **k: LSTM(2, return_sequences=True, **k), ["float16", "float32"]),
    ],
)
def test_a_memory_is_float32_where_the_rest_is_less(make, dtypes):
    state = make(dtype="mixed_float16").get_initial_state(1)
    assert [keras.backend.standardize_dtype(part.dtype) for part in tree.flatten(state)] == dtypes


@rare_on_jax("case", CASES, quick=("gru_reset_before", "lstm"))
@pytest.mark.parametrize(("option", "weight"), [("dropout", 0), ("recurrent_dropout", 1)])
def test_dropout_keeps_the_same_features_at_every_position_of_a_row(case, option, weight):
    """To drop features on the way into a matrix is to scale its rows, for the whole of a sequence."""
    rate, rows = 0.4, (D, UNITS)[weight]
    layer, x = weighted(case.make(**{option: rate}, seed=3)), draw(16, 4, D)
    state, original = state_like(layer, 16), layer.get_weights()
    got = numpy(layer(x, state=state, training=True))
    np.testing.assert_array_equal(numpy(layer(x, state=state, training=False)), numpy(layer(x, state=state)))
    found = []
    for recurrent_dropout_mask in itertools.product([0, 1 / (1 - rate)], repeat=rows):
        scaled = list(original)
        scaled[weight] = np.array(recurrent_dropout_mask)[:, None] * original[weight]
        layer.set_weights(scaled)
        found.append(np.isclose(numpy(layer(x, state=state)), got, atol=1e-5).all(axis=(1, 2)))
    found = np.array(found)  # [what is kept, row]
    assert found.any(axis=0).all()  # each row is one of them
    assert not found.all(axis=1).any()  # and not all the same one
    assert found.any(axis=1).sum() > 2


@each
def test_without_dropout_there_is_no_seed_to_keep(case):
    plain, one, both = (weighted(case.make(dropout=a, recurrent_dropout=b)) for a, b in [(0, 0), (0, 0.1), (0.1, 0.1)])
    assert len(plain.variables) == len(plain.weights)
    assert len(one.variables) == len(both.variables) == len(plain.weights) + 1


@functional
def test_state_goes_in_and_out_of_a_functional_model(case):
    """Of unknown length and batch, a batch of no rows among them."""
    layer = weighted(case.make())
    ids = keras.Input((None,), dtype="int32")
    start = [keras.Input(part.shape[1:]) for part in tree.flatten(layer.get_initial_state(1))]
    embedding = keras.layers.Embedding(5, D)
    packed = tree.pack_sequence_as(layer.get_initial_state(1), start)
    y, state = layer(embedding(ids), state=packed, return_state=True)
    assert tuple(y.shape) == (None, None, UNITS)
    model = keras.Model([ids, *start], [y, *tree.flatten(state)])
    given = np.array([[1, 2, 0, 3], [4, 0, 1, 1]])
    for batch, length in [(2, 4), (2, 1), (0, 4)]:
        state = state_like(layer, batch)
        expected = values(layer(numpy(embedding(given[:batch, :length])), state=state, return_state=True))
        got = values(model([ops.convert_to_tensor(given[:batch, :length]), *tree.flatten(state)]))
        assert got[0].shape == (batch, length, UNITS)
        assert_close(got, expected, atol=2e-6)
    predicted = model.predict([given, *values(state_like(layer, 2))], verbose=0)  # compiled
    expected = values(layer(numpy(embedding(given)), state=state_like(layer, 2), return_state=True))
    assert_close(predicted, expected, atol=2e-6)


def test_layer_norm_does_not_see_the_size_of_its_matrices():
    layer = weighted(LayerNormLSTM(4, epsilon=1e-9, return_sequences=True))
    x, state = draw(2, 5, D), state_like(layer, 2)
    expected = values(layer(x, state=state, return_state=True))
    kernel, recurrent, *others = layer.get_weights()
    layer.set_weights([100 * kernel, 0.1 * recurrent, *others])
    assert_close(values(layer(x, state=state, return_state=True)), expected, atol=2e-5)
    layer.set_weights([-kernel, recurrent, *others])
    assert np.abs(values(layer(x, state=state))[0] - expected[0]).max() > 1e-2


def test_epsilon_counts_and_is_kept():
    layer = weighted(LayerNormLSTM(4, return_sequences=True))
    wider = weighted(LayerNormLSTM.from_config({**layer.get_config(), "epsilon": 0.5}))
    assert wider.get_config()["epsilon"] == 0.5
    assert np.abs(numpy(wider(draw(2, 5, D))) - numpy(layer(draw(2, 5, D)))).max() > 1e-2
