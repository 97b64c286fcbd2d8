"""Layers that mix positions by linear recurrences, each against its paper's formula or the authors' code in torch."""

import numpy as np
import pytest
from keras import ops

from keras_seq import layers
from keras_seq.layers.linear.mixer import decay_radius
from keras_seq.layers.linear.mlstm import mlstm
from keras_seq.layers.linear.rwkv7_time_mix import previous_positions
from keras_seq.ops.linear_recurrence import max_plus_recurrence
from tests.layers.conftest import compiled, sigmoid
from tests.layers.test_matrix_recurrence import oracle as recurrence_oracle

B, T, D = 2, 7, 6
numpy = ops.convert_to_numpy


def inputs(length=T, dtype="float64"):
    return np.random.default_rng(1).normal(size=(B, length, D)).astype(dtype)


def of(v):
    return numpy(v).astype("float64")


def array(weight):
    return weight.detach().numpy()


def drawn(module):
    """The module of torch, every weight random."""
    random = np.random.default_rng(0)
    for weight in module.parameters():
        weight.data.copy_(weight.data.new_tensor(random.normal(size=weight.shape) * 0.5))
    return module


def normalized(y, epsilon):
    """Rows of mean 0 and variance 1, nearly."""
    y = y - y.mean(-1, keepdims=True)
    return y / np.sqrt((y**2).mean(-1, keepdims=True) + epsilon)


def test_gated_linear_attention_is_the_formula(float64, exact, randomize):
    H, K, V, T = 2, 3, 4, 20
    layer = layers.GatedLinearAttention(H, K, V, gate_rank=3, use_bias=True, dtype="float64")
    x = inputs(T)
    layer.build(x.shape)
    randomize(layer, scale=0.7)

    def dense(part, v=x):
        return v @ of(part.kernel) + (0 if part.bias is None else numpy(part.bias))

    q, k, decay = (
        dense(layer.query_dense).reshape(B, T, H, K),
        dense(layer.key_dense).reshape(B, T, H, K),
        dense(layer.decay_up, dense(layer.decay_down)).reshape(B, T, H, K),
    )
    v = dense(layer.value_dense).reshape(B, T, H, V)
    alpha = sigmoid(decay) ** (1 / 16)
    y, state = recurrence_oracle(q / K**0.5, k, v, np.zeros((B, T, H)), np.zeros((B, H, K, V)), np.log(alpha))
    y = y / np.sqrt((y**2).mean(-1, keepdims=True) + layer.epsilon) * numpy(layer.scale)
    gate = dense(layer.gate_dense)
    expected = dense(layer.output_dense, y.reshape(B, T, -1) * gate * sigmoid(gate))
    got, last = layer(x, return_state=True)
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if exact["rtol"] > 1e-9 else exact
    np.testing.assert_allclose(numpy(got), expected, **tolerance)
    np.testing.assert_allclose(numpy(last), state, **tolerance)


@pytest.mark.parametrize("groups", [1, 2])
def test_mamba2_is_that_of_transformers(groups):
    torch, (H, P, N) = pytest.importorskip("torch"), (4, 3, 5)
    mamba2 = pytest.importorskip("transformers.models.mamba2.modeling_mamba2")
    config = mamba2.Mamba2Config(
        hidden_size=D, num_heads=H, head_dim=P, state_size=N, n_groups=groups, expand=2, conv_kernel=4, chunk_size=4,
        use_bias=True, num_hidden_layers=1, vocab_size=7, layer_norm_epsilon=1e-3,
    )  # fmt: skip
    theirs = drawn(mamba2.Mamba2Mixer(config, 0))
    x = inputs(9, "float32")
    expected = array(theirs(torch.tensor(x)))
    ours = layers.Mamba2(H, P, N, num_groups=groups, epsilon=theirs.norm.variance_epsilon, use_bias=True)
    ours.build(x.shape)

    inner = H * P
    parts = np.cumsum([2 * inner, 2 * groups * N])
    kernels = np.split(array(theirs.in_proj.weight).T, parts, axis=1)
    biases = np.split(array(theirs.in_proj.bias), parts)
    for dense, kernel, bias in zip((ours.input_dense, ours.bc_dense, ours.dt_dense), kernels, biases, strict=True):
        dense.set_weights([kernel, bias])
    ours.convolution.set_weights([array(theirs.conv1d.weight)[:, 0, ::-1].T, array(theirs.conv1d.bias)])
    for mine, other in (("dt_bias", "dt_bias"), ("log_a", "A_log"), ("skip", "D")):
        getattr(ours, mine).assign(array(getattr(theirs, other)))
    ours.scale.assign(array(theirs.norm.weight))
    ours.output_dense.set_weights([array(theirs.out_proj.weight).T, array(theirs.out_proj.bias)])
    np.testing.assert_allclose(numpy(ours(x)), expected, atol=1e-5)


def test_weights_of_mamba2_at_the_start():
    layer = layers.Mamba2(4, 3, 5, output_initializer="zeros")
    layer.build((None, None, D))
    np.testing.assert_allclose(np.exp(numpy(layer.log_a)), [1, 2, 3, 4], rtol=1e-6)
    steps = np.log1p(np.exp(numpy(layer.dt_bias)))
    np.testing.assert_allclose(steps[[0, -1]], [1e-3, 0.1], rtol=1e-3)
    assert not numpy(layer.output_dense.kernel).any()


def mlstm_oracle(q, k, v, log_i, log_f):
    """The paper's formula without the stabilizer, in float64, and the state without it."""
    _, _, H, K = v.shape
    c, n, h = np.zeros((B, H, K, K)), np.zeros((B, H, K)), np.zeros(v.shape)
    for row, t, head in np.ndindex(B, v.shape[1], H):
        at = row, t, head
        f, i = np.exp(log_f[at]), np.exp(log_i[at])
        c[row, head] = f * c[row, head] + i * np.outer(k[at], v[at])
        n[row, head] = f * n[row, head] + i * k[at]
        h[at] = q[at] @ c[row, head] / max(abs(q[at] @ n[row, head]), 1)
    return h, c, n


def test_mlstm_is_the_formula(float64, exact):
    random, (H, K) = np.random.default_rng(0), (3, 4)
    q, k, v = (random.normal(size=(B, T, H, K)) for _ in range(3))
    log_i, log_f = 2 * random.normal(size=(B, T, H)), -random.exponential(size=(B, T, H))
    zeros = [np.zeros((B, H, *shape)) for shape in ((K, K), (K,), ())]
    args = [ops.convert_to_tensor(x) for x in (q, k, v, log_i, log_f)]
    h, (c, n, m) = mlstm(*args, [ops.convert_to_tensor(x) for x in zeros])
    expected = mlstm_oracle(q, k, v, log_i, log_f)
    np.testing.assert_allclose(numpy(h), expected[0], rtol=1e-3, atol=1e-6)  # the published 1e-6 in the denominator
    scale = np.exp(numpy(m))
    tolerance = exact | {"rtol": max(exact["rtol"], 1e-6), "atol": 1e-6}
    np.testing.assert_allclose(numpy(c) * scale[..., None, None], expected[1], **tolerance)
    np.testing.assert_allclose(numpy(n) * scale[..., None], expected[2], **tolerance)


def test_large_gates_of_mlstm_do_not_overflow(gradients):
    random, (H, K) = np.random.default_rng(0), (3, 4)
    q, k, v = (random.normal(size=(B, 130, H, K)).astype("float32") for _ in range(3))
    log_i = 300 * random.normal(size=(B, 130, H)).astype("float32")
    log_f = -100 * random.exponential(size=(B, 130, H)).astype("float32")
    zeros = [np.zeros((B, H, *shape), "float32") for shape in ((K, K), (K,), ())]
    state = [ops.convert_to_tensor(x) for x in zeros]
    assert all(np.isfinite(g).all() for g in gradients(lambda x: ops.sum(mlstm(*x, state)[0]), [q, k, v, log_i, log_f]))


def test_the_maximum_recurrence_is_the_loop(float64, exact):
    random = np.random.default_rng(0)
    a, b, h = (random.normal(size=shape) for shape in ((B, T, 3), (B, T, 3), (B, 3)))
    got, expected = max_plus_recurrence(*map(ops.convert_to_tensor, (a, b, h))), []
    for t in range(T):
        h = np.maximum(a[:, t] + h, b[:, t])
        expected.append(h)
    np.testing.assert_allclose(numpy(got), np.stack(expected, 1), **exact)


def test_mlstm_is_that_of_xlstm():
    torch = pytest.importorskip("torch")
    cell = pytest.importorskip("xlstm.blocks.mlstm.layer", exc_type=ImportError)
    inner = 2 * D
    config = cell.mLSTMLayerConfig(
        embedding_dim=D, num_heads=2, context_length=T, conv1d_kernel_size=3, qkv_proj_blocksize=3, proj_factor=2.0,
        round_proj_up_to_multiple_of=1,
    )  # fmt: skip
    config._inner_embedding_dim = inner
    theirs = drawn(cell.mLSTMLayer(config))
    x = inputs(dtype="float32")
    expected = array(theirs(torch.tensor(x)))
    ours = layers.MLSTM(2, head_dim=D, qkv_block_size=3, kernel_size=3)
    ours.build(x.shape)

    ours.input_dense.set_weights([array(theirs.proj_up.weight).T])
    convolution = theirs.conv1d.conv
    ours.convolution.set_weights([array(convolution.weight)[:, 0, ::-1].T, array(convolution.bias)])
    for mine, other in (
        (ours.query_dense, theirs.q_proj),
        (ours.key_dense, theirs.k_proj),
        (ours.value_dense, theirs.v_proj),
    ):
        mine.set_weights([np.concatenate([block.T for block in array(other.weight)], axis=1)])
    gates = theirs.mlstm_cell.igate, theirs.mlstm_cell.fgate
    ours.gates_kernel.assign(np.concatenate([array(gate.weight).T for gate in gates], axis=1))
    ours.input_gate_bias.assign(array(gates[0].bias))
    ours.forget_gate_bias.assign(array(gates[1].bias))
    ours.scale.assign(1 + array(theirs.mlstm_cell.outnorm.weight))
    ours.skip.assign(array(theirs.learnable_skip))
    ours.output_dense.set_weights([array(theirs.proj_down.weight).T])
    np.testing.assert_allclose(numpy(ours(x)), expected, atol=2e-5)


def blocks(x, kernel):
    """x times the block-diagonal matrix whose blocks are the columns of the kernel."""
    size = kernel.shape[0]
    parts = [x[..., n : n + size] @ kernel[:, n : n + size] for n in range(0, kernel.shape[1], size)]
    return np.concatenate(parts, axis=-1)


def slstm_oracle(layer, x):
    """The paper's formula in float64, without the stabilizer: c / n is a mean with weights exp(i)."""

    kernel, last = of(layer.convolution.kernel), layer.kernel_size - 1
    padded = np.pad(x, [(0, 0), (last, 0), (0, 0)])
    u = sum(padded[:, last - k : last - k + x.shape[1]] * kernel[k] for k in range(last + 1)) + of(
        layer.convolution.bias
    )
    u = u * sigmoid(u)
    projected = [
        blocks(v, of(dense.kernel)) + of(dense.bias) for dense, v in zip(layer.input_denses, (u, u, x, x), strict=True)
    ]
    recurrent = np.split(of(layer.recurrent_kernel), 4, axis=1)  # of each gate, [D / H, D]
    h, c, n, outputs = (np.zeros((B, D)) for _ in range(4))
    outputs = []
    for t in range(x.shape[1]):
        i, f, z, o = (v[:, t] + blocks(h, r) for v, r in zip(projected, recurrent, strict=True))
        c = sigmoid(f) * c + np.exp(i) * np.tanh(z)
        n = sigmoid(f) * n + np.exp(i)
        h = sigmoid(o) * c / n
        outputs.append(h)
    heads = normalized(np.stack(outputs, 1).reshape(B, -1, 2, D // 2), layer.epsilon)
    return heads.reshape(x.shape) * of(layer.scale), h


def test_slstm_is_the_formula(float64, exact_with_tanh, randomize):
    layer, x = layers.SLSTM(2, kernel_size=3, dtype="float64"), inputs()
    layer.build(x.shape)
    randomize(layer, scale=0.7)
    y, (_, (h, *_)) = compiled(lambda x: layer(x, return_state=True))(x)
    expected = slstm_oracle(layer, x)
    np.testing.assert_allclose(numpy(y), expected[0], **exact_with_tanh)
    np.testing.assert_allclose(numpy(h), expected[1], **exact_with_tanh)


def test_gates_of_slstm_beyond_the_range_of_exp_are_those_of_the_limit():
    """An input gate of exp(1000) replaces the state; at exp(-1000) the state stays."""
    layer, x = layers.SLSTM(2, kernel_size=2), np.random.default_rng(0).normal(size=(1, 3, D)).astype("float32")
    layer.build(x.shape)
    gate = layer.input_denses[0]
    gate.bias.assign([1000.0] * D)
    _, (inputs, (_, c, n, m)) = layer(x[:, :1], return_state=True)
    gate.bias.assign([-1000.0] * D)
    _, (_, (_, later, *_)) = layer(x[:, 1:], state=(inputs, (c, c, n, m)), return_state=True)
    forget = sigmoid(numpy(layer.input_denses[1].bias))
    assert (np.abs(numpy(later) / numpy(c) - forget**2) < 0.2).all()
    assert np.isfinite(numpy(later)).all()


def rg_lru_oracle(layer, x):
    """The paper's formula from the start of a sequence, in float64."""
    r, i = (sigmoid(blocks(x, of(d.kernel)) + of(d.bias)) for d in (layer.recurrence_gate, layer.input_gate))
    a = np.exp(-8 * np.log1p(np.exp(of(layer.decay))) * r)
    h, states = np.zeros(x[:, 0].shape), []
    for t in range(x.shape[1]):
        h = a[:, t] * h + (np.sqrt(1 - a[:, t] ** 2) if t else 1) * i[:, t] * x[:, t]
        states.append(h)
    return np.stack(states, axis=1)


def test_rg_lru_is_the_formula(float64, exact, randomize):
    layer, x = layers.RGLRU(2, dtype="float64"), inputs()
    layer.build(x.shape)
    randomize(layer, scale=0.7)
    y, (h, started) = layer(x, return_state=True)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if exact["rtol"] > 1e-9 else exact
    np.testing.assert_allclose(numpy(y), rg_lru_oracle(layer, x), **tolerance)
    np.testing.assert_allclose(numpy(h), numpy(y)[:, -1])
    np.testing.assert_array_equal(numpy(started), 1)


def test_decays_start_between_their_bounds():
    radius = np.exp(-np.log1p(np.exp(numpy(decay_radius((9,))).astype("float64"))))
    assert radius[0] == pytest.approx(0.9, rel=1e-4)
    assert radius[-1] == pytest.approx(0.999, rel=1e-4)
    np.testing.assert_allclose(np.diff(radius**2), (0.999**2 - 0.9**2) / 8, rtol=1e-2)


@pytest.mark.parametrize("first", [0, 5])
def test_the_griffin_block_is_that_of_transformers(first):
    """With first > 0 the sequence has positions before it, so the rule for the first one does not apply."""
    torch = pytest.importorskip("torch")
    gemma = pytest.importorskip("transformers.models.recurrent_gemma.modeling_recurrent_gemma")
    config = gemma.RecurrentGemmaConfig(
        hidden_size=D, lru_width=8, num_attention_heads=2, conv1d_width=4, num_hidden_layers=1, vocab_size=7
    )
    theirs = drawn(gemma.RecurrentGemmaRecurrentBlock(config, 0))
    x, position = inputs(dtype="float32"), torch.arange(first, first + T)[None].repeat(B, 1)
    expected = array(theirs(torch.tensor(x), position, None, use_cache=False)[0])
    ours = layers.GriffinRecurrentBlock(2, head_dim=4)
    ours.build(x.shape)

    for mine, other in ((ours.input_dense, theirs.linear_x), (ours.gate_dense, theirs.linear_y)):
        mine.set_weights([array(other.weight).T, array(other.bias)])
    ours.output_dense.set_weights([array(theirs.linear_out.weight).T, array(theirs.linear_out.bias)])
    ours.convolution.set_weights([array(theirs.conv_1d.weight)[:, 0, ::-1].T, array(theirs.conv_1d.bias)])
    lru = theirs.rg_lru
    for mine, name in ((ours.rg_lru.recurrence_gate, "recurrent_gate"), (ours.rg_lru.input_gate, "input_gate")):
        kernel = array(getattr(lru, f"{name}_weight"))  # [H, W, W]
        mine.set_weights([np.concatenate(list(kernel), axis=1), array(getattr(lru, f"{name}_bias")).reshape(-1)])
    ours.rg_lru.decay.assign(array(lru.recurrent_param))
    before, (h, started) = ours.get_initial_state(B)
    y = ours(x, state=(before, (h, started + min(first, 1))))
    np.testing.assert_allclose(numpy(y), expected, atol=1e-5)


def shifted(x, mu):
    return x + (np.pad(x, [(0, 0), (1, 0), (0, 0)])[:, :-1] - x) * of(mu)


def time_mix(layer, x, first_value=None):
    """The paper's formula of RWKV-7, S as [value, key] like there, in float64. Returns `(y, v, S)`."""

    H, K = 2, 4

    def dense(part, v):
        return v @ of(part.kernel)

    def low_rank(name, v, activation=lambda v: v):
        return dense(getattr(layer, f"{name}_up"), activation(dense(getattr(layer, f"{name}_down"), v)))

    x_r, x_w, x_k, x_v, x_a, x_g = (shifted(x, getattr(layer, f"shift_{name}")) for name in "rwkvag")
    r, k, v = dense(layer.receptance_dense, x_r), dense(layer.key_dense, x_k), dense(layer.value_dense, x_v)
    value = v
    w = np.exp(-np.exp(-0.5) * sigmoid(of(layer.decay_bias) + low_rank("decay", x_w, np.tanh)))
    a = sigmoid(of(layer.rate_bias) + low_rank("rate", x_a))
    g = low_rank("gate", x_g, sigmoid)
    if first_value is not None:
        v = v + (first_value - v) * sigmoid(of(layer.residual_bias) + low_rank("residual", x_v))
    kappa = (k * of(layer.key_scale)).reshape(B, -1, H, K)
    kappa = kappa / np.linalg.norm(kappa, axis=-1, keepdims=True)
    k = k * (1 + (a - 1) * of(layer.key_rate))
    r, w, k, v, a = (u.reshape(B, -1, H, K) for u in (r, w, k, v, a))
    s, y = np.zeros((B, H, K, K)), np.zeros(v.shape)
    for row, t, h in np.ndindex(B, x.shape[1], H):
        at = row, t, h
        removal = np.diag(w[at]) - np.outer(kappa[at], a[at] * kappa[at])
        s[row, h] = s[row, h] @ removal + np.outer(v[at], k[at])
        y[at] = s[row, h] @ r[at]
    y = normalized(y, K * 1e-5) * of(layer.gamma).reshape(H, K) + of(layer.beta).reshape(H, K)
    y = y + (r * k * of(layer.bonus)).sum(-1, keepdims=True) * v
    return (y.reshape(B, -1, H * K) * g) @ of(layer.output_dense.kernel), value, s.swapaxes(-1, -2)


def layer_norm(layer, x):
    return normalized(x, layer.epsilon) * of(layer.gamma) + of(layer.beta)


def blocks_oracle(layer, x):
    first, *norms = layer.normalizations
    x, value = layer_norm(first, x), None
    for n, (time, channel) in enumerate(zip(layer.time_mixes, layer.channel_mixes, strict=True)):
        y, own, _ = time_mix(time, layer_norm(norms[2 * n], x), value)
        value, x = own if value is None else value, x + y
        hidden = np.maximum(
            shifted(layer_norm(norms[2 * n + 1], x), channel.shift) @ of(channel.hidden_dense.kernel), 0
        )
        x = x + hidden**2 @ of(channel.output_dense.kernel)
    return x


def test_time_mixing_of_rwkv7_is_the_formula(float64, exact_with_tanh, randomize):
    layer, x = layers.RWKV7TimeMix(2, 4, rank=3, dtype="float64"), inputs()
    layer.build(x.shape)
    randomize(layer, scale=0.7)
    y, value, (last, s) = compiled(lambda x: layer(x, return_state=True, return_value=True))(x)
    for got, expected in zip((y, value, s, last), (*time_mix(layer, x), x[:, -1]), strict=True):
        np.testing.assert_allclose(numpy(got), expected, **exact_with_tanh)


def test_the_stack_of_rwkv7_is_the_formula_with_the_values_of_the_first_block(float64, exact_with_tanh, randomize):
    layer, x = layers.RWKV7Blocks(3, 2, 5, head_dim=4, rank=3, dtype="float64"), inputs()
    layer.build(x.shape)
    randomize(layer, scale=0.5)
    np.testing.assert_allclose(numpy(compiled(layer)(x)), blocks_oracle(layer, x), **exact_with_tanh)


def test_previous_positions_skip_padding():
    x = np.arange(1.0, 7.0, dtype="float32").reshape(1, 6, 1)
    last = np.full((1, 1), -1, "float32")
    previous, end = previous_positions(ops.convert_to_tensor(x), ops.convert_to_tensor(last))
    assert numpy(previous).ravel().tolist() == [-1, 1, 2, 3, 4, 5]
    assert numpy(end).ravel().tolist() == [6]
    mask = ops.convert_to_tensor(np.array([[0, 1, 0, 0, 1, 0]], bool))
    previous, end = previous_positions(ops.convert_to_tensor(x), ops.convert_to_tensor(last), mask)
    assert numpy(previous).ravel()[[1, 4]].tolist() == [-1, 2]
    assert numpy(end).ravel().tolist() == [5]
