import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.layers import SelectiveStateSpace
from keras_seq.layers.linear import mamba
from keras_seq.layers.linear.mixer import time_step_bias
from tests.layers.conftest import ROUTES, compiled, on, rare_on_jax, wide

BACKEND = keras.backend.backend()
B, T, D, N, LONG = 2, 6, 3, 4, 4096
OPTIONS = {"state_dim": N, "kernel_size": 3, "dt_rank": 2, "use_bias": True}
numpy = ops.convert_to_numpy
both = pytest.mark.parametrize("route", ROUTES)
WHOLE = compiled(mamba.selective_scan)


@pytest.fixture(autouse=True)
def _compiled(monkeypatch):
    if BACKEND == "jax":
        monkeypatch.setattr(mamba, "selective_scan", WHOLE)


def scan_oracle(x, delta, a, b, c, h):
    """One row, one position and one feature after the other, in float64."""
    h, y = np.array(h, "float64"), np.zeros(x.shape)
    for row, t, e in np.ndindex(*x.shape):
        h[row, e] = np.exp(delta[row, t, e] * a[e]) * h[row, e] + delta[row, t, e] * b[row, t] * x[row, t, e]
        y[row, t, e] = c[row, t] @ h[row, e]
    return y, h


def oracle(layer, x):
    """The layer's equations from its zero state, in float64. Returns `(y, (inputs, h))`."""

    def of(v):
        return numpy(v).astype("float64")

    def dense(part, v):
        return v @ of(part.kernel) + (0 if part.bias is None else of(part.bias))

    def silu(v):
        return v / (1 + np.exp(-v))

    u, gate = np.split(dense(layer.input_dense, x.astype("float64")), 2, axis=-1)
    kernel, last = of(layer.convolution.kernel), layer.kernel_size - 1
    padded = np.pad(u, [(0, 0), (last, 0), (0, 0)])
    taps = (padded[:, last - k : last - k + x.shape[1]] * kernel[k] for k in range(last + 1))
    u = silu(sum(taps) + of(layer.convolution.bias))
    delta = np.log1p(np.exp(dense(layer.dt_up, dense(layer.dt_down, u))))
    b, c, a = dense(layer.b_dense, u), dense(layer.c_dense, u), -np.exp(of(layer.log_a))
    y, h = scan_oracle(u, delta, a, b, c, np.zeros((len(x), *a.shape)))
    return dense(layer.output_dense, (y + of(layer.skip) * u) * silu(gate)), (padded[:, -last:], h)


@pytest.fixture
def made(randomize):
    def made(**kwargs):
        layer = SelectiveStateSpace(**(OPTIONS | kwargs))
        layer.build((None, None, D))
        return randomize(layer, scale=0.6)

    return made


def inputs(batch=B, length=T, seed=1, dtype="float32"):
    return np.random.default_rng(seed).normal(size=(batch, length, D)).astype(dtype)


def parts(y, state):
    """y and the two parts of the state."""
    return y, state[0], state[1]


@both
@pytest.mark.parametrize(("batch", "length"), [(1, 1), (3, 7)])
def test_the_scan_is_the_loop(float64, exact, route, batch, length):
    random = np.random.default_rng(3)
    shapes = [(batch, length, 5), (batch, length, 5), (5, N), (batch, length, N), (batch, length, N), (batch, 5, N)]
    args = [random.normal(size=shape) for shape in shapes]
    args[1], args[2] = np.exp(args[1]), -np.exp(args[2])
    args[1][0, 0] = 0.0  # a step of no length
    with on(route):
        got = mamba.selective_scan(*map(ops.convert_to_tensor, args))
    for ours, theirs in zip(got, scan_oracle(*args), strict=True):
        np.testing.assert_allclose(numpy(ours), theirs, **exact)


@both
@pytest.mark.parametrize("options", [{}, {"use_bias": False, "expand": 3, "kernel_size": 2, "dt_rank": None}])
def test_it_is_the_formula(float64, exact, made, route, options):
    if BACKEND == "jax":
        exact = {"rtol": 1e-5, "atol": 2e-5}  # Keras narrows the dtype of the scan to float32 there
    layer, x = made(**options, dtype="float64"), inputs(dtype="float64")
    with on(route):
        got = parts(*layer(x, return_state=True))
    for ours, theirs in zip(got, parts(*oracle(layer, x)), strict=True):
        np.testing.assert_allclose(numpy(ours), theirs, **exact)


@both
@rare_on_jax("policy", ["float32", "mixed_bfloat16"], quick=("float32",))
def test_thousands_of_positions_are_those_of_the_formula(all_gradients, route, policy):
    layer, x = SelectiveStateSpace(**OPTIONS, expand=1, dtype=policy), inputs(1, LONG)
    layer.build(x.shape)  # the weights of a start, whose A and step lengths reach far
    with on(route):
        y, got = wide(compiled(layer)(ops.convert_to_tensor(x))), all_gradients(layer, x)
    expected = oracle(layer, x)[0]
    np.testing.assert_allclose(y, expected, atol=2e-5 if policy == "float32" else 0.03 * np.abs(expected).max())
    assert all(np.isfinite(gradient).all() and gradient.any() for gradient in got)


@both
def test_long_steps_forget_and_short_ones_keep(all_gradients, made, route):
    layer, x = made(), inputs()
    layer.dt_up.bias.assign([200.0] * D + [-200.0] * D)
    before = layer.convolution.get_initial_state(B), ops.ones((B, 2 * D, N))
    with on(route):
        _, (_, h) = layer(x, state=before, return_state=True)
        got = all_gradients(layer, x)
    alone = numpy(layer(x, return_state=True)[1][1])  # from the zero state
    np.testing.assert_array_equal(numpy(h)[:, D:], 1.0)
    np.testing.assert_allclose(numpy(h)[:, :D], alone[:, :D], rtol=1e-5)
    assert all(np.isfinite(gradient).all() for gradient in got)


def test_in_bfloat16_step_lengths_vary_by_less_than_their_bias_is_rounded_by(made):
    """Between -8 and -4 numbers of bfloat16 are 0.03 apart."""

    def log_ratio(policy):
        layer, last = made(dtype=policy), []
        layer.dt_up.bias.assign([-7.0] * 2 * D)
        for scale in (0.0, 0.01):
            layer.dt_up.kernel.assign(np.full((2, 2 * D), scale))
            last.append(numpy(layer(inputs(length=1), return_state=True)[1][1]))
        return np.log(last[1] / last[0])

    expected = log_ratio("float32")
    assert 1e-4 < np.abs(expected).max() < 0.015
    np.testing.assert_allclose(log_ratio("mixed_bfloat16"), expected, atol=0.05 * np.abs(expected).max())


def test_step_lengths_are_even_in_the_logarithm():
    bias = numpy(time_step_bias((9,))).astype("float64")
    lengths = np.log1p(np.exp(bias))
    assert lengths.min() == pytest.approx(1e-3, rel=1e-3)
    assert lengths.max() == pytest.approx(0.1, rel=1e-4)
    np.testing.assert_allclose(np.diff(np.log(lengths)), np.log(100) / 8, rtol=5e-3)


def test_weights_at_the_start():
    layer = SelectiveStateSpace(state_dim=N, output_initializer="zeros")
    layer.build((None, None, 17))
    np.testing.assert_allclose(-np.exp(numpy(layer.log_a)), np.broadcast_to([-1, -2, -3, -4], (34, N)), rtol=1e-6)
    np.testing.assert_array_equal(numpy(layer.skip), 1.0)
    np.testing.assert_allclose(numpy(layer.dt_up.bias), numpy(time_step_bias((34,))))
    assert layer.dt_down.kernel.shape == (34, 2)  # 17 / 16, rounded up
    assert layer.input_dense.kernel.shape == (17, 68)
    assert not numpy(layer.output_dense.kernel).any()
    assert not np.allclose(numpy(layer.b_dense.kernel), numpy(layer.c_dense.kernel))
    assert [part.bias is None for part in (layer.input_dense, layer.output_dense, layer.b_dense)] == [True] * 3
