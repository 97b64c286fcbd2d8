import numpy as np
import pytest
from keras import ops

from keras_seq.layers import GatedDeltaNet
from keras_seq.ops.matrix_recurrence import matrix_recurrence

B, T, D, H, K, V = 2, 70, 6, 2, 3, 5
numpy = ops.convert_to_numpy


def test_it_is_that_of_transformers():
    torch = pytest.importorskip("torch")
    qwen = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    config = qwen.Qwen3NextConfig(
        hidden_size=D, linear_num_value_heads=H, linear_num_key_heads=H, linear_key_head_dim=K,
        linear_value_head_dim=V, linear_conv_kernel_dim=4, rms_norm_eps=1e-3, num_hidden_layers=1, vocab_size=7,
    )  # fmt: skip
    theirs = qwen.Qwen3NextGatedDeltaNet(config, 0)
    random, x = np.random.default_rng(0), np.random.default_rng(1).normal(size=(B, T, D)).astype("float32")
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.copy_(torch.tensor(random.normal(size=weight.shape) * 0.5))
        expected = theirs(torch.tensor(x)).numpy()
    ours = GatedDeltaNet(H, K, V, epsilon=1e-3)
    ours.build(x.shape)

    def array(weight):
        return weight.detach().numpy()

    def columns(kernel, sizes):  # each head has its columns for all parts side by side
        parts = np.split(kernel.reshape(D, H, -1), np.cumsum(sizes)[:-1], axis=2)
        return [part.reshape(D, -1) for part in parts]

    qkvz = columns(array(theirs.in_proj_qkvz.weight).T, [K, K, V, V])
    for dense, kernel in zip((ours.query_dense, ours.key_dense, ours.value_dense, ours.gate_dense), qkvz, strict=True):
        dense.set_weights([kernel])
    ba = columns(array(theirs.in_proj_ba.weight).T, [1, 1])
    for dense, kernel in zip((ours.beta_dense, ours.dt_dense), ba, strict=True):
        dense.set_weights([kernel])
    convolution = array(theirs.conv1d.weight)[:, 0, ::-1].T
    ours.convolution.set_weights([convolution, np.zeros(convolution.shape[1])])
    ours.dt_bias.assign(array(theirs.dt_bias))
    ours.log_a.assign(array(theirs.A_log))
    ours.scale.assign(array(theirs.norm.weight))
    ours.output_dense.set_weights([array(theirs.out_proj.weight).T])
    np.testing.assert_allclose(numpy(ours(x)), expected, atol=1e-5)


def test_the_delta_rule_replaces_what_the_state_holds_for_a_key():
    """Written twice with beta = 1, a key holds the second value; without the rule, the sum of both."""
    key = np.zeros((1, 2, 1, 4), "float32")
    key[..., 1] = 1
    value = np.array([[[[3.0, -1.0]], [[5.0, 2.0]]]], "float32")
    decay, state = np.zeros((1, 2, 1), "float32"), np.zeros((1, 1, 4, 2), "float32")
    args = [ops.convert_to_tensor(v) for v in (key, key, value, decay, state)]
    y, _ = matrix_recurrence(*args, a=-args[1])
    np.testing.assert_allclose(numpy(y)[0, 1, 0], [5, 2])
    y, _ = matrix_recurrence(*args)
    np.testing.assert_allclose(numpy(y)[0, 1, 0], [8, 1])
