import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_seq.layers import CausalDepthwiseConv1D

BACKEND = keras.backend.backend()
B, T, D, K = 2, 7, 3, 4
numpy = ops.convert_to_numpy


def oracle(layer, x, before=None):
    """The sum of the module's docstring, term by term, in float64."""
    kernel, bias = (numpy(v).astype("float64") for v in (layer.kernel, layer.bias))
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


def wide(y):
    return numpy(ops.cast(y, "float32"))


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("length", [1, 2, T])
def test_it_is_the_formula(float64, exact, made, size, length):
    layer, x, before = made(size, dtype="float64"), inputs(length=length, dtype="float64"), a_state(size, "float64")
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


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_stepping_equals_the_whole(made, policy):
    layer = made(dtype=policy)
    x = ops.cast(inputs(), layer.compute_dtype)
    whole, last = layer(x, return_state=True)
    state, steps = layer.get_initial_state(B), []
    for t in range(T):
        y, state = layer.step(x[:, t], state)
        steps.append(y)
    y = ops.stack(steps, axis=1)
    for got, want in ((y, whole), (state, last)):
        assert keras.backend.standardize_dtype(got.dtype) == layer.compute_dtype
        assert got.dtype == want.dtype
    rounding = {"float32": 1e-6, "mixed_bfloat16": 2e-2, "mixed_float16": 2e-3}[policy]
    np.testing.assert_allclose(wide(y), wide(whole), atol=rounding)
    np.testing.assert_array_equal(wide(state), wide(last))
    np.testing.assert_array_equal(wide(state), wide(x)[:, 1 - K :])
    np.testing.assert_allclose(wide(whole), oracle(layer, wide(x)), atol=2 * rounding)


@given(cuts=st.sets(st.integers(1, T - 1)))
def test_pieces_of_any_length_equal_the_whole(cuts):
    layer, x = CausalDepthwiseConv1D(K), inputs()
    whole, last = layer(x, return_state=True)
    state, pieces = layer.get_initial_state(B), []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), T], strict=True):
        y, state = layer(x[:, start:end], state=state, return_state=True)
        pieces.append(numpy(y))
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), numpy(whole), atol=1e-6)
    np.testing.assert_array_equal(numpy(state), numpy(last))


MASKS = {
    "left": [0, 0, 0, 1, 1, 1, 1],
    "right": [1, 1, 1, 1, 1, 0, 0],
    "interior": [1, 0, 0, 1, 0, 1, 1],
    "one": [0, 0, 0, 1, 0, 0, 0],
}


@pytest.mark.parametrize("continued", [False, True])
@pytest.mark.parametrize("padding", MASKS)
def test_a_mask_is_a_shorter_sequence(made, padding, continued):
    layer, x, real = made(), inputs(), np.array(MASKS[padding], bool)
    before = ops.convert_to_tensor(a_state() if continued else np.zeros((B, K - 1, D), "float32"))
    mask = np.stack([real, np.ones(T, bool)])
    y, state = layer(x, state=before, mask=mask, return_state=True)
    short, last = layer(x[:1, real], state=before[:1], return_state=True)
    np.testing.assert_allclose(numpy(y)[0, real], numpy(short)[0], atol=1e-6)
    np.testing.assert_array_equal(numpy(state)[0], numpy(last)[0])
    np.testing.assert_allclose(numpy(y)[1], numpy(layer(x[1:], state=before[1:]))[0], atol=1e-6)
    np.testing.assert_array_equal(numpy(state)[1], x[1, 1 - K :])
    changed = np.where(mask[..., None], x, 99.0).astype("float32")  # what is masked does not count
    again, state_again = layer(changed, state=before, mask=mask, return_state=True)
    np.testing.assert_array_equal(numpy(again)[mask], numpy(y)[mask])
    np.testing.assert_array_equal(numpy(state_again), numpy(state))


@pytest.mark.parametrize("length", [1, T])
def test_a_row_without_a_real_position_keeps_its_state(made, length):
    mask = np.array([[False] * length, [True] * length])
    y, state = made()(inputs(length=length), state=ops.convert_to_tensor(a_state()), mask=mask, return_state=True)
    np.testing.assert_array_equal(numpy(state)[0], a_state()[0])
    assert np.isfinite(numpy(y)).all()


def test_masked_pieces_equal_the_masked_whole(made):
    layer, x = made(), inputs()
    mask = np.array([MASKS["interior"], MASKS["left"]], bool)
    whole, last = layer(x, mask=mask, return_state=True)
    state, pieces = layer.get_initial_state(B), []
    for start, end in ((0, 2), (2, 3), (3, T)):
        y, state = layer(x[:, start:end], state=state, mask=mask[:, start:end], return_state=True)
        pieces.append(numpy(y))
    np.testing.assert_allclose(np.concatenate(pieces, axis=1)[mask], numpy(whole)[mask], atol=1e-6)
    np.testing.assert_array_equal(numpy(state), numpy(last))


@pytest.mark.parametrize("padding", [None, "interior"])
def test_gradients_are_those_of_finite_differences(float64, check_gradients, made, padding):
    mask = {} if padding is None else {"mask": np.array([MASKS[padding], [1] * T], bool)}
    check_gradients(made(dtype="float64"), inputs(dtype="float64"), **mask)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@given(t=st.integers(1, T - 1))
def test_the_future_cannot_leak_and_the_window_ends(policy, t):
    layer, x = CausalDepthwiseConv1D(3, dtype=policy), inputs()
    layer(x)
    changed = x.copy()
    changed[:, t] += 10.0
    moved = (wide(layer(x)) != wide(layer(changed))).any(axis=(0, 2))
    np.testing.assert_array_equal(moved, [t <= n < t + 3 for n in range(T)])


@pytest.mark.parametrize("size", [1, 0, -2, 2.5, None, True])
def test_kernel_sizes_that_make_no_convolution_are_refused(size):
    with pytest.raises(ValueError, match=f"kernel_size={size!r}; expected .*at least"):
        CausalDepthwiseConv1D(size)


def test_inputs_that_are_no_sequence_are_refused():
    with pytest.raises(ValueError, match=r"inputs has shape \(None, 3\); expected \[B, T, D\]"):
        CausalDepthwiseConv1D().build((None, 3))
    with pytest.raises(ValueError, match="glorot"):
        CausalDepthwiseConv1D(kernel_initializer="glorot")
    layer = CausalDepthwiseConv1D()
    layer(inputs())
    with pytest.raises(ValueError, match=r"mask has shape .*expected rank 2"):
        layer(inputs(), mask=np.ones((B, T, D), bool))


def test_the_kernel_has_a_row_for_each_position(made):
    assert made().kernel.shape == (K, D)


@pytest.mark.parametrize("masked", [False, True])
def test_an_empty_batch(masked):
    y, state = CausalDepthwiseConv1D()(
        inputs(batch=0), mask=np.ones((0, T), bool) if masked else None, return_state=True
    )
    assert tuple(y.shape) == (0, T, D)
    assert tuple(state.shape) == (0, K - 1, D)
