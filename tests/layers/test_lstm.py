import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.layers import LSTM
from keras_seq.layers.lstm import lstm_cell


def oracle(x, kernel, recurrent_kernel, bias, h, c, mask=None):
    """The equations with their gates by name, one row and one position after the other, in float64."""
    units = len(h[0])
    y = np.zeros((*x.shape[:2], units))
    h, c = np.array(h, "float64"), np.array(c, "float64")
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            if mask is None or mask[b, t]:
                z = x[b, t] @ kernel + h[b] @ recurrent_kernel + bias
                input_gate, forget_gate = 1 / (1 + np.exp(-z[:units])), 1 / (1 + np.exp(-z[units : 2 * units]))
                candidate, output_gate = np.tanh(z[2 * units : 3 * units]), 1 / (1 + np.exp(-z[3 * units :]))
                c[b] = forget_gate * c[b] + input_gate * candidate
                h[b] = output_gate * np.tanh(c[b])
            y[b, t] = h[b]
    return y, h, c


def random_layer(units=5, width=3, **kwargs):
    layer = LSTM(units, **kwargs)
    layer.build((None, None, width))
    random = np.random.default_rng(0)
    layer.set_weights([random.normal(size=w.shape) for w in layer.weights])
    return layer


def numpy_weights(layer):
    return [ops.convert_to_numpy(w).astype("float64") for w in layer.weights]


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (3, 7), (2, 130)])
def test_equals_the_equations(batch, length):
    layer = random_layer()
    random = np.random.default_rng(1)
    x, h, c = (random.normal(size=s).astype("float32") for s in [(batch, length, 3), (batch, 5), (batch, 5)])
    y, (last_h, last_c) = layer(x, state=(ops.array(h), ops.array(c)), return_state=True)
    expected = oracle(x, *numpy_weights(layer), h, c)
    for got, want in zip((y, last_h, last_c), expected, strict=True):
        np.testing.assert_allclose(ops.convert_to_numpy(got), want, atol=2e-5)


def test_the_worked_example_of_the_notes():
    """h0 = [1, 1], C0 = [0.3, -0.5] and the pre-activations of the notes, with exact sigmoid and tanh."""
    z = np.array([[6, 4, -4, -6, 1, -6, 4, -5]], "float32")  # input, forget, candidate, output
    h, c = (ops.convert_to_numpy(v)[0] for v in lstm_cell(ops.array(z), ops.array([[0.3, -0.5]], "float32")))
    np.testing.assert_allclose(c, [0.7651069, -0.9832380], atol=1e-6)
    np.testing.assert_allclose(h, [0.6324907, -0.0050495], atol=1e-6)


@pytest.mark.parametrize("side", ["left", "right", "inside"])
def test_a_masked_position_copies_the_state(side):
    layer = random_layer()
    x = np.random.default_rng(2).normal(size=(2, 6, 3)).astype("float32")
    mask = {
        "left": [[0, 0, 1, 1, 1, 1], [1] * 6],
        "right": [[1, 1, 1, 0, 0, 0], [1] * 6],
        "inside": [[1, 0, 1, 0, 0, 1], [0, 1, 1, 1, 0, 1]],
    }[side]
    mask = np.array(mask, bool)
    y, (h, c) = layer(x, mask=mask, return_state=True)
    zeros = np.zeros((2, 5))
    for got, want in zip((y, h, c), oracle(x, *numpy_weights(layer), zeros, zeros, mask), strict=True):
        np.testing.assert_allclose(ops.convert_to_numpy(got), want, atol=2e-5)
    alone = layer(x[:1, mask[0]])
    np.testing.assert_allclose(ops.convert_to_numpy(y)[:1, mask[0]], ops.convert_to_numpy(alone), atol=2e-6)


def test_a_row_that_is_all_padding_gives_its_initial_state():
    y = random_layer()(np.ones((1, 4, 3), "float32"), mask=np.zeros((1, 4), bool))
    np.testing.assert_array_equal(ops.convert_to_numpy(y), 0.0)


def test_masks_come_by_keras_own_route():
    ids = np.array([[0, 0, 4, 2], [1, 3, 0, 0]])
    embedding, layer = keras.layers.Embedding(5, 3, mask_zero=True), random_layer()
    y = layer(embedding(ids))
    np.testing.assert_allclose(
        ops.convert_to_numpy(y), ops.convert_to_numpy(layer(embedding(ids), mask=ids != 0)), atol=1e-6
    )
    assert getattr(y, "_keras_mask", None) is not None


@pytest.mark.parametrize("bias_initializer", ["unit_forget", "zeros"])
def test_weights_are_those_of_keras(bias_initializer):
    x = np.random.default_rng(3).normal(size=(2, 9, 3)).astype("float32")
    ours = random_layer(bias_initializer=bias_initializer)
    theirs = keras.layers.LSTM(5, return_sequences=True)
    theirs.build((None, None, 3))
    theirs.set_weights(ours.get_weights())
    np.testing.assert_allclose(ops.convert_to_numpy(theirs(x)), ops.convert_to_numpy(ours(x)), atol=2e-6)
    back = LSTM(5)
    back.build((None, None, 3))
    back.set_weights(theirs.get_weights())
    np.testing.assert_array_equal(ops.convert_to_numpy(back(x)), ops.convert_to_numpy(ours(x)))


def test_the_forget_gate_starts_at_one():
    layer = LSTM(4)
    layer.build((None, None, 3))
    np.testing.assert_array_equal(layer.get_weights()[2], [0] * 4 + [1] * 4 + [0] * 8)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16", "float64"])
def test_stepping_equals_the_whole(policy):
    if policy == "float64" and keras.backend.backend() != "tensorflow":
        pytest.skip("Keras narrows float64 to float32 on this backend")
    layer = random_layer(dtype=policy)
    wide = "float64" if policy == "float64" else "float32"
    x = ops.cast(np.random.default_rng(4).normal(size=(2, 8, 3)).astype(wide), layer.compute_dtype)
    whole, (h, c) = layer(x, return_state=True)
    state, steps = layer.initial_state(2), []
    for t in range(8):
        y, state = layer.step(x[:, t], state)
        steps.append(y)
    tolerance = {"float32": 1e-6, "mixed_bfloat16": 2e-2, "mixed_float16": 2e-3, "float64": 1e-12}[policy]
    for got, want in ((ops.stack(steps, 1), whole), (state[0], h), (state[1], c)):
        assert got.dtype == want.dtype
        got, want = (ops.convert_to_numpy(ops.cast(v, wide)) for v in (got, want))
        np.testing.assert_allclose(got, want, atol=tolerance)
    assert keras.backend.standardize_dtype(c.dtype) == wide


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_the_future_does_not_leak(policy):
    layer = random_layer(dtype=policy)
    x = np.random.default_rng(5).normal(size=(1, 6, 3)).astype("float32")
    changed = x.copy()
    changed[:, 4:] += 10.0
    before, after = (ops.convert_to_numpy(ops.cast(layer(ops.array(v)), "float32")) for v in (x, changed))
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert (before[:, 4:] != after[:, 4:]).any()


@pytest.mark.parametrize("units", [0, -1, 2.5, None])
def test_units_that_are_no_size_are_refused(units):
    with pytest.raises(ValueError, match=f"units={units!r}"):
        LSTM(units)


def test_an_input_of_the_wrong_rank_is_refused():
    with pytest.raises(ValueError, match=r"expected \[B, T, D\]"):
        LSTM(4).build((None, 3))


def test_the_recurrent_initializer_of_the_original_is_an_option():
    layer = LSTM(64, recurrent_initializer="glorot_normal")
    layer.build((None, None, 3))
    deviation = np.std(layer.get_weights()[1])
    assert deviation == pytest.approx((2 / (64 + 256)) ** 0.5, rel=0.05)
