import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.ops import matrix_recurrence as module
from keras_seq.ops.matrix_recurrence import matrix_recurrence
from tests.conftest import often
from tests.layers.conftest import compiled

BACKEND = keras.backend.backend()
B, H, K, V = 2, 3, 4, 5
numpy = ops.convert_to_numpy
KINDS = {
    "linear": (),
    "channels": ("channel_log_decay",),
    "delta": ("a",),
    "general": ("channel_log_decay", "a", "b"),
    "kda": ("channel_log_decay", "a"),  # which is not clipped
    "product": ("a",),  # several delta rules at a position
}
RULES = 3
kinds = pytest.mark.parametrize("kind", KINDS)


def oracle(q, k, v, log_decay, state, channel_log_decay=None, a=None, b=None):
    """One row, position, head and delta rule after the other, in float64."""
    (batch, length, heads), (_, _, width, value_width) = log_decay.shape, state.shape
    q, k = (np.broadcast_to(x, (batch, length, max(heads, x.shape[2]), width)) for x in (q, k))
    state, y = state.astype("float64"), np.zeros((batch, length, heads, value_width))
    for n, t, h in np.ndindex(batch, length, heads):
        new = np.exp(log_decay[n, t, h]) * state[n, h]
        if channel_log_decay is not None:
            new = np.exp(channel_log_decay[n, t, h])[:, None] * new
        for rule in range(h, v.shape[2], heads):
            before, at = new, (n, t, rule)
            new = before + np.outer(k[at], v[at])
            if a is not None:
                new = new + np.outer((k if b is None else b)[at], a[at] @ before)
        state[n, h], y[n, t, h] = new, q[n, t, h] @ new
    return y, state


def arguments(kind, length, dtype="float64", seed=0, shared=False):
    random = np.random.default_rng(seed)
    rules = RULES if kind == "product" else 1
    heads = {"q": H, "k": rules * H, "a": rules * H, "b": H}
    vectors = {name: random.normal(size=(B, length, count, K)) * 0.6 for name, count in heads.items()}
    decays = {
        "log_decay": -random.exponential(size=(B, length, H)),
        "channel_log_decay": -random.exponential(size=(B, length, H, K)),
    }
    values = {
        **vectors,
        **decays,
        "v": random.normal(size=(B, length, rules * H, V)),
        "state": random.normal(size=(B, H, K, V)),
    }
    if shared:
        values |= {name: values[name][:, :, :1] for name in ("q", "k")}
    return {name: values[name].astype(dtype) for name in ("q", "k", "v", "log_decay", "state", *KINDS[kind])}


def recurrence(values, chunk_size=64):
    clip = set(values) != {*arguments("kda", 1)}
    return matrix_recurrence(**values, chunk_size=chunk_size, clip=clip)


def run(arguments, chunk_size):
    values = {name: ops.convert_to_tensor(value) for name, value in arguments.items()}
    return [numpy(part) for part in compiled(lambda v: recurrence(v, chunk_size))(values)]


@kinds
@pytest.mark.parametrize(("length", "size"), [(1, 64), (8, 4), (11, 4), (7, 64)])
def test_it_is_the_loop(float64, exact, kind, length, size):
    values = arguments(kind, length)
    for got, expected in zip(run(values, size), oracle(**values), strict=True):
        np.testing.assert_allclose(got, expected, **exact)


@pytest.mark.parametrize("length", [1, 6])
def test_one_head_of_queries_and_keys_serves_all(float64, exact, length):
    values = arguments("linear", length, shared=True)
    for got, expected in zip(run(values, 4), oracle(**values), strict=True):
        np.testing.assert_allclose(got, expected, **exact)


@kinds
def test_a_reset_is_an_empty_state_before_a_position(float64, exact, kind):
    values = arguments(kind, 10)
    reset_mask = np.zeros((B, 10), bool)
    reset_mask[0, [1, 2, 6]] = True
    got, state = run(values | {"reset_mask": reset_mask}, 4)
    tail = {name: value if name == "state" else value[:, 6:] for name, value in values.items()}
    tail["state"] = np.zeros_like(tail["state"])
    whole, expected = oracle(**values), oracle(**tail)
    np.testing.assert_allclose(got[0, 6:], expected[0][0], **exact)
    np.testing.assert_allclose(state[0], expected[1][0], **exact)
    np.testing.assert_allclose(got[1], whole[0][1], **exact)


@kinds
def test_one_position_is_that_of_a_longer_sequence_after_a_reset_too(float64, exact, kind):
    values = arguments(kind, 3)
    reset_mask = np.array([[False, True, False], [False, False, False]])
    whole, state = run(values | {"reset_mask": reset_mask}, 3)
    for t in range(3):
        one = {name: value[:, t : t + 1] for name, value in values.items() if name != "state"}
        y, values["state"] = run(one | {"state": values["state"], "reset_mask": reset_mask[:, t : t + 1]}, 3)
        np.testing.assert_allclose(y[:, 0], whole[:, t], **exact)
    np.testing.assert_allclose(values["state"], state, **exact)


@pytest.mark.parametrize(("length", "size"), [pytest.param(9, 4, marks=pytest.mark.rare), (19, 3), (16, 9)])
@kinds
def test_groups_of_chunks_are_the_loop(monkeypatch, float64, exact, kind, length, size):
    monkeypatch.setattr(module, "GROUP_SIZE", 8)
    values = arguments(kind, length)
    for got, expected in zip(run(values, size), oracle(**values), strict=True):
        np.testing.assert_allclose(got, expected, **exact)


@kinds
def test_a_reset_in_a_group_of_chunks_is_one_in_the_whole(monkeypatch, float64, exact, kind):
    reset_mask = np.arange(2 * 19).reshape(2, 19) % 7 == 3
    values = arguments(kind, 19) | {"reset_mask": reset_mask}
    whole = run(values, 4)
    monkeypatch.setattr(module, "GROUP_SIZE", 8)
    for got, expected in zip(run(values, 4), whole, strict=True):
        np.testing.assert_allclose(got, expected, **exact)


@pytest.mark.parametrize("group_size", [3, 512])
@kinds
def test_gradients_are_those_of_the_loop(monkeypatch, float64, gradients, kind, group_size):
    monkeypatch.setattr(module, "GROUP_SIZE", group_size)
    values = arguments(kind, 7)
    names, random = list(values), np.random.default_rng(1)
    weights = random.normal(size=(B, 7, H, V)), random.normal(size=values["state"].shape)

    def chunked(tensors):
        y, state = recurrence(dict(zip(names, tensors, strict=True)), chunk_size=3)
        return ops.sum(y * ops.convert_to_tensor(weights[0])) + ops.sum(state * ops.convert_to_tensor(weights[1]))

    got = gradients(compiled(chunked), list(values.values()))
    step = 1e-6
    for name, gradient in zip(names, got, strict=True):
        direction = random.normal(size=values[name].shape)
        ends = [oracle(**(values | {name: values[name] + sign * step * direction})) for sign in (1, -1)]
        up, down = ((y * weights[0]).sum() + (state * weights[1]).sum() for y, state in ends)
        tolerance = 1e-3 if BACKEND == "torch" else 1e-6
        assert (gradient * direction).sum() == pytest.approx((up - down) / (2 * step), rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("decay", [0.0, pytest.param(-1e-3, marks=pytest.mark.rare), -30.0])
@kinds
def test_in_float32_nothing_overflows_and_equal_keys_do_not_grow(gradients, kind, decay):
    values = arguments(kind, 130, "float32")
    values["k"] = np.broadcast_to(np.float32([1, 0, 0, 0]), values["k"].shape).copy()  # the same key 130 times
    values["log_decay"][:] = decay
    if "a" in values:
        values["a"] = -values["k"]
    if "b" in values:
        values["b"] = values["k"]
    if "channel_log_decay" in values:
        values["channel_log_decay"][:] = decay / (1 if kind == "kda" else 100)
    got = run(values, 64)
    for found, expected in zip(got, oracle(**values), strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-4, rtol=2e-4)

    def loss(tensors):
        return ops.sum(ops.square(recurrence(dict(zip(values, tensors, strict=True)))[0]))

    assert all(np.isfinite(g).all() for g in gradients(compiled(loss), list(values.values())))


def test_channel_decays_are_clipped_where_they_would_overflow():
    values = arguments("channels", 32, "float32")
    values["channel_log_decay"][:] = -1000.0
    got = run(values, 16)
    values["channel_log_decay"][:] = -5.0  # 80 / 16
    for found, expected in zip(got, oracle(**values), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.skipif(BACKEND != "jax", reason="JAX tells what a gradient stores, by shapes")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "product"])  # which adds zeros to its arguments
def test_the_gradient_stores_arguments_and_the_state_before_each_group(monkeypatch, kind):
    import jax

    monkeypatch.setattr(module, "GROUP_SIZE", 32)

    def stored(length):
        values = {name: ops.convert_to_tensor(value) for name, value in arguments(kind, length, "float32").items()}
        residuals = jax.eval_shape(lambda v: jax.vjp(lambda v: recurrence(v, chunk_size=8), v)[1], values)
        size_of_arguments = sum(value.size for value in values.values())
        return sum(leaf.size for leaf in jax.tree.leaves(residuals)), size_of_arguments

    (short, short_arguments), (long, long_arguments) = stored(256), stored(512)
    states = 256 // 32 * B * H * K * V
    assert long - short <= long_arguments - short_arguments + states
    monkeypatch.setattr(module, "GROUP_SIZE", 512)
    assert stored(512)[0] > 2 * long


@often("kind", [*KINDS], ("general",))
def test_one_graph_serves_every_length(monkeypatch, kind):
    monkeypatch.setattr(module, "GROUP_SIZE", 8)
    if BACKEND != "tensorflow":
        pytest.skip("elsewhere every length is known when a function is compiled")
    import tensorflow as tf

    traces = []

    @tf.function(reduce_retracing=True)
    def values_and_gradients(arguments):
        traces.append(1)
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            y, state = recurrence(arguments, chunk_size=4)
            loss = tf.reduce_sum(y * y) + tf.reduce_sum(state)
        return y, state, tape.gradient(loss, arguments)

    shapes = {name: v.shape if name == "state" else (B, None, *v.shape[2:]) for name, v in arguments(kind, 1).items()}
    specs = {name: tf.TensorSpec(shape, "float32") for name, shape in shapes.items()}
    graph = values_and_gradients.get_concrete_function(specs)
    for length in (1, 5, 17):
        values = arguments(kind, length, "float32")
        y, state, gradient = graph({name: tf.constant(value) for name, value in values.items()})
        assert all(np.isfinite(g).all() for g in gradient.values())
        for found, expected in zip((y, state), oracle(**values), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)
    assert len(traces) == 1
