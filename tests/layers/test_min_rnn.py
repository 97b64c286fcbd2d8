import contextlib

import keras
import numpy as np
import pytest
from keras import ops

import keras_seq.ops
from keras_seq.layers import MinGRU, MinLSTM
from keras_seq.layers.recurrent import min_rnn
from tests.layers.conftest import compiled, rare_on_jax

BACKEND = keras.backend.backend()
UNITS, WIDTH, LONG = 5, 3, 4096
numpy = ops.convert_to_numpy
each = pytest.mark.parametrize("kind", [MinGRU, MinLSTM])
ROUTES = ["reference", "kernel"] if BACKEND == "tensorflow" else ["reference"]
both = pytest.mark.parametrize("route", ROUTES)
RARE_FLOAT16 = pytest.param("mixed_float16", marks=pytest.mark.rare)  # the law of bfloat16 once more
NARROW = BACKEND == "jax"  # Keras takes logaddexp in float32 there


WHOLE = compiled(min_rnn.log_linear_recurrence)


@pytest.fixture(autouse=True)
def _compiled(monkeypatch):
    if BACKEND == "jax":
        monkeypatch.setattr(min_rnn, "log_linear_recurrence", WHOLE)


def on(route):
    return keras_seq.ops.reference() if route == "reference" else contextlib.nullcontext()


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


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


def wide(y):
    return numpy(ops.cast(y, "float32"))


def all_gradients(gradients, layer, x, **kwargs):
    """Of the mean square, by the weights and by x."""
    values = [numpy(v) for v in layer.trainable_variables]

    def loss(v):
        y, _ = layer.stateless_call(v[:-1], [], v[-1], **kwargs)
        return ops.mean(ops.square(ops.cast(y, "float32")))

    return gradients(compiled(loss), [*values, x])


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
def test_no_two_gates_are_alike(made, kind):
    layer, x = made(kind), inputs()
    kernel, bias = layer.get_weights()
    right = numpy(layer(x))
    for shift in range(1, layer.num_gates):
        layer.set_weights([np.roll(v, shift * UNITS, axis=-1) for v in (kernel, bias)])
        got = numpy(layer(x))
        assert np.abs(got - right).max() > 0.1
        np.testing.assert_allclose(got, oracle(layer, x), atol=2e-5)


@each
@both
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", RARE_FLOAT16])
def test_stepping_equals_the_whole_and_the_formula(made, kind, route, policy):
    layer = made(kind, dtype=policy)
    x, h = ops.cast(inputs(), layer.compute_dtype), ops.convert_to_tensor(a_state())
    with on(route):
        whole, last = layer(x, state=h, return_state=True)
        state, steps = h, []
        for t in range(7):
            y, state = layer.step(x[:, t], state)
            assert keras.backend.standardize_dtype(state.dtype) == "float32"
            assert keras.backend.standardize_dtype(y.dtype) == layer.compute_dtype
            steps.append(y)
    rounding = {"float32": 1e-6, "mixed_bfloat16": 2e-2, "mixed_float16": 2e-3}[policy]
    np.testing.assert_allclose(wide(ops.stack(steps, 1)), wide(whole), rtol=rounding, atol=rounding)
    np.testing.assert_allclose(wide(state), wide(last), rtol=rounding, atol=rounding)
    expected = oracle(layer, wide(x), a_state())
    np.testing.assert_allclose(wide(whole), expected, rtol=2 * rounding, atol=max(2e-5, 2 * rounding))


@each
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_the_state_is_float32_whatever_it_comes_from(made, kind, policy):
    layer = made(kind, dtype=policy)
    states = [layer.get_initial_state(2), layer(inputs(), return_state=True)[1]]
    states.append(layer(inputs(), state=states[1], return_state=True)[1])
    assert {keras.backend.standardize_dtype(h.dtype) for h in states} == {"float32"}
    assert {tuple(h.shape) for h in states} == {(2, UNITS)}
    np.testing.assert_array_equal(numpy(states[0]), 0.0)


@each
@both
def test_pieces_equal_the_whole(made, kind, route):
    layer, x = made(kind), inputs(length=9)
    with on(route):
        whole, last = layer(x, return_state=True)
        state, pieces = layer.get_initial_state(2), []
        for start, end in ((0, 4), (4, 5), (5, 9)):
            y, state = layer(x[:, start:end], state=state, return_state=True)
            pieces.append(numpy(y))
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), numpy(whole), rtol=1e-5)
    np.testing.assert_allclose(numpy(state), numpy(last), rtol=1e-5)


@each
@both
@rare_on_jax("policy", ["float32", "mixed_bfloat16"], quick=("float32",))
def test_thousands_of_positions_are_those_of_the_formula(gradients, made, kind, route, policy):
    layer, x = made(kind, dtype=policy), inputs(1, LONG)
    x[:, LONG // 2 :] *= 3  # gates wide open and shut
    with on(route):
        y = wide(compiled(layer)(ops.convert_to_tensor(x)))
        got = all_gradients(gradients, layer, x)
    rounding = 2e-5 if policy == "float32" else 4e-2
    np.testing.assert_allclose(y, oracle(layer, x), rtol=rounding, atol=rounding)
    assert all(np.isfinite(gradient).all() and gradient.any() for gradient in got)


MASKS = {
    "left": [0, 0, 1, 1, 1, 1, 1],
    "right": [1, 1, 1, 1, 0, 0, 0],
    "interior": [1, 0, 1, 0, 0, 1, 1],
}


@each
@both
@pytest.mark.parametrize("padding", MASKS)
def test_a_mask_is_a_shorter_sequence(made, kind, route, padding):
    layer, x, real = made(kind), inputs(), np.array(MASKS[padding], bool)
    mask = np.stack([real, np.ones(7, bool)])
    with on(route):
        y, h = (numpy(v) for v in layer(x, mask=mask, return_state=True))
        short, last = (numpy(v) for v in layer(x[:1, real], return_state=True))
    np.testing.assert_allclose(y[0, real], short[0], rtol=1e-5)
    np.testing.assert_allclose(h[0], last[0], rtol=1e-5)
    np.testing.assert_allclose(y[1], oracle(layer, x)[1], atol=2e-5)
    before = np.concatenate([np.zeros((1, UNITS)), y[0, :-1]])
    np.testing.assert_allclose(y[0, ~real], before[~real], rtol=1e-5)  # copies the state
    if padding == "left":
        np.testing.assert_array_equal(y[0, ~real], 0.0)


@each
@both
def test_a_row_without_a_real_position_keeps_its_state(made, kind, route):
    h = a_state()
    with on(route):
        y, last = made(kind)(
            inputs(), state=ops.convert_to_tensor(h), mask=np.array([[False] * 7, [True] * 7]), return_state=True
        )
    np.testing.assert_allclose(numpy(y)[0], np.repeat(h[:1], 7, axis=0), rtol=1e-6)
    np.testing.assert_allclose(numpy(last)[0], h[0], rtol=1e-6)


@each
@both
@pytest.mark.parametrize("padding", [None, "interior"])
def test_gradients_are_those_of_finite_differences(float64, check_gradients, made, kind, route, padding):
    mask = {} if padding is None else {"mask": np.array([MASKS[padding], [1] * 7], bool)}
    differences = {"step": 1e-3, "tolerance": 1e-3} if NARROW else {}
    with on(route):
        check_gradients(made(kind, dtype="float64"), inputs(dtype="float64"), **mask, **differences)


@each
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", RARE_FLOAT16])
def test_the_future_cannot_leak(made, kind, route, policy):
    layer, x = made(kind, dtype=policy), inputs()
    with on(route):
        before = wide(layer(x))
        for t in (1, 4):
            changed = x.copy()
            changed[:, t:] += 10.0
            after = wide(layer(changed))
            np.testing.assert_array_equal(before[:, :t], after[:, :t])
            assert (before[:, t:] != after[:, t:]).any()


@each
@both
@rare_on_jax("policy", ["float32", "mixed_float16"], quick=("mixed_float16",))
def test_extreme_gates_are_finite(gradients, kind, route, policy):
    layer = kind(1, return_sequences=True, dtype=policy)
    layer.build((None, None, layer.num_gates))
    layer.set_weights([np.eye(layer.num_gates), np.zeros(layer.num_gates)])  # x is what the gates see
    corners = np.stack(np.meshgrid(*[[-100.0, 0.5, 100.0]] * layer.num_gates), axis=-1).reshape(1, -1, layer.num_gates)
    x = np.concatenate([corners, corners[:, ::-1]], axis=1).astype("float32")
    with on(route):
        y, got = wide(layer(x)), all_gradients(gradients, layer, x)
    rounding = 2e-5 if policy == "float32" else 2e-3
    np.testing.assert_allclose(y, oracle(layer, x), rtol=rounding, atol=rounding)
    assert all(np.isfinite(gradient).all() for gradient in got)


@each
@both
def test_the_output_is_never_negative(made, kind, route):
    layer = made(kind)
    layer.set_weights([-10 * np.abs(layer.get_weights()[0]), layer.get_weights()[1]])
    with on(route):
        y = numpy(layer(5 * inputs(2, 40)))
    assert (y >= 0).all()
    assert y.max() > 1


@each
def test_the_kernel_has_a_block_for_each_gate(made, kind):
    layer = made(kind)
    assert layer.num_gates == {MinGRU: 2, MinLSTM: 3}[kind]
    assert layer.kernel.shape == (WIDTH, layer.num_gates * UNITS)


@each
@pytest.mark.parametrize("units", [0, -1, 2.5, None, True])
def test_units_that_are_no_size_are_refused(kind, units):
    with pytest.raises(ValueError, match=f"units={units!r}; expected an integer of at least 1"):
        kind(units)


@each
def test_inputs_that_are_no_sequence_are_refused(kind):
    with pytest.raises(ValueError, match=r"inputs has shape \(None, 3\); expected \[B, T, D\]"):
        kind(4).build((None, 3))
    with pytest.raises(ValueError, match="glorot"):
        kind(4, kernel_initializer="glorot")
    layer = kind(4, return_sequences=True)
    layer(inputs())
    with pytest.raises(ValueError, match="was built for"):
        layer(np.zeros((2, 7, WIDTH + 1), "float32"))
    with pytest.raises(ValueError, match=r"mask has shape .*expected rank 2"):
        layer(inputs(), mask=np.ones((2, 7, 1), bool))


@each
@both
def test_an_empty_batch(kind, route):
    with on(route):
        y, h = kind(4, return_sequences=True)(inputs(batch=0), return_state=True)
    assert tuple(y.shape) == (0, 7, 4)
    assert tuple(h.shape) == (0, 4)


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
