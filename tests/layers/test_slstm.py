import numpy as np
from keras import ops

from keras_seq.layers import SLSTM
from tests.layers.conftest import compiled

B, T, D, H = 2, 7, 6, 2
SIZE = D // H
numpy = ops.convert_to_numpy


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def blocks(x, kernel):
    """x times the block-diagonal matrix whose blocks are the columns of the kernel."""
    parts = [x[..., n * SIZE : (n + 1) * SIZE] @ kernel[:, n * SIZE : (n + 1) * SIZE] for n in range(H)]
    return np.concatenate(parts, axis=-1)


def oracle(layer, x):
    """The paper's formula in float64, without the stabilizer: c / n is a mean with weights exp(i)."""

    def of(v):
        return numpy(v).astype("float64")

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
    heads = np.stack(outputs, 1).reshape(B, -1, H, SIZE)
    heads = heads - heads.mean(-1, keepdims=True)
    heads = heads / np.sqrt((heads**2).mean(-1, keepdims=True) + layer.epsilon)
    return heads.reshape(x.shape) * of(layer.scale), h


def test_it_is_the_formula(float64, exact_with_tanh, randomize):
    layer, x = SLSTM(H, kernel_size=3, dtype="float64"), np.random.default_rng(0).normal(size=(B, T, D))
    layer.build(x.shape)
    randomize(layer, scale=0.7)
    y, (_, (h, *_)) = compiled(lambda x: layer(x, return_state=True))(x)
    expected = oracle(layer, x)
    np.testing.assert_allclose(numpy(y), expected[0], **exact_with_tanh)
    np.testing.assert_allclose(numpy(h), expected[1], **exact_with_tanh)


def test_gates_beyond_the_range_of_exp_are_those_of_the_limit():
    """An input gate of exp(1000) replaces the state; at exp(-1000) the state stays."""
    layer, x = SLSTM(H, kernel_size=2), np.random.default_rng(0).normal(size=(1, 3, D)).astype("float32")
    layer.build(x.shape)
    gate = layer.input_denses[0]
    gate.bias.assign([1000.0] * D)
    _, (inputs, (_, c, n, m)) = layer(x[:, :1], return_state=True)
    gate.bias.assign([-1000.0] * D)
    _, (_, (_, later, *_)) = layer(x[:, 1:], state=(inputs, (c, c, n, m)), return_state=True)
    forget = sigmoid(numpy(layer.input_denses[1].bias))
    assert (np.abs(numpy(later) / numpy(c) - forget**2) < 0.2).all()
    assert np.isfinite(numpy(later)).all()
