import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops, tree

from keras_seq.layers import AlibiPositions, MultiHeadSelfAttention, RotaryPositions

B, T, D = 2, 6, 8
POSITIONS = {"none": None, "rotary": RotaryPositions(), "alibi": AlibiPositions()}
numpy = ops.convert_to_numpy


def inputs(seed=0):
    return np.random.default_rng(seed).normal(size=(B, T, D)).astype("float32")


def piecewise(layer, x, cuts, capacity, mask=None):
    state, pieces = layer.get_initial_state(B, capacity), []
    for start, end in zip([0, *cuts], [*cuts, T], strict=True):
        masked = {} if mask is None else {"mask": mask[:, start:end]}
        y, state = layer(x[:, start:end], state=state, return_state=True, **masked)
        pieces.append(numpy(ops.cast(y, "float32")))
    return np.concatenate(pieces, axis=1), state


@pytest.mark.parametrize("positions", POSITIONS)
@given(
    cuts=st.sampled_from([[], [1], [3], [1, 2, 3, 4, 5], [2, 5]]),
    capacity=st.sampled_from([T, T + 3]),
    sliding_window=st.sampled_from([None, 2]),
    heads=st.sampled_from([1, 2]),
)
def test_cached_equals_whole(positions, cuts, capacity, sliding_window, heads):
    layer = MultiHeadSelfAttention(
        2,
        causal=True,
        positions=POSITIONS[positions],
        sliding_window=sliding_window,
        num_key_value_heads=heads,
        value_dim=3,
    )
    x = inputs()
    whole = numpy(layer(x))
    got, state = piecewise(layer, x, cuts, capacity)
    np.testing.assert_allclose(got, whole, atol=1e-5)
    assert int(state["length"]) == T
    expected = np.r_[np.arange(T), np.full(capacity - T, -1)]
    if sliding_window is not None:  # the cache holds the window only
        expected = np.arange(T)[-sliding_window:]
    np.testing.assert_array_equal(numpy(state["position"]), [expected, expected])


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("cuts", [[2], [1, 2, 3, 4, 5]], ids=str)
def test_padding_in_a_cache_is_skipped_too(positions, cuts):
    layer = MultiHeadSelfAttention(2, causal=True, positions=POSITIONS[positions], sliding_window=3)
    x, mask = inputs(), np.array([[0, 1, 0, 1, 1, 0], [1, 1, 1, 1, 1, 1]], bool)
    layer(x)
    got, state = piecewise(layer, x, cuts, T, mask)
    np.testing.assert_allclose(got[0, mask[0]], numpy(layer(x[:1, mask[0]]))[0], atol=1e-5)
    np.testing.assert_allclose(got[1], numpy(layer(x[1:]))[0], atol=1e-5)
    np.testing.assert_array_equal(numpy(state["position"]), [[0, 1, 2], [3, 4, 5]])  # the window, without padding


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_a_cache_in_half_precision(dtype):
    layer = MultiHeadSelfAttention(2, causal=True, positions=RotaryPositions(), dtype=dtype)
    x = inputs()
    whole = numpy(ops.cast(layer(x), "float32"))
    got, state = piecewise(layer, x, [1, 4], T)
    np.testing.assert_allclose(got, whole, atol=2e-2)
    assert keras.backend.standardize_dtype(state["key"].dtype) == layer.compute_dtype


def test_shapes_and_dtypes_never_change():
    layer = MultiHeadSelfAttention(2, causal=True, positions=RotaryPositions())
    layer(inputs())
    before = layer.get_initial_state(B, 9)
    _, after = layer(inputs(), state=before, return_state=True)

    def kinds(state):
        return tree.map_structure(lambda x: (tuple(x.shape), keras.backend.standardize_dtype(x.dtype)), state)

    assert kinds(before) == kinds(after)
    assert int(before["length"]) == 0
    assert not numpy(before["key"]).any()


def test_without_a_state_the_cache_holds_just_these_positions():
    layer = MultiHeadSelfAttention(2, causal=True, positions=RotaryPositions())
    x = inputs()
    _, state = layer(x, return_state=True)
    _, expected = layer(x, state=layer.get_initial_state(B, T), return_state=True)
    for name in ("key", "value", "position", "length"):
        np.testing.assert_allclose(numpy(state[name]), numpy(expected[name]), atol=1e-6)


def test_more_positions_than_the_capacity_are_refused():
    layer = MultiHeadSelfAttention(2, causal=True)
    x = inputs()
    layer(x)
    with pytest.raises(ValueError, match="capacity=4 positions, and 6 more do not fit"):
        layer(x, state=layer.get_initial_state(B, 4))
    _, state = layer(x[:, :3], state=layer.get_initial_state(B, 4), return_state=True)
    with pytest.raises(ValueError, match="state holds 3 of capacity=4 positions, and 2 more do not fit"):
        layer(x[:, :2], state=state)


def test_wrong_use():
    layer = MultiHeadSelfAttention(2)
    layer.build((None, None, D))
    with pytest.raises(ValueError, match="causal=False; expected causal=True"):
        layer.get_initial_state(B, T)
    causal = MultiHeadSelfAttention(2, causal=True)
    with pytest.raises(ValueError, match="is not built"):
        causal.get_initial_state(B, T)
    causal.build((None, None, D))
    with pytest.raises(ValueError, match="capacity=None; expected the number of positions"):
        causal.get_initial_state(B)
    with pytest.raises(ValueError, match="was passed with causal=False"):
        layer(inputs(), state=causal.get_initial_state(B, T))


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tf.function is TensorFlow's")
@pytest.mark.parametrize("jit_compile", [pytest.param(False, marks=pytest.mark.rare), True])
def test_a_tf_function_is_traced_once_and_a_loop_can_carry_the_state(jit_compile):
    import tensorflow as tf

    layer = MultiHeadSelfAttention(2, causal=True, positions=RotaryPositions())
    x = ops.convert_to_tensor(inputs())
    whole = numpy(layer(x))
    traces = []

    @tf.function(jit_compile=jit_compile)
    def step(x, state):
        traces.append(1)
        return layer(x, state=state, return_state=True)

    state = layer.get_initial_state(B, T)
    for t in range(T):
        y, state = step(x[:, t : t + 1], state)
        np.testing.assert_allclose(numpy(y)[:, 0], whole[:, t], atol=1e-5)
    assert len(traces) == 1
    y, _ = step(x[:, :1], state)  # the length is not known here: no error, but nothing plausible either
    assert np.isnan(numpy(y)).all()

    @tf.function(jit_compile=jit_compile)
    def loop(x):
        def body(t, state, total):
            y, state = layer(tf.slice(x, (0, t, 0), (B, 1, D)), state=state, return_state=True)
            return t + 1, state, total + y

        start = tf.constant(0), layer.get_initial_state(B, T), tf.zeros((B, 1, D))
        return tf.while_loop(lambda t, *_: t < T, body, start)[2]

    np.testing.assert_allclose(numpy(loop(x))[:, 0], whole.sum(1), atol=1e-4)
