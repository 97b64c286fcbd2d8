import numpy as np
import pytest
from keras import ops

from keras_seq.layers import RGLRU, GriffinRecurrentBlock
from keras_seq.layers.linear.mixer import DecayRadius

B, T, D, H = 2, 7, 6, 2
numpy = ops.convert_to_numpy


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def oracle(layer, x):
    """The paper's formula from the start of a sequence, in float64."""

    def gate(dense):
        kernel = numpy(dense.kernel).astype("float64")
        size = kernel.shape[0]
        blocks = [x[..., n * size : (n + 1) * size] @ kernel[:, n * size : (n + 1) * size] for n in range(H)]
        return sigmoid(np.concatenate(blocks, axis=-1) + numpy(dense.bias))

    r, i = gate(layer.recurrence_gate), gate(layer.input_gate)
    a = np.exp(-8 * np.log1p(np.exp(numpy(layer.decay).astype("float64"))) * r)
    h, states = np.zeros(x[:, 0].shape), []
    for t in range(x.shape[1]):
        h = a[:, t] * h + (np.sqrt(1 - a[:, t] ** 2) if t else 1) * i[:, t] * x[:, t]
        states.append(h)
    return np.stack(states, axis=1)


def test_it_is_the_formula(float64, exact, randomize):
    layer, x = RGLRU(H, dtype="float64"), np.random.default_rng(0).normal(size=(B, T, D))
    layer.build(x.shape)
    randomize(layer, scale=0.7)
    y, (h, started) = layer(x, return_state=True)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if exact["rtol"] > 1e-9 else exact
    np.testing.assert_allclose(numpy(y), oracle(layer, x), **tolerance)
    np.testing.assert_allclose(numpy(h), numpy(y)[:, -1])
    np.testing.assert_array_equal(numpy(started), 1)


def test_decays_start_between_their_bounds():
    radius = np.exp(-np.log1p(np.exp(numpy(DecayRadius()((9,))).astype("float64"))))
    assert radius[0] == pytest.approx(0.9, rel=1e-4)
    assert radius[-1] == pytest.approx(0.999, rel=1e-4)
    np.testing.assert_allclose(np.diff(radius**2), (0.999**2 - 0.9**2) / 8, rtol=1e-2)


@pytest.mark.parametrize("first", [0, 5])
def test_the_block_is_that_of_transformers(first):
    """With first > 0 the sequence has positions before it, so the rule for the first one does not apply."""
    torch = pytest.importorskip("torch")
    gemma = pytest.importorskip("transformers.models.recurrent_gemma.modeling_recurrent_gemma")
    config = gemma.RecurrentGemmaConfig(
        hidden_size=D, lru_width=8, num_attention_heads=H, conv1d_width=4, num_hidden_layers=1, vocab_size=7
    )
    theirs = gemma.RecurrentGemmaRecurrentBlock(config, 0)
    random, x = np.random.default_rng(0), np.random.default_rng(1).normal(size=(B, T, D)).astype("float32")
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.copy_(torch.tensor(random.normal(size=weight.shape) * 0.5))
        position = torch.arange(first, first + T)[None].repeat(B, 1)
        expected = theirs(torch.tensor(x), position, None, use_cache=False)[0].numpy()
    ours = GriffinRecurrentBlock(H, head_dim=4)
    ours.build(x.shape)

    def array(weight):
        return weight.detach().numpy()

    for mine, other in ((ours.input_dense, theirs.linear_x), (ours.gate_dense, theirs.linear_y)):
        mine.set_weights([array(other.weight).T, array(other.bias)])
    ours.output_dense.set_weights([array(theirs.linear_out.weight).T, array(theirs.linear_out.bias)])
    ours.convolution.set_weights([array(theirs.conv_1d.weight)[:, 0, ::-1].T, array(theirs.conv_1d.bias)])
    lru = theirs.rg_lru
    for mine, name in ((ours.rg_lru.recurrence_gate, "recurrent_gate"), (ours.rg_lru.input_gate, "input_gate")):
        kernel = array(getattr(lru, f"{name}_weight"))  # [H, W, W]
        mine.set_weights([np.concatenate(list(kernel), axis=1), array(getattr(lru, f"{name}_bias")).reshape(-1)])
    ours.rg_lru.decay.assign(array(lru.recurrent_param))
    inputs, (h, started) = ours.get_initial_state(B)
    y = ours(x, state=(inputs, (h, started + min(first, 1))))
    np.testing.assert_allclose(numpy(y), expected, atol=1e-5)
