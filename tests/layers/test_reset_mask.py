"""A layer with a reset mask computes what it computes for each document by itself, padding and states included."""

import keras
import numpy as np
import pytest
from keras import ops, tree

import keras_seq.ops
from keras_seq import layers
from tests.conftest import often
from tests.layers.test_state_laws import MAKERS

numpy = ops.convert_to_numpy
D = 6
RECURRENT = MAKERS | {
    "RWKV7ChannelMix": lambda: layers.RWKV7ChannelMix(5),
    "PositionalEncoding": layers.PositionalEncoding,
    "LearnedPositions": lambda: layers.LearnedPositions(90),
}
ATTENTION = {
    "plain": dict,
    "rotary": lambda: {"positions": layers.RotaryPositions()},
    "forgetting": lambda: {"positions": layers.ForgettingPositions(), "use_sinks": True, "use_output_gate": True},
    "bucketed": lambda: {"positions": layers.BucketedPositions(6, 5)},
    "ALiBi, window": lambda: {"positions": layers.AlibiPositions(), "sliding_window": 3},
}
CASES = RECURRENT | {
    name: lambda options=options: layers.MultiHeadSelfAttention(2, key_dim=4, causal=True, **options())
    for name, options in ATTENTION.items()
}
# what is a part of another, or resets as another does; of these and others `make test-all` runs more
LIKE_OTHERS = ("SimpleRNN", "GRU", "GRU, reset before", "LayerNormLSTM", "MinLSTM", "GriffinRecurrentBlock")
LIKE_OTHERS += ("GatedLinearAttention", "MLSTM", "RWKV7TimeMix", "RWKV7Blocks", "PositionalEncoding", "plain")
LIKE_OTHERS += ("GatedDeltaNet, shared keys", "Gated DeltaProduct", "PreNormResidual")
SCANS_AND_CHUNKS = ("MinGRU", "SelectiveStateSpace", "GatedDeltaNet")  # the others know no length


@pytest.fixture
def make(randomize):
    """A built layer by its name, with random weights."""

    def make(name):
        layer = CASES[name]()
        layer.build((None, None, D))
        return randomize(layer)

    return make


def inputs(length=9, seed=0):
    """x [2, T, D], a reset mask, and a mask with padding at, before and behind the beginning of a document."""
    random = np.random.default_rng(seed)
    reset_mask, mask = np.zeros((2, length), bool), np.ones((2, length), bool)
    reset_mask[0, [0, 3, 4]] = reset_mask[1, [6, length - 1]] = True
    mask[0, [2, 6, 7]] = mask[1, [5, 6]] = False
    return random.normal(size=(2, length, D)).astype("float32"), reset_mask, mask


def by_itself(layer, x, reset_mask, mask=None):
    """The outputs of a row's documents, each by itself."""
    borders = [n for n in np.flatnonzero(reset_mask).tolist() if n]
    parts = zip(*(np.split(v, borders) for v in (x, np.ones(len(x), bool) if mask is None else mask)), strict=True)
    masks = [{} if mask is None else {"mask": part_mask[None]} for _, part_mask in parts]
    return np.concatenate(
        [numpy(layer(part[None], **masked))[0] for part, masked in zip(np.split(x, borders), masks, strict=True)]
    )


@often("name", [*CASES], CASES.keys() - {*LIKE_OTHERS, *SCANS_AND_CHUNKS})
def test_each_document_by_itself(make, name):
    check_documents(make(name), *inputs())


@often("name", [*CASES], SCANS_AND_CHUNKS)
def test_each_document_by_itself_in_a_long_row(make, name):
    check_documents(make(name), *inputs(length=70))


def check_documents(layer, x, reset_mask, mask):
    for kwargs in ({}, {"mask": mask}):
        y = numpy(layer(x, reset_mask=reset_mask, **kwargs))
        for row in range(2):
            expected = by_itself(layer, x[row], reset_mask[row], *(one[row] for one in kwargs.values()))
            is_real = mask[row] if kwargs else slice(None)
            np.testing.assert_allclose(y[row][is_real], expected[is_real], atol=2e-5)
    with keras_seq.ops.reference():
        np.testing.assert_allclose(numpy(layer(x, reset_mask=reset_mask, mask=mask)), y, atol=2e-5)


@often("name", [*CASES], ("LSTM", "SelectiveStateSpace", "GatedDeltaNet", "rotary"))
@pytest.mark.parametrize("with_mask", [True, pytest.param(False, marks=pytest.mark.rare)])
def test_parts_with_a_state_are_the_whole(make, name, with_mask):
    layer, (x, reset_mask, mask) = make(name), inputs()
    masks = {"reset_mask": reset_mask, **({"mask": mask} if with_mask else {})}
    whole = numpy(layer(x, **masks))
    for borders in ([1, 2, 3, 4, 5, 6, 7, 8], [3, 7]):
        state, parts = layer.get_initial_state(2, **({"capacity": 9} if name in ATTENTION else {})), []
        for n, part in enumerate(np.split(x, borders, axis=1)):
            part_masks = {key: np.split(value, borders, axis=1)[n] for key, value in masks.items()}
            y, state = layer(part, state=state, return_state=True, **part_masks)
            parts.append(numpy(y))
        y = np.concatenate(parts, axis=1)
        is_real = mask if with_mask else np.ones_like(mask)
        np.testing.assert_allclose(y[is_real], whole[is_real], atol=2e-5)
    if name not in ATTENTION:
        _, expected = layer(x, return_state=True, **masks)
        tree.map_structure(lambda a, b: np.testing.assert_allclose(numpy(a), numpy(b), atol=2e-5), state, expected)


def test_backwards_there_is_no_reset():
    x, reset_mask, _ = inputs()
    with pytest.raises(ValueError, match="go_backwards=True; expected False with a reset_mask"):
        layers.LSTM(3, go_backwards=True)(x, reset_mask=reset_mask)


def test_a_transformer_block_and_a_stateful_layer_pass_it_on(randomize):
    x, reset_mask, _ = inputs()
    block = layers.TransformerBlock(3, 6, causal=True, positions=layers.RotaryPositions())
    block.build((None, None, D))
    randomize(block)
    np.testing.assert_allclose(
        numpy(block(x, reset_mask=reset_mask))[0], by_itself(block, x[0], reset_mask[0]), atol=2e-5
    )
    stateful = layers.Stateful(layers.LSTM(3, return_sequences=True), batch_size=2)
    stateful.build(x.shape)
    randomize(stateful.layer)
    expected = numpy(stateful.layer(x, reset_mask=reset_mask))
    np.testing.assert_allclose(numpy(stateful(x, reset_mask, training=True)), expected, atol=2e-5)
    np.testing.assert_allclose(numpy(stateful(x, reset_mask, training=False)), expected, atol=2e-5)
    again = numpy(stateful(x, reset_mask, training=True))
    np.testing.assert_allclose(again[0], expected[0], atol=2e-5)  # it begins with a document
    assert not np.allclose(again[1, 0], expected[1, 0], atol=1e-3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@often("name", ["GRU", *ATTENTION], ("forgetting", "ALiBi, window"))
def test_nothing_of_a_call_without_documents_is_in_the_document_that_begins_after_it(make, name, bad):
    layer = make(name)
    x = inputs()[0][:, :6]
    before, begins = x.copy(), np.zeros((2, 6), bool)
    before[:, 3], begins[:, 0] = bad, True
    state = layer.get_initial_state(2, **({"capacity": 18} if name in ATTENTION else {}))
    _, state = layer(before, state=state, return_state=True)
    y, state = layer(x, state=state, return_state=True, reset_mask=begins)
    later, _ = layer(x, state=state, return_state=True)
    whole = layer(np.concatenate([x, x], axis=1))
    np.testing.assert_allclose(np.concatenate([numpy(y), numpy(later)], axis=1), numpy(whole), atol=1e-5)


@often("name", ["GRU", *ATTENTION], ("rotary", "forgetting"))
def test_gradients_go_through_the_state(make, name):
    """Pieces of two, one and three positions have the gradients of all at once, on TensorFlow's tape."""
    if keras.backend.backend() != "tensorflow":
        pytest.skip("the tape is TensorFlow's")
    import tensorflow as tf

    layer = make(name)
    x = tf.constant(inputs()[0][:, :6])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        whole = tf.reduce_sum(layer(x) ** 2)
        state = layer.get_initial_state(2, **({"capacity": 8} if name in ATTENTION else {}))
        pieces = 0.0
        for piece in tf.split(x, (2, 1, 3), axis=1):
            y, state = layer(piece, state=state, return_state=True)
            pieces += tf.reduce_sum(y**2)
    variables = [x, *(weight.value for weight in layer.trainable_weights)]
    for one, other in zip(tape.gradient(whole, variables), tape.gradient(pieces, variables), strict=True):
        one, other = (tf.convert_to_tensor(gradient) for gradient in (one, other))
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
