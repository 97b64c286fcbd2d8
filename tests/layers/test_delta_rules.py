"""Delta rules, against the naive formulas of fla and the layers of transformers: Gated DeltaNet, DeltaProduct, KDA."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import layers
from keras_seq.data.synthetic import recall
from keras_seq.ops.matrix_recurrence import matrix_recurrence
from tests.layers.conftest import compiled, sigmoid
from tests.layers.test_linear_layers import array, drawn, inputs, of

B, D, H, K, V = 2, 6, 3, 4, 5
TOLERANCE = 1e-3 if keras.backend.backend() == "torch" else 1e-6
numpy = ops.convert_to_numpy


def check_gradients_of_the_oracle(function, oracle, values, gradients):
    """Outputs, and their gradients along a random direction, which are those of differences of the oracle's."""
    random, names = np.random.default_rng(2), list(values)
    expected = oracle(**values)
    tensors = {name: ops.convert_to_tensor(value) for name, value in values.items()}
    for got, part in zip(compiled(lambda v: function(**v))(tensors), expected, strict=True):
        np.testing.assert_allclose(numpy(got), part, rtol=TOLERANCE, atol=TOLERANCE)
    weights = [random.normal(size=part.shape) for part in expected]

    def loss(tensors):
        parts = function(**dict(zip(names, tensors, strict=True)))
        return sum(ops.sum(part * ops.convert_to_tensor(w)) for part, w in zip(parts, weights, strict=True))

    got, step = gradients(compiled(loss), list(values.values())), 1e-6
    for name, gradient in zip(names, got, strict=True):
        direction = random.normal(size=values[name].shape)
        ends = [oracle(**(values | {name: values[name] + sign * step * direction})) for sign in (1, -1)]
        up, down = (sum((part * w).sum() for part, w in zip(end, weights, strict=True)) for end in ends)
        scale = np.abs(gradient * direction).sum()
        assert (gradient * direction).sum() == pytest.approx((up - down) / (2 * step), abs=TOLERANCE * max(1, scale))


def draws(length, count=1):
    """Random arguments of `count` delta rules at a position, with keys of length 1 and some betas of 0."""
    random = np.random.default_rng(3)
    k, beta = random.normal(size=(B, count * length, H, K)), random.uniform(high=2, size=(B, count * length, H))
    return {
        "q": random.normal(size=(B, length, H, K)),
        "k": k / np.linalg.norm(k, axis=-1, keepdims=True),
        "v": random.normal(size=(B, count * length, H, V)),
        "beta": np.where(beta < 0.4, 0, beta),
        "state": random.normal(size=(B, H, K, V)),
    }


def naive_recurrent_kda(q, k, v, g, beta, state):
    """fla/ops/kda/naive.py, in float64 and without the scale."""
    state, o = state.copy(), np.zeros(v.shape)
    for i in range(v.shape[1]):
        state = state * np.exp(g[:, i])[..., None]
        held = (k[:, i][..., None] * state).sum(-2)
        state = state + np.einsum("bhk,bhv->bhkv", beta[:, i][..., None] * k[:, i], v[:, i] - held)
        o[:, i] = np.einsum("bhk,bhkv->bhv", q[:, i], state)
    return o, state


@pytest.mark.parametrize("strongest", [0.5, 30.0])
@pytest.mark.parametrize("length", [1, 70])
def test_it_is_kimi_delta_attention(float64, gradients, length, strongest):
    random = np.random.default_rng(4)
    values = draws(length) | {"g": -strongest * random.uniform(size=(B, length, H, K)) ** 4}

    def kda(q, k, v, g, beta, state):
        decays = {"log_decay": ops.zeros_like(beta), "channel_log_decay": g}
        k, a = k * ops.expand_dims(beta, -1), -k
        return matrix_recurrence(q, k, v, state=state, a=a, chunk_size=32, clip=False, **decays)

    check_gradients_of_the_oracle(kda, naive_recurrent_kda, values, gradients)


def naive_recurrent_gated_delta_product(q, k, v, g, beta, state, num_householder=2):
    """fla/ops/gated_delta_product/naive.py, in float64: k, v and beta [B, T num_householder, H, ...]."""
    state, o = state.copy(), np.zeros((*q.shape[:3], v.shape[3]))
    for i in range(q.shape[1]):
        state = state * np.exp(g[:, i])[..., None, None]
        for j in range(i * num_householder, (i + 1) * num_householder):
            held = (state * k[:, j][..., None]).sum(-2)
            state = state + (v[:, j] - held)[..., None, :] * k[:, j][..., None] * beta[:, j][..., None, None]
        o[:, i] = (state * q[:, i][..., None]).sum(-2)
    return o, state


@pytest.mark.parametrize("strongest", [0.5, 30.0])
@pytest.mark.parametrize("length", [1, 35])
def test_it_is_gated_delta_product(float64, gradients, length, strongest):
    random = np.random.default_rng(4)
    values = draws(length, count=2) | {"g": -strongest * random.uniform(size=(B, length, H)) ** 4}

    def gated_delta_product(q, k, v, g, beta, state):
        k, v, a = (ops.reshape(x, (B, length, 2 * H, -1)) for x in (k * ops.expand_dims(beta, -1), v, -k))
        return matrix_recurrence(q, k, v, g, state, a=a)

    check_gradients_of_the_oracle(gated_delta_product, naive_recurrent_gated_delta_product, values, gradients)


@pytest.mark.parametrize("heads_per_key", [1, 3])
def test_gated_delta_net_is_that_of_transformers(heads_per_key):
    torch, (G, K, V) = pytest.importorskip("torch"), (2, 3, 5)
    H = G * heads_per_key
    qwen = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    config = qwen.Qwen3NextConfig(
        hidden_size=D, linear_num_value_heads=H, linear_num_key_heads=G, linear_key_head_dim=K,
        linear_value_head_dim=V, linear_conv_kernel_dim=4, rms_norm_eps=1e-3, num_hidden_layers=1, vocab_size=7,
    )  # fmt: skip
    theirs = drawn(qwen.Qwen3NextGatedDeltaNet(config, 0))
    x = inputs(70, "float32")  # more than a chunk
    expected = array(theirs(torch.tensor(x)))
    ours = layers.GatedDeltaNet(H, K, V, epsilon=1e-3, num_key_heads=G, use_conv_bias=False)
    ours.build(x.shape)

    def columns(kernel, sizes):  # each head of keys has its columns for all parts side by side
        parts = np.split(kernel.reshape(D, G, -1), np.cumsum(sizes)[:-1], axis=2)
        return [part.reshape(D, -1) for part in parts]

    qkvz = columns(array(theirs.in_proj_qkvz.weight).T, [K, K, heads_per_key * V, heads_per_key * V])
    for dense, kernel in zip((ours.query_dense, ours.key_dense, ours.value_dense, ours.gate_dense), qkvz, strict=True):
        dense.set_weights([kernel])
    ba = columns(array(theirs.in_proj_ba.weight).T, [heads_per_key, heads_per_key])
    for dense, kernel in zip((ours.beta_dense, ours.dt_dense), ba, strict=True):
        dense.set_weights([kernel])
    ours.convolution.set_weights([array(theirs.conv1d.weight)[:, 0, ::-1].T])
    ours.dt_bias.assign(array(theirs.dt_bias))
    ours.log_a.assign(array(theirs.A_log))
    ours.scale.assign(array(theirs.norm.weight))
    ours.output_dense.set_weights([array(theirs.out_proj.weight).T])
    np.testing.assert_allclose(numpy(ours(x)), expected, atol=1e-5)


def set_delta_net(ours, theirs):
    """Give a layer the weights of a layer of transformers that names its matrices as fla does."""
    pairs = [(ours.query_dense, theirs.q_proj), (ours.key_dense, theirs.k_proj), (ours.value_dense, theirs.v_proj)]
    for dense, linear in (*pairs, (ours.beta_dense, theirs.b_proj), (ours.output_dense, theirs.o_proj)):
        dense.set_weights([array(linear.weight).T])
    convolution = array(theirs.conv1d.weight)[:, 0, ::-1].T
    ours.convolution.set_weights([convolution, np.zeros(convolution.shape[1])])
    ours.scale.assign(array(theirs.o_norm.weight))


def test_gated_delta_net_with_negative_eigenvalues_is_that_of_transformers():
    torch, (H, K, V) = pytest.importorskip("torch"), (2, 3, 5)
    olmo = pytest.importorskip("transformers.models.olmo_hybrid.modeling_olmo_hybrid")
    config = olmo.OlmoHybridConfig(
        hidden_size=D, linear_num_value_heads=H, linear_num_key_heads=H, linear_key_head_dim=K, linear_value_head_dim=V,
        linear_allow_neg_eigval=True, num_hidden_layers=2, layer_types=["linear_attention", "full_attention"],
        num_attention_heads=2, vocab_size=7,
    )  # fmt: skip
    theirs, x = drawn(olmo.OlmoHybridGatedDeltaNet(config, 0)), inputs(70, "float32")
    expected = array(theirs(torch.tensor(x)))
    ours = layers.GatedDeltaNet(H, K, V, allow_neg_eigval=True)
    ours.build(x.shape)
    set_delta_net(ours, theirs)
    for dense, linear in ((ours.dt_dense, theirs.a_proj), (ours.gate_dense, theirs.g_proj)):
        dense.set_weights([array(linear.weight).T])
    ours.dt_bias.assign(array(theirs.dt_bias))
    ours.log_a.assign(array(theirs.A_log))
    np.testing.assert_allclose(numpy(ours(x)), expected, atol=2e-5)


def test_kimi_delta_attention_is_that_of_transformers():
    torch, (H, K) = pytest.importorskip("torch"), (2, 4)
    kimi = pytest.importorskip("transformers.models.kimi_linear.modeling_kimi_linear")
    config = kimi.KimiLinearConfig(
        hidden_size=D, linear_num_heads=H, linear_head_dim=K, rms_norm_eps=1e-3, num_hidden_layers=1,
        layer_types=["linear_attention"], vocab_size=7,
    )  # fmt: skip
    theirs, x = drawn(kimi.KimiLinearDeltaAttention(config, 0)), inputs(70, "float32")
    expected = array(theirs(torch.tensor(x)))
    ours = layers.KimiDeltaAttention(H, K, epsilon=1e-3)
    ours.build(x.shape)
    set_delta_net(ours, theirs)
    gate = theirs.forget_gate
    for dense, linear in (
        (ours.dt_down, gate.f_a_proj),
        (ours.dt_up, gate.f_b_proj),
        (ours.gate_down, theirs.g_a_proj),
        (ours.gate_up, theirs.g_b_proj),
    ):
        dense.set_weights([array(linear.weight).T])
    ours.dt_bias.assign(array(gate.dt_bias))
    ours.log_a.assign(array(gate.A_log).reshape(H))
    np.testing.assert_allclose(numpy(ours(x)), expected, atol=2e-5)


@pytest.mark.parametrize(("heads_per_key", "use_conv_bias"), [(1, True), (2, False)])
def test_gated_delta_product_is_the_formula(float64, exact, randomize, heads_per_key, use_conv_bias):
    """One key, value and beta after the other, of which each has columns of its own."""
    (G, K, V), count, length = (2, 3, 4), 3, 20
    H = G * heads_per_key
    layer = layers.GatedDeltaNet(
        H, K, V, num_householder=count, allow_neg_eigval=True, use_bias=True, num_key_heads=G,
        use_conv_bias=use_conv_bias, dtype="float64",
    )  # fmt: skip
    x = inputs(length)
    layer.build(x.shape)
    randomize(layer, scale=0.7)

    def dense(part, v=x):
        return v @ of(part.kernel) + (0 if part.bias is None else of(part.bias))

    def silu(v):
        return v * sigmoid(v)

    u = np.concatenate([dense(part) for part in (layer.query_dense, layer.key_dense, layer.value_dense)], axis=-1)
    padded, kernel = np.pad(u, [(0, 0), (3, 0), (0, 0)]), of(layer.convolution.kernel)
    bias = of(layer.convolution.bias) if use_conv_bias else 0
    u = silu(sum(padded[:, 3 - n : 3 - n + length] * kernel[n] for n in range(4)) + bias)
    q, k, v = np.split(u, [G * K, G * K * (1 + count)], axis=-1)
    q, k, v = q.reshape(B, length, G, K), k.reshape(B, length, count, G, K), v.reshape(B, length, count, H, V)
    q, k = (part[..., np.arange(H) // heads_per_key, :] for part in (q, k))
    q, k = (part / np.sqrt((part**2).sum(-1, keepdims=True) + 1e-6) for part in (q, k))
    beta = 2 * sigmoid(dense(layer.beta_dense)).reshape(B, length, count, H)
    alpha = np.exp(-np.exp(of(layer.log_a)) * np.log1p(np.exp(dense(layer.dt_dense) + of(layer.dt_bias))))
    s, y = np.zeros((B, H, K, V)), np.zeros((B, length, H, V))
    for row, t, h in np.ndindex(B, length, H):
        new = alpha[row, t, h] * s[row, h]
        for n in range(count):
            at = row, t, n, h
            householder = np.eye(K) - beta[at] * np.outer(k[at], k[at])
            new = householder @ new + beta[at] * np.outer(k[at], v[at])
        s[row, h], y[row, t, h] = new, q[row, t, h] @ new / np.sqrt(K)
    y = y / np.sqrt((y**2).mean(-1, keepdims=True) + layer.epsilon) * of(layer.scale)
    expected = dense(layer.output_dense, y.reshape(B, length, -1) * silu(dense(layer.gate_dense)))
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if exact["rtol"] > 1e-9 else {"rtol": 1e-6, "atol": 1e-7}
    got, (_, last) = layer(x, return_state=True)
    np.testing.assert_allclose(numpy(got), expected, **tolerance)
    np.testing.assert_allclose(numpy(last), s, **tolerance)


def test_the_decays_of_kimi_delta_attention_may_be_of_any_strength(gradients, randomize):
    """Steps are chunks where a state is forgotten at once, and gradients are finite."""
    layer, x = layers.KimiDeltaAttention(2, kernel_size=2), inputs(40, "float32")  # more than a chunk
    layer.build(x.shape)
    randomize(layer, scale=0.5)
    layer.dt_bias.assign(np.tile([30.0, 3.0, -3.0, -3.0, -10.0, -30.0], 1))  # down to exp(-30) at a position
    whole, step, state = numpy(compiled(layer)(x)), compiled(layer.step), layer.get_initial_state(B)
    for t in range(40):
        y, state = step(x[:, t], state)
        np.testing.assert_allclose(numpy(y), whole[:, t], atol=1e-5)
    loss = compiled(lambda v: ops.sum(ops.square(layer.stateless_call(v[:-1], [], v[-1])[0])))
    assert all(np.isfinite(g).all() for g in gradients(loss, [*map(numpy, layer.trainable_variables), x]))


def test_reflections_solve_the_word_problem_of_five():
    """A swap of two places is a reflection along their difference; each head reads one place."""
    ids, targets = recall.Permutations(11, (200, 200), (1, 1), 1).batch(0)
    swaps = recall.ORDERS[ids[0]]  # [T, 5]
    difference = np.where(swaps > np.arange(5), 1.0, 0.0) - np.where(swaps < np.arange(5), 1.0, 0.0)  # [T, 5]
    key = np.broadcast_to(difference[None, :, None] / np.sqrt(2), (1, 200, 5, 5)).astype("float32")
    query = np.broadcast_to(np.eye(5, dtype="float32"), (1, 200, 5, 5))
    places = np.broadcast_to(np.arange(5, dtype="float32")[:, None], (1, 5, 5, 1))
    zeros = np.zeros((1, 200, 5, 1), "float32"), np.zeros((1, 200, 5), "float32")
    args = [ops.convert_to_tensor(v) for v in (query, 2 * key, *zeros, places)]
    y, _ = matrix_recurrence(*args, a=ops.convert_to_tensor(-key))
    np.testing.assert_allclose(numpy(y)[0, :, :, 0], recall.ORDERS[targets[0]], atol=1e-3)
