import numpy as np
import pytest
import tensorflow as tf

import keras_seq.ops
from keras_seq import layers
from keras_seq.ops import dispatch
from keras_seq.ops.attention import causal_attention
from keras_seq.ops.attention import tensorflow as optimized
from tests.ops.compare import twins_called

reference = causal_attention.__wrapped__
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(optimized, "MIN_BLOCK_ROWS", 4)
    monkeypatch.setattr(optimized, "MIN_SEQUENCE_LENGTH", 1)


def arguments(batch=2, length=10, heads=4, groups=4, key_dim=3, value_dim=3, dtype="float32"):
    random = np.random.default_rng(length)
    shapes = [(batch, length, heads, key_dim), (batch, length, groups, key_dim), (batch, length, groups, value_dim)]
    return [tf.cast(random.normal(size=shape), dtype) for shape in shapes]


def values_and_gradients(function, args):
    with tf.GradientTape() as tape:
        tape.watch(args)
        y = function(*args)
        loss = tf.reduce_sum(tf.sin(3 * tf.cast(y, tf.float32)))
    return [y, *tape.gradient(loss, args)]


def oracle(q, k, v):
    """In float64, one position after the other."""
    q, k, v = (np.asarray(tf.cast(x, tf.float64)) for x in (q, k, v))
    y = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, t, h in np.ndindex(q.shape[:3]):
        g = h * k.shape[2] // q.shape[2]
        scores = k[b, : t + 1, g] @ q[b, t, h] / np.sqrt(q.shape[-1])
        e = np.exp(scores - scores.max())
        y[b, t, h] = e @ v[b, : t + 1, g] / e.sum()
    return y


def assert_equal(got, expected, dtype):
    # One scale for all gradients: where there is one position, those of q and k are zero, and rounding is of dv's size.
    scale = max(float(tf.reduce_max(tf.abs(x))) for x in expected)
    for n, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        assert ours.dtype == theirs.dtype, n
        ours, theirs = (np.asarray(tf.cast(x, tf.float32)) for x in (ours, theirs))
        np.testing.assert_allclose(ours / scale, theirs / scale, atol=TOLERANCE[dtype], rtol=0, err_msg=str(n))


SIZES = [
    {"length": 1},
    {"length": 4, "dtype": "bfloat16"},
    {"length": 10},  # three blocks
    {"batch": 1, "length": 5, "heads": 1, "groups": 1},
    {"length": 7, "heads": 6, "groups": 2, "dtype": "bfloat16"},
    {"length": 6, "heads": 3, "groups": 1, "value_dim": 5},
]
EXTRA = {"sinks": (4,), "decay_sums": (2, 10, 4)}  # of 4 heads


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_values_and_all_gradients_are_those_of_the_reference(sizes):
    args, dtype = arguments(**sizes), sizes.get("dtype", "float32")
    got, expected = (values_and_gradients(f, args) for f in (optimized.blockwise, reference))
    assert_equal(got, expected, dtype)
    y = oracle(*args)
    np.testing.assert_allclose(tf.cast(got[0], tf.float32), y, atol=TOLERANCE[dtype] * np.abs(y).max())


@pytest.mark.parametrize(
    ("names", "dtype"),
    [
        pytest.param(["sinks"], "float32", marks=pytest.mark.rare),
        *((["decay_sums"], "bfloat16"), (["sinks", "decay_sums"], "float32")),
    ],
    ids=str,
)
def test_sinks_and_decays_have_their_gradients_too(names, dtype):
    random = np.random.default_rng(0)
    extra = {name: tf.constant(-np.abs(random.normal(size=EXTRA[name])), tf.float32) for name in names}
    args = [*arguments(groups=2, dtype=dtype), *extra.values()]

    def run(function):
        def of_all(q, k, v, *values):
            return function(q, k, v, None, None, **dict(zip(extra, values, strict=True)))

        return values_and_gradients(of_all, args)

    got, expected = run(optimized.blockwise), run(reference)
    assert len(got) == 4 + len(names)
    assert_equal(got, expected, dtype)


@pytest.mark.parametrize("jit_compile", [pytest.param(False, marks=pytest.mark.rare), True])
def test_it_is_the_same_inside_a_function_that_does_not_know_the_batch(jit_compile):
    shapes = [tf.TensorSpec([None, 6, 4, 3]) for _ in range(3)]
    compiled = tf.function(
        lambda *args: values_and_gradients(optimized.blockwise, args), input_signature=shapes, jit_compile=jit_compile
    )
    for batch in (1, 3):
        args = arguments(batch, length=6)
        assert_equal(compiled(*args), values_and_gradients(reference, args), "float32")


def test_large_scores_stay_finite():
    q, k, v = arguments()
    y = optimized.blockwise(1e3 * q, 1e3 * k, v)
    assert np.isfinite(y).all()
    np.testing.assert_allclose(y, oracle(1e3 * q, 1e3 * k, v), atol=1e-3)


def test_no_block_has_more_rows_than_fit_into_memory():
    assert optimized._query_blocks(10) == [(0, 4), (4, 8), (8, 10)]
    assert {end - start for start, end in optimized._query_blocks(64)} == {8}
    assert {end - start for start, end in optimized._query_blocks(100_000)} == {512, 100_000 % 512}


def test_it_takes_long_float32_and_bfloat16_of_a_length_that_is_known(monkeypatch):
    monkeypatch.setattr(optimized, "MIN_SEQUENCE_LENGTH", 8)
    assert causal_attention.twin(*arguments(length=8))
    assert causal_attention.twin(*arguments(length=8, dtype="bfloat16"))
    assert not causal_attention.twin(*arguments(length=7))
    assert not causal_attention.twin(*arguments(length=8, dtype="float16"))
    assert not causal_attention.twin(*arguments(length=8, dtype="float64"))
    unknown = [tf.keras.Input((None, 4, 3)) for _ in range(3)]
    assert not causal_attention.twin(*unknown)
    monkeypatch.setattr(dispatch, "on_cpu", lambda: False)
    assert not causal_attention.twin(*arguments(length=8))


@pytest.mark.parametrize("heads", [{"num_heads": 2}, {"num_heads": 4, "num_key_value_heads": 2, "value_dim": 3}])
def test_a_layer_takes_it_where_there_is_nothing_but_causality(heads):
    attends = layers.MultiHeadSelfAttention(**heads, causal=True, positions=layers.RotaryPositions(), dropout=0.5)
    x = tf.random.stateless_normal((2, 9, 8), (0, 1))
    with keras_seq.ops.reference():
        expected, weights = attends(x, return_attention_scores=True)
    assert weights.shape == (2, heads["num_heads"], 9, 9)
    with twins_called(causal_attention) as taken:
        y, state = attends(x, return_state=True)
        np.testing.assert_allclose(y, expected, atol=1e-5)
        np.testing.assert_allclose(attends(x), expected, atol=1e-5)
        assert len(taken) == 2
        for y in (
            attends(x, mask=np.ones((2, 9), bool)),
            attends(x, attention_mask=np.ones((2, 9, 9), bool)),
            attends(x, return_attention_scores=True)[0],
        ):
            np.testing.assert_allclose(y, expected, atol=1e-5)
        attends(x, training=True)  # dropout is of the weights
        attends(x[:, :1], state=attends.get_initial_state(2, capacity=4))
        assert len(taken) == 2
    assert state["key"].shape[1] == 9


@pytest.mark.rare
@pytest.mark.parametrize("groups", [4, 2])
def test_segments_are_documents_by_themselves(groups):
    args = arguments(length=10, groups=groups)
    segments = tf.constant([[0, 0, 0, 1, 1, 1, 1, 1, 2, 3], [1, 1, 1, 1, 1, 1, 2, 2, 2, 2]])
    assert causal_attention.twin(*args, None, segments)
    y, *gradients = values_and_gradients(lambda *args: optimized.blockwise(*args, None, segments), args)
    for row in range(2):
        for segment in set(segments[row].numpy()):
            [positions] = np.nonzero(segments[row] == segment)
            own = [x[row : row + 1, positions[0] : positions[-1] + 1] for x in args]
            expected = values_and_gradients(optimized.blockwise, own)
            got = [x[row : row + 1, positions[0] : positions[-1] + 1] for x in (y, *gradients)]
            assert_equal(got, expected, "float32")
    with tf.GradientTape() as tape:
        tape.watch(args)
        loss = tf.reduce_sum(tf.sin(optimized.blockwise(*args, None, segments)[0, 3:8]))
    for gradient in tape.gradient(loss, args):
        assert not np.any(gradient[0, :3])
        assert not np.any(gradient[0, 8:])
        assert np.any(gradient[0, 3:8])


@pytest.mark.parametrize("positions", [False, True])
def test_a_layer_takes_it_for_documents(positions):
    positions = layers.ForgettingPositions() if positions else None
    layer = layers.MultiHeadSelfAttention(2, causal=True, positions=positions, use_sinks=positions is not None)
    x, reset_mask = tf.random.stateless_normal((2, 9, 8), (1, 2)), np.arange(9) == np.array([[4], [7]])
    with keras_seq.ops.reference():
        expected = layer(x, reset_mask=reset_mask)
    with twins_called(causal_attention) as calls:
        np.testing.assert_allclose(layer(x, reset_mask=reset_mask), expected, atol=1e-5)
    assert calls


def test_the_reference_knows_documents_too():
    args = arguments(length=10)
    segments = tf.constant([[0, 0, 0, 1, 1, 1, 1, 1, 2, 3], [1, 1, 1, 1, 1, 1, 2, 2, 2, 2]])
    got = (function(*args, None, segments) for function in (optimized.blockwise, reference))
    np.testing.assert_allclose(*got, atol=1e-5)
