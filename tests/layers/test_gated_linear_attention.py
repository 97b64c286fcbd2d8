import numpy as np
from keras import ops

from keras_seq.layers import GatedLinearAttention
from tests.layers.test_matrix_recurrence import oracle as recurrence_oracle

B, T, D, H, K, V = 2, 20, 6, 2, 3, 4
numpy = ops.convert_to_numpy


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_it_is_the_formula(float64, exact, randomize):
    layer = GatedLinearAttention(H, K, V, gate_rank=3, use_bias=True, dtype="float64")
    x = np.random.default_rng(0).normal(size=(B, T, D))
    layer.build(x.shape)
    randomize(layer, scale=0.7)

    def dense(part, v=x):
        return v @ numpy(part.kernel).astype("float64") + (0 if part.bias is None else numpy(part.bias))

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
