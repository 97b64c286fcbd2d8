import numpy as np
import pytest
from keras import ops

from keras_seq.layers import Mamba2

B, T, D, H, P, N = 2, 9, 6, 4, 3, 5
numpy = ops.convert_to_numpy


@pytest.mark.parametrize("groups", [1, 2])
def test_it_is_that_of_transformers(groups):
    torch = pytest.importorskip("torch")
    mamba2 = pytest.importorskip("transformers.models.mamba2.modeling_mamba2")
    config = mamba2.Mamba2Config(
        hidden_size=D, num_heads=H, head_dim=P, state_size=N, n_groups=groups, expand=2, conv_kernel=4, chunk_size=4,
        use_bias=True, num_hidden_layers=1, vocab_size=7, layer_norm_epsilon=1e-3,
    )  # fmt: skip
    theirs = mamba2.Mamba2Mixer(config, 0)
    random, x = np.random.default_rng(0), np.random.default_rng(1).normal(size=(B, T, D)).astype("float32")
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.copy_(torch.tensor(random.normal(size=weight.shape) * 0.5))
        expected = theirs(torch.tensor(x)).numpy()
    ours = Mamba2(H, P, N, num_groups=groups, epsilon=theirs.norm.variance_epsilon, use_bias=True)
    ours.build(x.shape)

    def array(weight):
        return weight.detach().numpy()

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


def test_weights_at_the_start():
    layer = Mamba2(H, P, N, output_initializer="zeros")
    layer.build((None, None, D))
    np.testing.assert_allclose(np.exp(numpy(layer.log_a)), [1, 2, 3, 4], rtol=1e-6)
    steps = np.log1p(np.exp(numpy(layer.dt_bias)))
    np.testing.assert_allclose(steps[[0, -1]], [1e-3, 0.1], rtol=1e-3)
    assert not numpy(layer.output_dense.kernel).any()
