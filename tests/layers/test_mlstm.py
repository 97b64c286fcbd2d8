import numpy as np
import pytest
from keras import ops

from keras_seq.layers import MLSTM
from keras_seq.layers.linear.mlstm import mlstm
from keras_seq.ops.linear_recurrence import max_plus_recurrence

B, T, H, K, D = 2, 7, 3, 4, 6
numpy = ops.convert_to_numpy


def oracle(q, k, v, log_i, log_f):
    """The paper's formula without the stabilizer, in float64, and the state without it."""
    c, n, h = np.zeros((B, H, K, K)), np.zeros((B, H, K)), np.zeros(v.shape)
    for row, t, head in np.ndindex(B, v.shape[1], H):
        at = row, t, head
        f, i = np.exp(log_f[at]), np.exp(log_i[at])
        c[row, head] = f * c[row, head] + i * np.outer(k[at], v[at])
        n[row, head] = f * n[row, head] + i * k[at]
        h[at] = q[at] @ c[row, head] / max(abs(q[at] @ n[row, head]), 1)
    return h, c, n


def test_it_is_the_formula(float64, exact):
    random = np.random.default_rng(0)
    q, k, v = (random.normal(size=(B, T, H, K)) for _ in range(3))
    log_i, log_f = 2 * random.normal(size=(B, T, H)), -random.exponential(size=(B, T, H))
    zeros = [np.zeros((B, H, *shape)) for shape in ((K, K), (K,), ())]
    args = [ops.convert_to_tensor(x) for x in (q, k, v, log_i, log_f)]
    h, (c, n, m) = mlstm(*args, [ops.convert_to_tensor(x) for x in zeros])
    expected = oracle(q, k, v, log_i, log_f)
    np.testing.assert_allclose(numpy(h), expected[0], rtol=1e-3, atol=1e-6)  # the published 1e-6 in the denominator
    scale = np.exp(numpy(m))
    tolerance = exact | {"rtol": max(exact["rtol"], 1e-6), "atol": 1e-6}
    np.testing.assert_allclose(numpy(c) * scale[..., None, None], expected[1], **tolerance)
    np.testing.assert_allclose(numpy(n) * scale[..., None], expected[2], **tolerance)


def test_large_gates_do_not_overflow(gradients):
    random = np.random.default_rng(0)
    q, k, v = (random.normal(size=(B, 130, H, K)).astype("float32") for _ in range(3))
    log_i = 300 * random.normal(size=(B, 130, H)).astype("float32")
    log_f = -100 * random.exponential(size=(B, 130, H)).astype("float32")
    zeros = [np.zeros((B, H, *shape), "float32") for shape in ((K, K), (K,), ())]
    state = [ops.convert_to_tensor(x) for x in zeros]
    assert all(np.isfinite(g).all() for g in gradients(lambda x: ops.sum(mlstm(*x, state)[0]), [q, k, v, log_i, log_f]))


def test_the_maximum_recurrence_is_the_loop(float64, exact):
    random = np.random.default_rng(0)
    a, b, h = (random.normal(size=shape) for shape in ((B, T, H), (B, T, H), (B, H)))
    got, expected = max_plus_recurrence(*map(ops.convert_to_tensor, (a, b, h))), []
    for t in range(T):
        h = np.maximum(a[:, t] + h, b[:, t])
        expected.append(h)
    np.testing.assert_allclose(numpy(got), np.stack(expected, 1), **exact)


def test_it_is_that_of_xlstm():
    torch = pytest.importorskip("torch")
    cell = pytest.importorskip("xlstm.blocks.mlstm.layer", exc_type=ImportError)
    inner = 2 * D
    config = cell.mLSTMLayerConfig(
        embedding_dim=D, num_heads=2, context_length=T, conv1d_kernel_size=3, qkv_proj_blocksize=3, proj_factor=2.0,
        round_proj_up_to_multiple_of=1,
    )  # fmt: skip
    config._inner_embedding_dim = inner
    theirs = cell.mLSTMLayer(config)
    random, x = np.random.default_rng(0), np.random.default_rng(1).normal(size=(B, T, D)).astype("float32")
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.copy_(torch.tensor(random.normal(size=weight.shape) * 0.5))
        expected = theirs(torch.tensor(x)).numpy()
    ours = MLSTM(2, head_dim=D, qkv_block_size=3, kernel_size=3)
    ours.build(x.shape)

    def array(weight):
        return weight.detach().numpy()

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
