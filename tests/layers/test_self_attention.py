"""MultiHeadSelfAttention against the formula and Keras, and its cache."""

import itertools
import math

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops, tree

from keras_seq.layers import (
    AlibiPositions,
    BucketedPositions,
    ForgettingPositions,
    MultiHeadSelfAttention,
    RotaryPositions,
)
from tests.layers.conftest import few

B, T, D = 2, 6, 8
POSITIONS = {
    "none": None,
    "rotary": RotaryPositions(),
    "alibi": AlibiPositions(),
    "forgetting": ForgettingPositions(),  # causal only
    "bucketed": BucketedPositions(6, 5, scale=1.0),
}
numpy = ops.convert_to_numpy


def inputs(seed=0, batch=B, length=T, dtype="float32"):
    return np.random.default_rng(seed).normal(size=(batch, length, D)).astype(dtype)


def weights_of(layer):
    """Every weight as float64, by what is left of its path: `query/kernel`."""
    weights = {"/".join(v.path.split("/")[-2:]): numpy(v) for v in layer.weights if "seed" not in v.path}
    return {name.removeprefix(f"{layer.name}/"): value.astype("float64") for name, value in weights.items()}


def with_biases(layer):
    """Draw the biases by bucket, which start at zero, of a built layer."""
    if layer.bucket_bias is not None:
        layer.bucket_bias.assign(np.random.default_rng(5).normal(size=layer.bucket_bias.shape))
    return layer


def bucket(offset, count, max_distance, causal):
    """The bucket of a key this far behind a query, by the formula."""
    first, n = 0, max(-offset, 0)
    if not causal:
        count //= 2
        first, n = count * (offset > 0), abs(offset)
    half = count // 2
    if n >= half:
        n = min(half + int(math.log(n / half) / math.log(max_distance / half) * (count - half)), count - 1)
    return first + n


def oracle(x, w, heads, groups, mask, positions=None, scale=None):
    """Self-attention of a batch by loops over rows and heads, in float64; `mask [B, T, T]`."""
    q, k, v = (x @ w[f"{name}/kernel"] + w.get(f"{name}/bias", 0) for name in ("query", "key", "value"))
    K, V = q.shape[-1] // heads, v.shape[-1] // groups

    def normalize(x, scale):
        return x if scale is None else x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale

    gate = 1 / (1 + np.exp(-(x @ w["gate/kernel"] + w.get("gate/bias", 0)))) if "gate/kernel" in w else 1
    forget = 1 / (1 + np.exp(-(x @ w["forget/kernel"] + w["forget/bias"]))) if "forget/kernel" in w else None
    rows = []
    for b in range(len(x)):
        columns = []
        for h in range(heads):
            g = h // (heads // groups)
            qh = normalize(q[b, :, h * K : h * K + K], w.get("query_normalization/scale"))
            kh = normalize(k[b, :, g * K : g * K + K], w.get("key_normalization/scale"))
            scores = np.where(mask[b], qh @ kh.T * (1 / np.sqrt(K) if scale is None else scale), -np.inf)
            for t, s in np.ndindex(*scores.shape) if "bucket_bias" in w else ():
                is_causal = not mask[b, 0, -1]
                n = bucket(s - t, positions.num_buckets, positions.max_distance, is_causal)
                scores[t, s] += w["bucket_bias"][n, h]
            if isinstance(positions, AlibiPositions):  # of a number of heads that is a power of two
                scores -= 2 ** (-8 * (h + 1) / heads) * np.abs(
                    np.subtract.outer(range(len(scores)), range(len(scores)))
                )
            for t, s in np.ndindex(*scores.shape) if forget is not None else ():
                scores[t, s] += np.log(forget[b, s + 1 : t + 1, h]).sum()
            p = np.exp(scores)
            total = p.sum(-1, keepdims=True) + (np.exp(w["sinks"][h]) if "sinks" in w else 0)
            columns.append(p / total @ v[b, :, g * V : g * V + V])
        rows.append(np.concatenate(columns, -1))
    return np.stack(rows) * gate @ w["output/kernel"] + w.get("output/bias", 0)


@pytest.mark.parametrize(
    "options",
    [
        {"num_heads": 2},
        {"num_heads": 1, "use_bias": False},
        {"num_heads": 4, "causal": True, "num_key_value_heads": 2},
        {"num_heads": 3, "key_dim": 5, "value_dim": 7, "num_key_value_heads": 1},
        {"num_heads": 2, "sliding_window": 2},
        {"num_heads": 4, "num_key_value_heads": 2, "sliding_window": 4, "use_sinks": True},
        {"num_heads": 2, "causal": True, "sliding_window": 3, "use_qk_norm": True, "use_bias": False},
        {"num_heads": 2, "use_qk_norm": True, "qk_normalization": "zero_centered_rms", "use_output_gate": True},
        {"num_heads": 4, "value_dim": 3, "num_key_value_heads": 2, "use_output_gate": True, "use_sinks": True},
        {"num_heads": 4, "num_key_value_heads": 2, "causal": True, "positions": ForgettingPositions()},
        {
            **{"num_heads": 2, "causal": True, "sliding_window": 3, "positions": ForgettingPositions()},
            **{"use_sinks": True, "use_output_gate": True, "use_bias": False},
        },
        {"num_heads": 4, "num_key_value_heads": 2, "causal": True, "positions": AlibiPositions()},
        {"num_heads": 2, "key_dim": 3, "positions": AlibiPositions(), "use_sinks": True},
        {"num_heads": 2, "key_dim": 3, "positions": BucketedPositions(6, 5, scale=1.0)},
        {"num_heads": 4, "num_key_value_heads": 2, "causal": True, "positions": BucketedPositions(6, 5)},
        {"num_heads": 2, "key_dim": 3, "causal": True, "use_qk_norm": True, "scale": 0.7},
    ],
    ids=str,
)
def test_it_is_the_formula(float64, exact, randomize, options):
    layer = MultiHeadSelfAttention(**options, dtype="float64")
    x = inputs(dtype="float64")
    layer(x)
    randomize(layer)
    distance = np.arange(T)[:, None] - np.arange(T)
    mask = np.ones((B, T, T), bool)
    if options.get("causal"):
        mask &= distance >= 0
    if options.get("sliding_window"):
        mask &= np.abs(distance) < options["sliding_window"]
    heads, weights, positions = options["num_heads"], weights_of(layer), options.get("positions")
    if options.get("qk_normalization") == "zero_centered_rms":
        weights |= {name: 1 + value for name, value in weights.items() if name.endswith("normalization/scale")}
    scale = options.get("scale", getattr(positions, "scale", None))
    expected = oracle(x, weights, heads, options.get("num_key_value_heads", heads), mask, positions, scale)
    if options.get("use_qk_norm") and keras.backend.backend() != "tensorflow":
        exact = {"rtol": 1e-4, "atol": 1e-5}  # Keras normalizes in float32 there
    np.testing.assert_allclose(numpy(layer(x)), expected, **exact)


def copy_weights(ours, theirs):
    """Ours are matrices; Keras's have an axis for the heads."""
    order = ("query", "key", "value", "attention_output")
    targets = [v for name in order for v in theirs.trainable_weights if v.path.split("/")[-2] == name]
    for source, target in zip(ours.trainable_weights, targets, strict=True):
        target.assign(ops.reshape(source, target.shape))


@pytest.mark.parametrize("causal", [False, True])
def test_keras_multi_head_attention_gives_the_same(randomize, causal):
    ours = MultiHeadSelfAttention(2, key_dim=3, causal=causal)
    theirs = keras.layers.MultiHeadAttention(2, key_dim=3)  # on JAX it cannot take another value_dim
    x = ops.convert_to_tensor(inputs())
    ours(x), theirs(x, x)
    copy_weights(randomize(ours), theirs)
    y, scores = ours(x, return_attention_scores=True)
    expected = theirs(x, x, use_causal_mask=causal, return_attention_scores=True)
    np.testing.assert_allclose(numpy(y), numpy(expected[0]), atol=2e-5)
    np.testing.assert_allclose(numpy(scores), numpy(expected[1]), atol=2e-6)


def test_keras_grouped_query_attention_gives_the_same(randomize):
    ours = MultiHeadSelfAttention(4, key_dim=3, num_key_value_heads=2, causal=True, sliding_window=3)
    theirs = keras.layers.GroupQueryAttention(3, 4, 2, sliding_window=3)
    x = ops.convert_to_tensor(inputs())
    ours(x), theirs(x, x)
    copy_weights(randomize(ours), theirs)
    np.testing.assert_allclose(numpy(ours(x)), numpy(theirs(x, x, use_causal_mask=True)), atol=2e-5)


@pytest.mark.parametrize("positions", POSITIONS)
def test_gradients_are_those_of_finite_differences(float64, randomize, check_gradients, positions):
    layer = MultiHeadSelfAttention(
        4, num_key_value_heads=2, causal=True, sliding_window=3, positions=POSITIONS[positions], dtype="float64",
        use_qk_norm=keras.backend.backend() == "tensorflow",  # elsewhere Keras normalizes in float32
        use_output_gate=positions == "forgetting", use_sinks=positions in ("alibi", "forgetting"),
    )  # fmt: skip
    x = inputs(length=4, dtype="float64")
    layer(x)
    check_gradients(randomize(layer), x)


def test_with_positions_order_matters():
    layer, x = MultiHeadSelfAttention(2, positions=POSITIONS["rotary"]), inputs()
    assert np.abs(numpy(layer(x[:, ::-1]))[:, ::-1] - numpy(layer(x))).max() > 1e-3


DTYPES = ["float32", "mixed_bfloat16", "mixed_float16"]
LEAKS = list(itertools.product(POSITIONS, DTYPES))
QUICK_LEAKS = [*zip(POSITIONS, itertools.cycle(DTYPES), strict=False)]


@pytest.mark.parametrize(
    ("positions", "dtype"),
    [pytest.param(*case, marks=[] if case in QUICK_LEAKS else pytest.mark.rare) for case in LEAKS],
)
@few
@given(t=st.integers(1, T - 1), sliding_window=st.sampled_from([None, 2]), cached=st.booleans())
def test_the_future_cannot_leak(dtype, positions, t, sliding_window, cached):
    layer = MultiHeadSelfAttention(
        2, causal=True, sliding_window=sliding_window, positions=POSITIONS[positions], dropout=0.3, seed=1, dtype=dtype
    )
    x = inputs()
    changed = x.copy()
    changed[:, t:] = 100 * inputs(seed=1)[:, t:]
    layer(x)
    with_biases(layer)
    seeds = [v for v in layer.non_trainable_variables]
    start = [numpy(v) for v in seeds]

    def run(x):
        for variable, value in zip(seeds, start, strict=True):
            variable.assign(value)  # the same dropout each time
        state = {"state": layer.get_initial_state(B, capacity=T + 2)} if cached else {}
        y, scores, _ = layer(x, training=True, return_attention_scores=True, return_state=True, **state)
        return numpy(ops.cast(y, "float32")), numpy(ops.cast(scores, "float32"))

    (y, scores), (changed_y, changed_scores) = run(x), run(changed)
    np.testing.assert_array_equal(y[:, :t], changed_y[:, :t])
    np.testing.assert_array_equal(scores[:, :, :t], changed_scores[:, :, :t])
    earlier = scores.shape[-1] - T if cached and sliding_window else 0  # slots of the window come first
    assert (scores[:, :, np.arange(T)[:, None] + earlier < np.arange(scores.shape[-1])] == 0).all()
    assert (y[:, t:] != changed_y[:, t:]).any()


MASKS = {"right": [1, 1, 1, 1, 0, 0], "left": [0, 0, 1, 1, 1, 1], "interior": [1, 0, 1, 1, 0, 1]}
WINDOWS = [(False, None), (True, None), (True, 2), (False, 2)]
MASKED = [  # each padding with each kind of positions and with each window, and these two with each other
    (padding, positions, *WINDOWS[1 + n % 2 if positions == "forgetting" else (n + m) % 4])
    for n, padding in enumerate(MASKS)
    for m, positions in enumerate(POSITIONS)
]


@pytest.mark.parametrize(("padding", "positions", "causal", "sliding_window"), MASKED)
def test_a_mask_is_a_shorter_sequence(padding, positions, causal, sliding_window):
    layer = MultiHeadSelfAttention(2, causal=causal, sliding_window=sliding_window, positions=POSITIONS[positions])
    x, real = inputs(), np.array(MASKS[padding], bool)
    mask = np.stack([real, np.ones(T, bool)])
    layer(x)
    with_biases(layer)
    y = numpy(layer(x, mask=mask))
    np.testing.assert_allclose(y[0, real], numpy(layer(x[:1, real]))[0], atol=1e-5)
    np.testing.assert_allclose(y[1], numpy(layer(x[1:]))[0], atol=1e-5)


def test_a_row_that_is_all_padding_gives_the_output_bias(randomize):
    layer = MultiHeadSelfAttention(2)
    layer(inputs())
    randomize(layer)
    y = numpy(layer(inputs(), mask=np.array([[False] * T, [True] * T])))
    np.testing.assert_allclose(y[0], np.broadcast_to(weights_of(layer)["output/bias"], (T, D)), rtol=1e-6)
    assert np.isfinite(y).all()


@pytest.mark.parametrize("shape", [(T, T), (B, T, T), (B, 1, T, T), (B, 2, T, T)], ids=str)
def test_an_attention_mask_combines_with_the_others(shape):
    layer = MultiHeadSelfAttention(2, causal=True)
    x, padding = inputs(), np.array([[True] * T, [True] * 4 + [False] * 2])
    allowed = np.random.default_rng(0).random(shape) < 0.5
    _, scores = layer(x, mask=padding, attention_mask=allowed, return_attention_scores=True)
    full = np.broadcast_to(allowed if len(shape) != 3 else allowed[:, None], (B, 2, T, T))
    full = full & np.tril(np.ones((T, T), bool)) & padding[:, None, None] & padding[:, None, :, None]
    np.testing.assert_array_equal(numpy(scores) > 0, full)


def test_the_mask_of_an_embedding_arrives_with_and_without_other_tensors():
    ids = np.array([[3, 1, 4, 0, 0, 0], [2, 7, 1, 8, 2, 8]])
    embedding, layer = keras.layers.Embedding(10, D, mask_zero=True), MultiHeadSelfAttention(2, causal=True)
    expected = numpy(layer(numpy(embedding(ids)), mask=ids != 0))
    everything = np.ones((B, T, T), bool)
    np.testing.assert_allclose(numpy(layer(embedding(ids))), expected, atol=1e-6)
    np.testing.assert_allclose(numpy(layer(embedding(ids), attention_mask=everything)), expected, atol=1e-6)
    state = layer.get_initial_state(B, T)
    np.testing.assert_allclose(numpy(layer(embedding(ids), state=state)), expected, atol=1e-6)


@pytest.mark.parametrize("batch", [0, 1])
def test_small_batches(batch):
    layer = MultiHeadSelfAttention(2, causal=True, positions=RotaryPositions())
    assert layer(inputs(batch=batch)).shape == (batch, T, D)
    assert layer(inputs(batch=batch), mask=np.ones((batch, T), bool)).shape == (batch, T, D)


def test_a_single_position_attends_to_itself():
    layer = MultiHeadSelfAttention(1, use_bias=False)
    x = inputs(length=1)
    y, scores = layer(x, return_attention_scores=True)
    np.testing.assert_array_equal(numpy(scores), np.ones((B, 1, 1, 1)))
    np.testing.assert_allclose(numpy(y), numpy(layer.output_dense(layer.value_dense(x))), atol=1e-6)


def test_kernels_are_matrices_and_start_differently():
    layer = MultiHeadSelfAttention(2, output_initializer="zeros")
    layer.build((None, None, D))
    kernels = [numpy(v) for v in layer.trainable_weights if v.path.endswith("kernel")]
    assert [kernel.shape for kernel in kernels] == [(D, D)] * 4
    assert not kernels[3].any()
    assert not np.allclose(kernels[0], kernels[1])
    assert not np.allclose(kernels[1], kernels[2])


@pytest.mark.parametrize(
    ("causal", "positions"),
    [(causal, name) for causal in (False, True) for name in POSITIONS if causal or name != "forgetting"],
)
def test_a_sequence_without_positions_stays_one(positions, causal):
    layer = MultiHeadSelfAttention(2, causal=causal, positions=POSITIONS[positions], num_key_value_heads=1)
    assert tuple(layer(inputs(length=0)).shape) == (B, 0, D)
    y, scores = layer(inputs(length=0), mask=np.ones((B, 0), bool), return_attention_scores=True)
    assert (tuple(y.shape), tuple(scores.shape)) == ((B, 0, D), (B, 2, 0, 0))


def piecewise(layer, x, cuts, capacity, mask=None):
    state, pieces = layer.get_initial_state(B, capacity), []
    for start, end in zip([0, *cuts], [*cuts, T], strict=True):
        masked = {} if mask is None else {"mask": mask[:, start:end]}
        y, state = layer(x[:, start:end], state=state, return_state=True, **masked)
        pieces.append(numpy(ops.cast(y, "float32")))
    return np.concatenate(pieces, axis=1), state


@pytest.mark.parametrize("positions", POSITIONS)
@few
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
        use_sinks=True,
        use_output_gate=True,
    )
    x = inputs()
    layer(x)
    whole = numpy(with_biases(layer)(x))
    got, state = piecewise(layer, x, cuts, capacity)
    np.testing.assert_allclose(got, whole, atol=1e-5)
    assert int(state["length"]) == T
    assert [*state] == [*layer.get_initial_state(B, capacity)]  # in which torch flattens it, inside of others
    expected = np.r_[np.arange(T), np.full(capacity - T, -1)]
    if sliding_window is not None:  # the cache holds the window only
        expected = np.arange(T)[-sliding_window:]
    np.testing.assert_array_equal(numpy(state["position"]), [expected, expected])


@pytest.mark.parametrize(
    ("positions", "cuts"), [*zip(POSITIONS, itertools.cycle([[2], [1, 2, 3, 4, 5]]), strict=False)], ids=str
)
def test_padding_in_a_cache_is_skipped_too(positions, cuts):
    layer = MultiHeadSelfAttention(2, causal=True, positions=POSITIONS[positions], sliding_window=3)
    x, mask = inputs(), np.array([[0, 1, 0, 1, 1, 0], [1, 1, 1, 1, 1, 1]], bool)
    layer(x)
    got, state = piecewise(with_biases(layer), x, cuts, T, mask)
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


def test_a_cache_is_of_a_causal_layer_that_is_built():
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


def test_forget_gates_of_a_long_text_stay_precise(randomize):
    """A cache holds differences of sums: those of a thousand positions ago do not round those of now."""
    layer = MultiHeadSelfAttention(2, causal=True, sliding_window=3, positions=ForgettingPositions())
    x = inputs(length=6)
    layer(x)
    randomize(layer)
    layer.forget_dense.bias.assign([-50.0, 50.0])  # one head forgets at once, the other nothing
    state = layer.get_initial_state(B)
    for _ in range(15):
        y, state = layer(x, state=state, return_state=True)
    np.testing.assert_allclose(numpy(y)[:, 2:], numpy(layer(x))[:, 2:], atol=1e-5)
    assert np.abs(numpy(state["decay_sum"])).max() < 500  # of one call; all sum up to 4,500
    _, scores = layer(x, return_attention_scores=True)
    np.testing.assert_allclose(numpy(scores)[:, 0], np.broadcast_to(np.eye(6), (B, 6, 6)), atol=1e-6)


def test_a_forget_gate_needs_causality_and_hides_no_nan():
    with pytest.raises(ValueError, match=r"positions=ForgettingPositions\(\) with causal=False; expected causal=True"):
        MultiHeadSelfAttention(2, positions=ForgettingPositions())
    layer = MultiHeadSelfAttention(2, causal=True, positions=ForgettingPositions())
    x, hidden = inputs(), np.ones((T, T), bool)
    x[0, 2], hidden[:, 2] = np.nan, False  # nobody attends to it, but what it forgets counts from there on
    y = numpy(layer(x, attention_mask=hidden))
    np.testing.assert_array_equal(np.isnan(y).all(-1)[0], np.arange(T) >= 2)
    assert np.isfinite(y[0, :2]).all()
    assert np.isfinite(y[1]).all()


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_decays_and_sinks_are_float32_in_half_precision(dtype):
    layer = MultiHeadSelfAttention(2, causal=True, positions=ForgettingPositions(), use_sinks=True, dtype=dtype)
    _, state = layer(inputs(), return_state=True)
    assert keras.backend.standardize_dtype(state["decay_sum"].dtype) == "float32"
    assert keras.backend.standardize_dtype(layer.get_initial_state(B, T)["decay_sum"].dtype) == "float32"
    assert keras.backend.standardize_dtype(layer.sinks.dtype) == "float32"


def test_layers_may_share_the_biases_of_one():
    """A layer that shares them has no weight for them, and computes what their owner does."""
    x, positions = inputs(), BucketedPositions(6, 5)
    first = MultiHeadSelfAttention(2, positions=positions)
    second = MultiHeadSelfAttention(2, positions=BucketedPositions(6, 5, shared=True))
    first(x)
    bias = with_biases(first).bucket_bias
    y = numpy(second(x, bucket_bias=bias))
    assert len(second.weights) == len(first.weights) - 1
    second.set_weights([numpy(w) for w in first.weights if w is not bias])
    np.testing.assert_array_equal(numpy(second(x, bucket_bias=ops.convert_to_tensor(bias))), numpy(first(x)))
    assert (numpy(first(x)) != y).any()
    for layer, biases, message in (
        (first, bias, r"bucket_bias=\(6, 2\) with positions=.*; expected None, or BucketedPositions\(shared=True\)"),
        (second, None, "bucket_bias=None with positions=.*; expected those of another layer"),
        (second, np.zeros((5, 2)), r"bucket_bias has shape \(5, 2\); expected \[6, 2\]"),
        (MultiHeadSelfAttention(2), bias, "with positions=None; expected None"),
    ):
        with pytest.raises(ValueError, match=message):
            layer(x, bucket_bias=biases)


def test_a_scale_starts_with_scores_of_the_usual_size():
    plain, scaled = (MultiHeadSelfAttention(2, key_dim=64, kernel_initializer="he_normal", scale=s) for s in (None, 1))
    for layer in (plain, scaled):
        layer.build((None, None, D))
    spread = [numpy(layer.query_dense.kernel).std() for layer in (plain, scaled)]
    assert spread[0] / spread[1] == pytest.approx(8, rel=0.2)
    assert MultiHeadSelfAttention.from_config(scaled.get_config()).scale == 1
