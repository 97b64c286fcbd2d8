import numpy as np
from keras import ops

from keras_seq.layers import RWKV7Blocks, RWKV7TimeMix
from keras_seq.layers.linear.rwkv7_time_mix import previous_positions
from tests.layers.conftest import compiled

B, T, D, H, K, F = 2, 7, 6, 2, 4, 5
numpy = ops.convert_to_numpy


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def of(v):
    return numpy(v).astype("float64")


def shifted(x, mu):
    return x + (np.pad(x, [(0, 0), (1, 0), (0, 0)])[:, :-1] - x) * of(mu)


def time_mix(layer, x, first_value=None):
    """The paper's formula, S as [value, key] like there, in float64. Returns `(y, v, S)`."""

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
    y = y - y.mean(-1, keepdims=True)
    y = y / np.sqrt((y**2).mean(-1, keepdims=True) + K * 1e-5)
    y = y * of(layer.gamma).reshape(H, K) + of(layer.beta).reshape(H, K)
    y = y + (r * k * of(layer.bonus)).sum(-1, keepdims=True) * v
    return (y.reshape(B, -1, H * K) * g) @ of(layer.output_dense.kernel), value, s.swapaxes(-1, -2)


def layer_norm(layer, x):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + layer.epsilon) * of(layer.gamma) + of(layer.beta)


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


def inputs(length=T):
    return np.random.default_rng(0).normal(size=(B, length, D))


def test_time_mixing_is_the_formula(float64, exact_with_tanh, randomize):
    layer, x = RWKV7TimeMix(H, K, rank=3, dtype="float64"), inputs()
    layer.build(x.shape)
    randomize(layer, scale=0.7)
    y, value, (last, s) = compiled(lambda x: layer(x, return_state=True, return_value=True))(x)
    for got, expected in zip((y, value, s, last), (*time_mix(layer, x), x[:, -1]), strict=True):
        np.testing.assert_allclose(numpy(got), expected, **exact_with_tanh)


def test_the_stack_is_the_formula_with_the_values_of_the_first_block(float64, exact_with_tanh, randomize):
    layer, x = RWKV7Blocks(3, H, F, head_dim=K, rank=3, dtype="float64"), inputs()
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
