import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_seq.layers import CausalDepthwiseConv1D
from tests.layers.conftest import few, wide

B, T, D, K = 2, 7, 3, 4
numpy = ops.convert_to_numpy


def oracle(layer, x, before=None):
    """The sum of the module's docstring, term by term, in float64."""
    kernel = numpy(layer.kernel).astype("float64")
    bias = numpy(layer.bias).astype("float64") if layer.use_bias else 0
    size = len(kernel)
    before = np.zeros((len(x), size - 1, x.shape[-1])) if before is None else before
    y = np.zeros(x.shape)
    for t in range(x.shape[1]):
        y[:, t] = bias
        for k in range(size):
            y[:, t] += kernel[k] * (x[:, t - k] if t >= k else before[:, size - 1 + t - k])
    return y


@pytest.fixture
def made(randomize):
    def made(kernel_size=K, **kwargs):
        layer = CausalDepthwiseConv1D(kernel_size, **kwargs)
        layer.build((None, None, D))
        return randomize(layer)

    return made


def inputs(batch=B, length=T, seed=1, dtype="float32"):
    return np.random.default_rng(seed).normal(size=(batch, length, D)).astype(dtype)


def a_state(size=K, dtype="float32"):
    return inputs(length=size - 1, seed=5, dtype=dtype)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize(("length", "use_bias"), [(1, True), (2, False), (T, True), (T, False)])
def test_it_is_the_formula(float64, exact, made, size, length, use_bias):
    layer = made(size, use_bias=use_bias, dtype="float64")
    x, before = inputs(length=length, dtype="float64"), a_state(size, "float64")
    np.testing.assert_allclose(numpy(layer(x)), oracle(layer, x), **exact)
    y, state = layer(x, state=ops.convert_to_tensor(before), return_state=True)
    np.testing.assert_allclose(numpy(y), oracle(layer, x, before), **exact)
    np.testing.assert_allclose(numpy(state), np.concatenate([before, x], axis=1)[:, 1 - size :], rtol=1e-6)


def test_keras_depthwise_convolution_gives_the_same(made):
    ours, theirs = made(), keras.layers.DepthwiseConv1D(K)
    x = inputs()
    padded = np.pad(x, [(0, 0), (K - 1, 0), (0, 0)])
    theirs.build(padded.shape)
    kernel, bias = ours.get_weights()
    theirs.set_weights([kernel[::-1, :, None], bias])
    np.testing.assert_allclose(numpy(ours(x)), numpy(theirs(padded)), atol=2e-6)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@few
@given(t=st.integers(1, T - 1))
def test_the_future_cannot_leak_and_the_window_ends(policy, t):
    layer, x = CausalDepthwiseConv1D(3, dtype=policy), inputs()
    layer(x)
    changed = x.copy()
    changed[:, t] += 10.0
    moved = (wide(layer(x)) != wide(layer(changed))).any(axis=(0, 2))
    np.testing.assert_array_equal(moved, [t <= n < t + 3 for n in range(T)])
