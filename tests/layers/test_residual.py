import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.layers import (
    GRU,
    LSTM,
    Bidirectional,
    CausalDepthwiseConv1D,
    LayerNormalization,
    MinGRU,
    MultiHeadSelfAttention,
    PreNormResidual,
    RMSNormalization,
)
from keras_seq.layers import Stateful as Carrying
from keras_seq.layers.residual import apply_sequentially, initial_states
from tests.conftest import ignores_dropped_masks

B, T, D = 2, 6, 4
numpy = ops.convert_to_numpy


@pytest.fixture
def made(randomize):
    def made(layers=None, dtype="float32", **kwargs):
        if layers is None:
            layers = [
                CausalDepthwiseConv1D(3, dtype=dtype),
                MinGRU(5, dtype=dtype, return_sequences=True),
                keras.layers.Dense(D, dtype=dtype),
            ]
        block = PreNormResidual(layers, dtype=dtype, **kwargs)
        block.build((None, None, D))
        return randomize(block)

    return made


def inputs(batch=B, length=T, seed=1):
    return np.random.default_rng(seed).normal(size=(batch, length, D)).astype("float32")


def rms(x, scale):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale


def layer_norm(x, scale, offset):
    deviation = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return (x - x.mean(-1, keepdims=True)) / deviation * scale + offset


@pytest.mark.parametrize(("normalization", "norm"), [("rms", rms), ("layer", layer_norm), (None, np.asarray)])
def test_it_adds_what_the_layers_make_of_the_normalized_input(made, normalization, norm):
    block, x = (
        made([keras.layers.Dense(7, activation="tanh"), keras.layers.Dense(D)], normalization=normalization),
        inputs(),
    )
    first, second = (layer.get_weights() for layer in block.layers)
    normal = norm(x.astype("float64"), *block.normalization_layer.get_weights())
    expected = x + np.tanh(normal @ first[0] + first[1]) @ second[0] + second[1]
    np.testing.assert_allclose(numpy(block(x)), expected, atol=2e-5)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("normalization", ["layer", "rms", None])
def test_layer_normalization_without_an_offset_and_no_normalization(made, exact, normalization):
    """Bit for bit the default where there is no offset anyway."""
    block, x = made([], normalization=normalization, center=False, dtype="float64"), inputs().astype("float64")
    scale = block.get_weights()
    assert [weight.shape for weight in scale] == ([] if normalization is None else [(D,)])
    expected = {"layer": lambda: layer_norm(x, *scale, 0), "rms": lambda: rms(x, *scale), None: lambda: x}
    if normalization is not None and keras.backend.backend() == "jax":
        exact = {"rtol": 1e-4, "atol": 1e-5}  # Keras's normalizations narrow float64 there
    np.testing.assert_allclose(numpy(block(x)), x + expected[normalization](), **exact)
    again = PreNormResidual.from_config(block.get_config())
    assert (again.center, again.normalization) == (False, normalization)
    if normalization != "layer":
        centered = made([], normalization=normalization, dtype="float64")
        np.testing.assert_array_equal(numpy(block(x)), numpy(centered(x)))


def test_the_state_has_an_entry_for_each_layer_that_keeps_one(made):
    block, x = made(), inputs()
    convolution, gru, _ = block.layers
    state = block.get_initial_state(B)
    assert [tuple(v.shape) for v in state] == [(B, 2, D), (B, 5)]
    _, (last_inputs, h) = block(x, state=state, return_state=True)
    u, expected_inputs = convolution(block.normalization_layer(x), return_state=True)
    np.testing.assert_allclose(numpy(last_inputs), numpy(expected_inputs), atol=1e-6)
    np.testing.assert_allclose(numpy(h), numpy(gru(u, return_state=True)[1]), atol=1e-6)


class Notes(keras.layers.Layer):
    """Adds its number and notes what it was called with."""

    def __init__(self, number):
        super().__init__()
        self.supports_masking = True
        self.number, self.calls = number, []

    def compute_output_shape(self, x_shape):
        return x_shape

    def build(self, x_shape):
        pass


class Masked(Notes):
    def call(self, x, mask=None, training=None):
        self.calls.append((mask, training))
        return x + self.number


class Plain(Notes):
    def call(self, x):
        self.calls.append(())
        return x + self.number


class Stateful(Notes):
    def get_initial_state(self, batch_size):
        return ops.full((batch_size,), float(self.number))

    def call(self, x, state=None, mask=None, return_state=False):
        state = self.get_initial_state(len(x)) if state is None else state
        self.calls.append((mask, numpy(state)[0]))
        y = x * self.number
        return (y, state + 1) if return_state else y


def test_states_go_to_their_layers_and_masks_to_those_that_take_one():
    layers = [Stateful(2), Plain(10), Masked(20), Stateful(3)]
    x, mask = ops.convert_to_tensor(inputs()), ops.ones((B, T), "bool")
    state = initial_states(layers, B)
    assert [numpy(v).tolist() for v in state] == [[2.0] * B, [3.0] * B]
    for before in (2.0, 3.0):
        y, state = apply_sequentially(layers, x, state, mask, training=True)
        np.testing.assert_allclose(numpy(y), 3 * (2 * inputs() + 30), rtol=1e-6)
        assert [numpy(v).tolist() for v in state] == [[before + 1] * B, [before + 2] * B]
        assert [layer.calls[-1][1] for layer in (layers[0], layers[3])] == [before, before + 1]
    assert all(layer.calls[-1][0] is mask for layer in (layers[0], layers[2], layers[3]))
    assert layers[2].calls[-1][1] is True
    y, state = apply_sequentially(layers, x)
    assert state is None
    np.testing.assert_allclose(numpy(y), 3 * (2 * inputs() + 30), rtol=1e-6)
    assert layers[2].calls[-1] == (None, None)
    assert layers[0].calls[-1] == (None, 2.0)


def test_a_state_of_none_stays_none_and_an_empty_one_empty():
    x = ops.convert_to_tensor(inputs())
    assert apply_sequentially([Plain(1)], x)[1] is None
    assert apply_sequentially([Plain(1)], x, ())[1] == ()
    assert initial_states([Plain(1), keras.layers.Dense(3)], B) == ()


def test_a_capacity_goes_to_every_layer_that_keeps_a_state():
    attention = MultiHeadSelfAttention(2, causal=True)
    attention.build((None, None, D))
    (state,) = initial_states([keras.layers.Dense(D), attention], B, capacity=9)
    assert 9 in {n for v in keras.tree.flatten(state) for n in v.shape}


def test_dropout_is_of_what_is_added_and_in_training_only(made):
    block, x = made([keras.layers.Dense(D)], dropout=0.5), inputs(8)
    added = numpy(block(x)) - x
    np.testing.assert_array_equal(numpy(block(x)), numpy(block(x, training=False)))
    y = numpy(block(x, training=True)) - x
    dropped = np.isclose(y, 0, atol=1e-6)
    assert 0.3 < dropped.mean() < 0.7
    np.testing.assert_allclose(y[~dropped], 2 * added[~dropped], atol=2e-5)


def test_the_dropout_inside_acts_in_training_only(made):
    block, x = made([keras.layers.Dropout(0.5), Plain(0)]), inputs(8)
    np.testing.assert_array_equal(numpy(block(x)), numpy(block(x, training=False)))
    assert (numpy(block(x, training=True)) != numpy(block(x))).any()


@ignores_dropped_masks
def test_layers_of_keras_work_inside(made):
    real = np.array([[1, 1, 1, 1, 0, 0], [1] * T], bool)
    recurrent = keras.layers.LSTM(5, return_sequences=True)
    block = made([keras.layers.Conv1D(5, 2, padding="causal"), recurrent, keras.layers.Dense(D)])
    x = inputs()
    y = block(x, mask=real)
    np.testing.assert_allclose(numpy(y)[0, :4], numpy(block(x[:1, :4]))[0], atol=2e-6)
    u = block.layers[0](block.normalization_layer(x))
    expected = x + numpy(block.layers[2](recurrent(u, mask=real)))
    np.testing.assert_allclose(numpy(y)[real], expected[real], atol=2e-6)


def test_a_residual_inside_a_residual(made):
    block, x = made([PreNormResidual([GRU(D, return_sequences=True)]), MinGRU(D, return_sequences=True)]), inputs()
    whole, last = block(x, return_state=True)
    state, steps = block.get_initial_state(B), []
    assert len(state) == 2
    assert len(state[0]) == 1
    for t in range(T):
        y, state = block.step(x[:, t], state)
        steps.append(numpy(y))
    np.testing.assert_allclose(np.stack(steps, 1), numpy(whole), atol=2e-6)
    np.testing.assert_allclose(numpy(state[0][0]), numpy(last[0][0]), atol=2e-6)


def test_layers_that_were_built_before_keep_their_weights():
    dense = keras.layers.Dense(D)
    dense.build((None, None, D))
    kernel = dense.get_weights()[0]
    PreNormResidual([dense]).build((None, None, D))
    np.testing.assert_array_equal(dense.get_weights()[0], kernel)


class OwnGate(keras.layers.Layer):
    """A layer as its author writes it: neither `build` nor `compute_output_shape`."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(D, activation="sigmoid")

    def call(self, x):
        return x * self.dense(x)


def test_a_layer_of_the_users_own_needs_no_build_and_no_output_shape():
    gate, x = OwnGate(), inputs()
    block = PreNormResidual([keras.layers.Dense(D), gate])
    block.build((None, None, D))
    assert len(gate.weights) == 2
    u = block.layers[0](block.normalization_layer(x))
    np.testing.assert_allclose(numpy(block(x)), x + numpy(u * gate.dense(u)), atol=2e-6)


@pytest.mark.parametrize(
    "layers",
    [[keras.layers.Dense(D + 1)], [GRU(3, return_sequences=True), MinGRU(D + 2, return_sequences=True)]],
    ids=["one", "two"],
)
def test_layers_that_do_not_give_the_width_back_are_refused(layers):
    with pytest.raises(
        ValueError, match=r"The layers return \(None, None, \d\) for \(None, None, 4\); expected the same"
    ):
        PreNormResidual(layers).build((None, None, D))


@pytest.mark.parametrize(
    "layer",
    [
        keras.layers.LSTM(D, return_sequences=True),
        keras.layers.Conv1D(D, 2, padding="causal"),
        Bidirectional(LSTM(D // 2, return_sequences=True)),
        LSTM(D, return_sequences=True, go_backwards=True),
        LayerNormalization(axis=[1, 2]),
        RMSNormalization(axis=-2),
        keras.layers.LayerNormalization(axis=(1, 2)),
        keras.layers.GroupNormalization(1),
        keras.layers.UnitNormalization(axis=1),
    ],
    ids=lambda layer: layer.name,
)
def test_a_block_of_layers_without_an_explicit_state_has_none(layer):
    block = PreNormResidual([PreNormResidual([layer])])
    assert block(inputs()).shape == (B, T, D)
    for call in (lambda: block(inputs(), return_state=True), lambda: Carrying(block, B)(inputs(), training=True)):
        with pytest.raises(ValueError, match=f"{layer.name} keeps no state between calls or reads later .* has none"):
            call()


@pytest.mark.parametrize(
    "inner",
    [
        lambda: keras.layers.GRU(4, return_sequences=True),
        lambda: keras.layers.Conv1D(4, 3, padding="causal"),
        lambda: keras.layers.Bidirectional(keras.layers.GRU(2, return_sequences=True)),
    ],
)
def test_documents_are_refused_where_a_layer_cannot_separate_them(inner):
    layer, x = PreNormResidual([inner()]), np.ones((1, 3, 4), "float32")
    layer(x)
    with pytest.raises(ValueError, match="takes no reset_mask, so documents in one row would not be separate"):
        layer(x, reset_mask=np.array([[True, False, True]]))
