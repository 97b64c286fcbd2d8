import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.layers import attention


def oracle(q, k, v, mask=None, bias=None, sinks=None):
    """Softmax attention by loops over rows, heads and queries, in float64."""
    (B, T, H, K), groups = q.shape, k.shape[2]
    y = np.zeros((B, T, H, v.shape[-1]))
    weights = np.zeros((B, H, T, k.shape[1]))
    for b, h, t in np.ndindex(B, H, T):
        g = h * groups // H
        scores = k[b, :, g] @ q[b, t, h] / np.sqrt(K) + (0 if bias is None else bias[b, h, t])
        allowed = np.ones(len(scores), bool) if mask is None else mask[b, h, t]
        if allowed.any():
            highest = scores[allowed].max()
            e = np.where(allowed, np.exp(scores - highest), 0)
            weights[b, h, t] = e / (e.sum() + (0 if sinks is None else np.exp(sinks[h] - highest)))
        y[b, t, h] = weights[b, h, t] @ v[b, :, g]
    return y, weights


def random_qkv(B=2, T=3, S=5, H=4, K=6, V=7, groups=2, seed=0, dtype="float64"):
    random = np.random.default_rng(seed)
    shapes = (B, T, H, K), (B, S, groups, K), (B, S, groups, V)
    return [random.normal(size=shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_it_is_the_formula(float64, groups):
    q, k, v = random_qkv(groups=groups)
    random = np.random.default_rng(1)
    mask, bias = random.random((2, 4, 3, 5)) < 0.6, random.normal(size=(2, 4, 3, 5))
    mask[1, 2] = False
    sinks = random.normal(size=4)
    for options in ({}, {"mask": mask}, {"bias": bias}, {"sinks": sinks}, {"mask": mask, "bias": bias, "sinks": sinks}):
        for got, expected in zip(attention(q, k, v, **options), oracle(q, k, v, **options), strict=True):
            np.testing.assert_allclose(ops.convert_to_numpy(got), expected, rtol=1e-12, atol=1e-13)


def test_sinks_leave_less_than_one_and_nothing_where_there_is_nothing():
    q, k, v = random_qkv(dtype="float32")
    mask = np.ones((2, 3, 5), bool)
    mask[1, 2] = False
    for sinks, weight_of_keys in ((np.zeros(4), None), (np.full(4, 1e4), 0), (np.full(4, -1e4), 1)):
        y, weights = map(ops.convert_to_numpy, attention(q, k, v, mask, sinks=sinks))
        assert not y[1, 2].any()
        assert not weights[1, :, 2].any()
        sums = weights[0].sum(-1)
        assert (sums < 1).all() if weight_of_keys is None else np.allclose(sums, weight_of_keys, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sinks_are_those_of_gpt_oss(dtype):
    torch = pytest.importorskip("torch")
    peer = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")
    arrays, mask = random_qkv(groups=2, V=6, dtype="float32"), np.tril(np.ones((3, 5), bool), 2)
    module = torch.nn.Module()
    module.num_key_value_groups, module.training = 2, False
    module.sinks = torch.nn.Parameter(torch.tensor([-1.0, 0.0, 0.5, 3.0]))
    q, k, v = (torch.tensor(x).transpose(1, 2) for x in arrays)
    bias = torch.zeros(3, 5).masked_fill(~torch.tensor(mask), -torch.inf)
    expected = peer.eager_attention_forward(module, q, k, v, bias[None, None], scaling=6**-0.5)
    got = attention(*(ops.cast(x, dtype) for x in arrays), mask, sinks=module.sinks.detach().numpy())
    for ours, theirs in zip(got, expected, strict=True):
        ours, theirs = ops.convert_to_numpy(ops.cast(ours, "float32")), theirs.detach().numpy()
        np.testing.assert_allclose(ours, theirs, atol=1e-6 if dtype == "float32" else 0.03)


def test_masks_of_every_rank_mean_the_same():
    q, k, v = random_qkv(dtype="float32")
    mask = np.random.default_rng(0).random((3, 5)) < 0.7
    expected = ops.convert_to_numpy(attention(q, k, v, np.broadcast_to(mask, (2, 4, 3, 5)))[0])
    for same in (mask, mask[None], np.broadcast_to(mask, (2, 3, 5)), mask[None, None]):
        np.testing.assert_allclose(ops.convert_to_numpy(attention(q, k, v, same)[0]), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_query_with_nothing_to_attend_to_gives_zeros(dtype):
    q, k, v = (ops.cast(x, dtype) for x in random_qkv())
    mask = np.ones((2, 3, 5), bool)
    mask[0] = mask[1, 2] = False
    y, weights = (ops.convert_to_numpy(ops.cast(x, "float32")) for x in attention(q, k, v, mask))
    assert (y[0] == 0).all()
    assert (weights[0] == 0).all()
    assert (y[1, 2] == 0).all()
    assert (y[1, :2] != 0).all()
    assert np.isfinite(y).all()
    np.testing.assert_allclose(weights[1, :, :2].sum(-1), 1, atol=1e-2)


def test_the_softmax_is_float32_in_half_precision():
    # 2048 equal scores: in bfloat16 a running sum of ones stops at 256, and the weights would not sum to one
    q, k, v = ops.zeros((1, 1, 1, 2), "bfloat16"), ops.zeros((1, 2048, 1, 2), "bfloat16"), ops.ones((1, 2048, 1, 1))
    y, weights = attention(q, k, ops.cast(v, "bfloat16"))
    assert float(y[0, 0, 0, 0]) == 1
    assert float(weights[0, 0, 0, 0]) == 2**-11


def test_float16_scores_that_overflow_do_not_become_nan():
    q = ops.full((1, 1, 1, 4), 400.0, "float16")
    k = ops.cast(ops.reshape(ops.convert_to_tensor([400.0, -400.0, 1.0]), (1, 3, 1, 1)) * ops.ones(4), "float16")
    y, weights = attention(q, k, ops.ones((1, 3, 1, 1), "float16"))
    np.testing.assert_allclose(ops.convert_to_numpy(weights)[0, 0, 0], [1, 0, 0])
    assert float(y[0, 0, 0, 0]) == 1


def test_the_worked_example_of_the_notes(float64):
    x = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], float)
    w_q = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9]])
    w_k = np.array([[0.9, 0.8, 0.7], [0.6, 0.5, 0.4], [0.3, 0.2, 0.1]])
    w_v = np.array([[0.5, 0.6, 0.7], [0.8, 0.9, 0.1], [0.2, 0.3, 0.4]])
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    # by hand: the first query and the three keys
    np.testing.assert_allclose(q[0], [3.0, 3.6, 4.2])
    np.testing.assert_allclose(k, [[3.0, 2.4, 1.8], [8.4, 6.9, 5.4], [13.8, 11.4, 9.0]])
    np.testing.assert_allclose(v, [[2.7, 3.3, 2.1], [7.2, 8.7, 5.7], [11.7, 14.1, 9.3]])
    np.testing.assert_allclose(q[0] @ k.T, [25.2, 72.72, 120.24])
    # over sqrt(3): 14.5492, 41.9849, 69.4206; a step of 47.52 / sqrt(3) = 27.4357 is a factor e^-27.4357 = 1.2157e-12
    e = np.exp(-np.array([2, 1, 0]) * 47.52 / np.sqrt(3))
    np.testing.assert_allclose(e[1], 1.2157e-12, rtol=1e-4)
    y, weights = (ops.convert_to_numpy(t) for t in attention(*(m[None, :, None] for m in (q, k, v))))
    np.testing.assert_allclose(weights[0, 0, 0], e / e.sum(), rtol=1e-8)
    np.testing.assert_allclose(y[0, :, 0], np.repeat(v[2:], 3, axis=0), rtol=1e-10)  # all look at the last one


def test_why_the_scores_are_scaled(float64, gradients):
    """The softmax of [1, 20, 3, 4] is nearly a step, and a step teaches nothing; over sqrt(4) it has a gradient."""
    z = np.array([1.0, 20.0, 3.0, 4.0])

    def jacobian(scale):
        p = np.exp(z * scale - z.max() * scale)
        p /= p.sum()
        return np.diag(p) - np.outer(p, p)

    for scale, largest in ((1, 1.595e-7), (0.5, 6.13e-4)):
        # q = 1, k = z: the gradient of each weight by the scores is a row of diag(p) - p pᵀ
        def weight(tensors, n, scale=scale):
            q, v = ops.ones((1, 1, 1, 1), "float64"), ops.ones((1, 4, 1, 1), "float64")
            k = ops.reshape(tensors[0], (1, 4, 1, 1))
            return attention(q, k, v, scale=scale)[1][0, 0, 0, n]

        rows = np.stack([gradients(lambda tensors, n=n: weight(tensors, n), [z])[0] for n in range(4)])
        np.testing.assert_allclose(rows, scale * jacobian(scale), rtol=1e-7, atol=1e-16)
        assert np.abs(jacobian(scale)).max() == pytest.approx(largest, rel=0.01)


def test_dropout_meets_the_values_but_not_the_weights_returned():
    q, k, v = random_qkv(dtype="float32")
    y, weights = attention(q, k, v, dropout=ops.zeros_like)
    assert not ops.convert_to_numpy(y).any()
    np.testing.assert_allclose(ops.convert_to_numpy(weights).sum(-1), 1, rtol=1e-5)


def test_it_agrees_with_keras():
    q, k, v = random_qkv(groups=4, V=6, dtype="float32")
    mask = np.tril(np.ones((3, 5), bool), 2)
    expected = ops.nn.dot_product_attention(q, k, v, mask=np.broadcast_to(mask, (2, 4, 3, 5)))
    got = attention(q, k, v, mask)[0]
    np.testing.assert_allclose(ops.convert_to_numpy(got), ops.convert_to_numpy(expected), atol=1e-5)
    assert keras.backend.standardize_dtype(got.dtype) == "float32"
