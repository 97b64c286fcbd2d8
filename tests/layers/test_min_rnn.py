import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.layers import MinGRU, MinLSTM
from keras_seq.layers.recurrent import min_rnn
from tests.layers.conftest import ROUTES, compiled, on, rare_on_jax, sigmoid, wide

BACKEND = keras.backend.backend()
UNITS, WIDTH, LONG = 5, 3, 4096
numpy = ops.convert_to_numpy
each = pytest.mark.parametrize("kind", [MinGRU, MinLSTM])
both = pytest.mark.parametrize("route", ROUTES)
NARROW = BACKEND == "jax"  # Keras takes logaddexp in float32 there
WHOLE = compiled(min_rnn.log_linear_recurrence)


@pytest.fixture(autouse=True)
def _compiled(monkeypatch):
    if BACKEND == "jax":
        monkeypatch.setattr(min_rnn, "log_linear_recurrence", WHOLE)


def oracle(layer, x, h=None):
    """The sequential formulas of the paper, without logarithms, in float64."""
    kernel, bias = (numpy(v).astype("float64") for v in layer.weights)
    h = np.zeros((len(x), layer.units)) if h is None else np.asarray(h, "float64")
    states = []
    for t in range(x.shape[1]):
        *gates, v = np.split(x[:, t].astype("float64") @ kernel + bias, layer.num_gates, axis=-1)
        candidate = np.where(v >= 0, v + 0.5, sigmoid(v))
        if isinstance(layer, MinGRU):
            z = sigmoid(gates[0])
            h = (1 - z) * h + z * candidate
        else:
            f, i = map(sigmoid, gates)
            h = f / (f + i) * h + i / (f + i) * candidate
        states.append(h)
    return np.stack(states, axis=1)


@pytest.fixture
def made(randomize):
    def made(kind, width=WIDTH, units=UNITS, **kwargs):
        layer = kind(units, return_sequences=True, **kwargs)
        layer.build((None, None, width))
        return randomize(layer, scale=0.8)

    return made


def inputs(batch=2, length=7, seed=1, dtype="float32"):
    return np.random.default_rng(seed).normal(size=(batch, length, WIDTH)).astype(dtype)


def a_state(batch=2, dtype="float32"):
    return np.random.default_rng(5).uniform(0, 2, (batch, UNITS)).astype(dtype)


@each
@both
@pytest.mark.parametrize(("batch", "length"), [(1, 1), (3, 7)])
def test_it_is_the_formula_of_the_paper(float64, exact, made, kind, route, batch, length):
    if NARROW:
        exact = {"rtol": 1e-5, "atol": 2e-6}
    layer = made(kind, dtype="float64")
    x, h = inputs(batch, length, dtype="float64"), a_state(batch, "float64")
    with on(route):
        y, last = layer(x, state=ops.convert_to_tensor(h), return_state=True)
    np.testing.assert_allclose(numpy(y), oracle(layer, x, h), **exact)
    np.testing.assert_array_equal(numpy(y)[:, -1], numpy(last))
    np.testing.assert_allclose(numpy(layer(x)), oracle(layer, x), **exact)


@each
@both
@rare_on_jax("policy", ["float32", "mixed_bfloat16"], quick=("float32",))
def test_thousands_of_positions_are_those_of_the_formula(all_gradients, made, kind, route, policy):
    layer, x = made(kind, dtype=policy), inputs(1, LONG)
    x[:, LONG // 2 :] *= 3  # gates wide open and shut
    with on(route):
        y = wide(compiled(layer)(ops.convert_to_tensor(x)))
        got = all_gradients(layer, x)
    rounding = 2e-5 if policy == "float32" else 4e-2
    np.testing.assert_allclose(y, oracle(layer, x), rtol=rounding, atol=rounding)
    assert all(np.isfinite(gradient).all() and gradient.any() for gradient in got)


@each
@both
@rare_on_jax("policy", ["float32", "mixed_float16"], quick=("mixed_float16",))
def test_outputs_of_extreme_gates_are_finite_and_not_negative(all_gradients, kind, route, policy):
    layer = kind(1, return_sequences=True, dtype=policy)
    layer.build((None, None, layer.num_gates))
    layer.set_weights([np.eye(layer.num_gates), np.zeros(layer.num_gates)])  # x is what the gates see
    corners = np.stack(np.meshgrid(*[[-100.0, 0.5, 100.0]] * layer.num_gates), axis=-1).reshape(1, -1, layer.num_gates)
    x = np.concatenate([corners, corners[:, ::-1]], axis=1).astype("float32")
    with on(route):
        y, got = wide(layer(x)), all_gradients(layer, x)
    rounding = 2e-5 if policy == "float32" else 2e-3
    np.testing.assert_allclose(y, oracle(layer, x), rtol=rounding, atol=rounding)
    assert (y >= 0).all()
    assert all(np.isfinite(gradient).all() for gradient in got)


@each
@both
def test_a_negative_state_and_one_that_is_no_number_count_as_they_are(made, kind, route):
    """Nothing here makes one, but a caller may."""
    layer, x, h = made(kind), inputs(), -2.0 * a_state()
    with on(route):
        y = numpy(layer(x, state=ops.convert_to_tensor(h)))
        spoilt = numpy(layer(x, state=ops.convert_to_tensor(np.where([[True], [False]], np.nan, h))))
    np.testing.assert_allclose(y, oracle(layer, x, h), atol=2e-5)
    assert np.isnan(spoilt[0]).all()
    np.testing.assert_allclose(spoilt[1], y[1], atol=1e-6)
