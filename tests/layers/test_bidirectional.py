import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.layers import GRU, LSTM, Bidirectional, MinGRU, SelectiveStateSpace, SimpleRNN, Stateful
from tests.layers.conftest import rare_on_jax

B, T, D = 3, 6, 3
numpy = ops.convert_to_numpy
LAYERS = {
    "SimpleRNN": lambda: SimpleRNN(2, return_sequences=True),
    "GRU": lambda: GRU(2, return_sequences=True),
    "LSTM": lambda: LSTM(2, return_sequences=True),
    "MinGRU": lambda: MinGRU(2, return_sequences=True),
    "SelectiveStateSpace": lambda: SelectiveStateSpace(state_dim=2, kernel_size=2),
}
each = rare_on_jax("make", LAYERS, quick=("GRU", "MinGRU"))


def draw(batch=B, length=T, seed=0):
    return np.random.default_rng(seed).normal(size=(batch, length, D)).astype("float32")


def weighted(layer, randomize, seed=0):
    layer.build((None, None, D))
    return randomize(layer, seed=seed, scale=0.7)


@rare_on_jax(
    ("make", "merge_mode"),
    {**{name: (make, "concat") for name, make in LAYERS.items()}, "sum": (LAYERS["LSTM"], "sum")},
    quick=("GRU", "MinGRU", "sum"),
)
def test_it_is_one_layer_forwards_and_one_backwards(randomize, make, merge_mode):
    layer, x = weighted(Bidirectional(make(), merge_mode), randomize), draw()
    forward, backward = (weighted(make(), randomize) for _ in range(2))
    count = len(forward.weights)
    forward.set_weights(layer.get_weights()[:count])
    backward.set_weights(layer.get_weights()[count:])
    halves = numpy(forward(x)), numpy(backward(x[:, ::-1].copy()))[:, ::-1]
    expected = np.concatenate(halves, -1) if merge_mode == "concat" else sum(halves)
    np.testing.assert_allclose(numpy(layer(x)), expected, atol=2e-6)
    assert layer.compute_output_shape((None, None, D)) == (None, None, expected.shape[-1])


@each
def test_a_padded_batch_is_each_sequence_alone(randomize, make):
    """Padding on the left, on the right and in between."""
    layer, x = weighted(Bidirectional(make()), randomize), draw()
    mask = np.array([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 1, 0, 1, 0, 1]], bool)
    x[~mask] = 100.0  # what stands there does not matter
    alone = numpy(layer(x[mask].reshape(B, 4, D)))
    np.testing.assert_allclose(numpy(layer(x, mask=mask))[mask].reshape(alone.shape), alone, atol=2e-5)


@each
def test_the_two_have_weights_and_initial_values_of_their_own(make):
    layer = Bidirectional(make())
    layer.build((None, None, D))
    forward, backward = layer.layer.trainable_weights, layer.backward_layer.trainable_weights
    assert (
        len(layer.trainable_weights) == len({v.path for v in forward} | {v.path for v in backward}) == 2 * len(forward)
    )
    for ours, theirs in zip(forward, backward, strict=True):
        drawn = np.unique(numpy(ours)).size > 2 and not ours.path.endswith(("log_a", "dt_up/bias"))
        assert (numpy(ours) != numpy(theirs)).any() == drawn, ours.path


def test_a_layer_that_was_used_before_keeps_its_weights(randomize):
    inner = weighted(LSTM(2, return_sequences=True), randomize)
    x = draw()
    expected = numpy(inner(x))
    layer = Bidirectional(inner)
    np.testing.assert_allclose(numpy(layer(x))[..., :2], expected, atol=1e-6)
    assert (numpy(layer.backward_layer.kernel) != numpy(inner.kernel)).any()


def test_it_takes_and_gives_no_state():
    layer = Bidirectional(LSTM(2, return_sequences=True))
    assert not hasattr(layer, "get_initial_state")
    with pytest.raises(ValueError, match="get_initial_state"):
        Stateful(layer, B)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="backward_layer has go_backwards=False; expected True"):
        Bidirectional(LSTM(2), backward_layer=LSTM(2))
    with pytest.raises(ValueError, match="backward_layer has return_sequences=True; expected False"):
        Bidirectional(LSTM(2), backward_layer=GRU(2, return_sequences=True, go_backwards=True))
    with pytest.raises(ValueError, match="backward_layer='GRU'; expected a layer with go_backwards=True"):
        Bidirectional(LSTM(2), backward_layer="GRU")
    with pytest.raises(ValueError, match="initial_state has 3 tensors"):
        Bidirectional(LSTM(2))(draw(), initial_state=[np.zeros((B, 2), "float32")] * 3)
    for inner in (Bidirectional(LSTM(2, return_sequences=True)), LSTM):
        with pytest.raises(ValueError, match="expected a layer of one direction"):
            Bidirectional(inner)
    with pytest.raises(ValueError, match=r"inputs has shape \(2, 3\); expected \[B, T, D\]"):
        Bidirectional(LSTM(2, return_sequences=True)).build((2, 3))


def test_a_layer_that_gives_neither_a_sequence_nor_says_so_is_refused():
    with pytest.raises(ValueError, match=r"expected \[B, T, units\] or \[B, units\]"):
        Bidirectional(keras.layers.GlobalMaxPooling1D()).build((2, 3, 5))


def test_with_a_seed_the_directions_drop_differently():
    layer = Bidirectional(LSTM(4, dropout=0.5, seed=3, return_sequences=True))
    assert (layer.layer.seed, layer.backward_layer.seed) == (3, 4)
