"""Programs written for `keras.layers` give the same numbers with the recurrent layers of this package."""

import functools
import types

import keras
import numpy as np
import pytest
from keras import ops, tree

import keras_seq.layers as ours
from keras_seq.layers import Stateful
from keras_seq.models import LanguageModel
from tests.conftest import often
from tests.layers.conftest import handing_masks_on, rare_on_jax

pytestmark = pytest.mark.filterwarnings("ignore:Layer 'global_max_pooling1d")  # which destroys a mask, as it says
BACKEND = keras.backend.backend()
numpy = ops.convert_to_numpy
IDS = np.array([[3, 1, 4, 0, 0], [2, 7, 1, 8, 2], [5, 0, 0, 0, 0]])
SERIES = np.random.default_rng(0).normal(size=(4, 5, 3)).astype("float32")
KINDS = ["SimpleRNN", "GRU", "LSTM"]
theirs = types.SimpleNamespace(
    **{name: handing_masks_on(getattr(keras.layers, name)) for name in [*KINDS, "Bidirectional"]}
)


def dense(units=2):
    return keras.layers.Dense(units, activation="sigmoid")


def classifier(layers, **options):
    """Keras's IMDB example, with one LSTM or more."""
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(9, 3, mask_zero=True)(ids)
    return keras.Model(ids, dense()(layers.LSTM(4, **options)(x))), IDS


def both_ways(layers, **options):
    x = keras.layers.Embedding(9, 3, mask_zero=True)(ids := keras.Input((None,), dtype="int32"))
    x = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(x)
    return keras.Model(ids, dense()(layers.Bidirectional(layers.GRU(3), **options)(x))), IDS


def pooled(layers):
    """The pooling knows no mask, so it sees what stands at masked positions."""
    x = keras.layers.Embedding(9, 3, mask_zero=True)(ids := keras.Input((None,), dtype="int32"))
    x = layers.Bidirectional(layers.SimpleRNN(4, return_sequences=True))(x)
    return keras.Model(ids, keras.layers.GlobalMaxPooling1D()(x)), IDS


def time_series(layers, **options):
    """Keras's forecasting examples."""
    kind = options.pop("kind", "LSTM")
    x = y = keras.Input((5, 3))
    for options_of_one in ({"units": 4, "return_sequences": True}, {"units": 3}):
        y = getattr(layers, kind)(**options_of_one, **options)(y)
    return keras.Model(x, dense(1)(y)), SERIES


def side_by_side(layers, kind, options, x):
    """One layer for each of the options, all over the same x; each output is one of the model's."""
    made = [getattr(layers, kind)(4, **{name: value}) for name, value in options]
    if x is SERIES:
        inputs = hidden = keras.Input((5, 3))
    else:
        inputs = keras.Input((None,), dtype="int32")
        hidden = keras.layers.Embedding(9, 3, mask_zero=True)(inputs)
    return keras.Model(inputs, [layer(hidden) for layer in made]), x


def merged(layers):
    """What both directions give, merged in each way but the default, and of layers of two kinds."""
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(9, 3, mask_zero=True)(ids)
    made = [layers.Bidirectional(layers.GRU(3), merge_mode=mode) for mode in ("sum", "mul", "ave")]
    backward = layers.GRU(3, go_backwards=True)
    made.append(layers.Bidirectional(layers.LSTM(3), backward_layer=backward, merge_mode="sum"))
    return keras.Model(ids, [layer(x) for layer in made]), IDS


def seq2seq(layers):
    """Keras's character-level seq2seq example, after Sutskever et al. (2014)."""
    encoder_inputs, decoder_inputs = keras.Input((None, 3)), keras.Input((None, 3))
    _, h, c = layers.LSTM(4, return_state=True)(encoder_inputs)
    decoder = layers.LSTM(4, return_sequences=True, return_state=True)
    y, _, _ = decoder(decoder_inputs, initial_state=[h, c])
    return keras.Model([encoder_inputs, decoder_inputs], dense()(y)), [SERIES, SERIES[:, ::-1].copy()]


def seq2seq_both_ways(layers):
    encoder_inputs, decoder_inputs = keras.Input((None, 3)), keras.Input((None, 3))
    _, *states = layers.Bidirectional(layers.GRU(4, return_state=True))(encoder_inputs)
    y = layers.Bidirectional(layers.GRU(4, return_sequences=True))(decoder_inputs, initial_state=states)
    return keras.Model([encoder_inputs, decoder_inputs], dense()(y)), [SERIES, SERIES[:, ::-1].copy()]


def in_each_frame(layers):
    frames = keras.Input((2, 5, 3))
    y = keras.layers.TimeDistributed(layers.LSTM(4))(frames)
    return keras.Model(frames, y), np.stack([SERIES, -SERIES], axis=1)


def in_bidirectional_of_keras(layers):
    x = keras.Input((5, 3))
    y, *states = keras.layers.Bidirectional(layers.LSTM(4, return_state=True), merge_mode="mul")(x)
    return keras.Model(x, [y, *states]), SERIES


OPTIONS = [
    ("go_backwards", True),
    ("activation", "relu"),
    ("recurrent_activation", "hard_sigmoid"),
    ("use_bias", False),
    ("unit_forget_bias", False),
    ("dropout", 0.5),  # which does nothing where nothing is trained
    ("recurrent_dropout", 0.5),
    ("zero_output_for_mask", True),
    ("use_cudnn", False),
]
OF_GRU = [("reset_after", False), ("use_bias", False), ("activation", "relu")]
SNIPPETS = {
    "classifier": classifier,
    "both ways": both_ways,
    "pooled": pooled,
    "merge modes": merged,
    **{kind: lambda layers, kind=kind: time_series(layers, kind=kind) for kind in KINDS},
    "seq2seq": seq2seq,
    "seq2seq both ways": seq2seq_both_ways,
    "TimeDistributed": in_each_frame,
    "keras.layers.Bidirectional": in_bidirectional_of_keras,
    "options": lambda layers: side_by_side(layers, "LSTM", OPTIONS, IDS),
    "options of GRU": lambda layers: side_by_side(layers, "GRU", OF_GRU, SERIES),
    "reset_after=False": lambda layers: time_series(layers, kind="GRU", reset_after=False),
    "unroll=True": lambda layers: side_by_side(layers, "LSTM", [("unroll", True)], SERIES),
    "regularizers": lambda layers: time_series(
        layers, kernel_regularizer="l2", recurrent_regularizer="l1", bias_regularizer="l2", activity_regularizer="l2"
    ),
    "constraints": lambda layers: time_series(
        layers, kernel_constraint="max_norm", recurrent_constraint="unit_norm", bias_constraint="non_neg"
    ),
}
each = rare_on_jax("snippet", SNIPPETS, quick=("classifier", "both ways", "seq2seq", "options of GRU"))
# what is saved in another way than in these is rarely tested
SAVED = ("classifier", "both ways", "merge modes", "seq2seq", "keras.layers.Bidirectional", "options", "options of GRU")
SAVED += ("regularizers", "constraints")


def new_pair(snippet):
    """The same program with both imports and the same weights, and what it takes."""
    (mine, x), (model, _) = snippet(ours), snippet(theirs)
    random = np.random.default_rng(1)
    model.set_weights([random.normal(scale=0.5, size=w.shape) for w in model.weights])
    mine.set_weights(model.get_weights())
    return mine, model, x


pair = functools.cache(new_pair)  # for tests that change no weights


def assert_same(mine, model, x):
    for got, expected in zip(tree.flatten(mine(x)), tree.flatten(model(x)), strict=True):
        assert got.shape == expected.shape
        np.testing.assert_allclose(numpy(got), numpy(expected), atol=2e-6)


@each
def test_a_program_for_keras_gives_the_same_numbers(snippet):
    mine, model, x = pair(snippet)
    assert_same(mine, model, x)
    assert tree.flatten(mine.output_shape) == tree.flatten(model.output_shape)
    losses = [sum((float(ops.convert_to_numpy(part)) for part in m.losses), 0.0) for m in (mine, model)]
    np.testing.assert_allclose(*losses, rtol=1e-5)


@often("snippet", SNIPPETS, SAVED)
def test_its_saved_file_gives_the_same_and_keeps_every_argument(snippet, tmp_path):
    mine, _, x = pair(snippet)
    mine.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for got, expected in zip(loaded.layers, mine.layers, strict=True):
        if hasattr(expected, "return_sequences"):
            got, expected = (getattr(layer, "backward_layer", layer).get_config() for layer in (got, expected))
            assert got == expected
    for got, expected in zip(tree.flatten(loaded(x)), tree.flatten(mine(x)), strict=True):
        np.testing.assert_array_equal(numpy(got), numpy(expected))


@pytest.mark.parametrize("name", ["both ways", "seq2seq", "reset_after=False"])
@pytest.mark.skipif(BACKEND == "jax", reason="what a file holds is the same on every backend")
def test_weights_saved_with_keras_are_loaded_and_ours_into_keras(name, tmp_path):
    same, model, x = pair(SNIPPETS[name])
    mine, _ = SNIPPETS[name](ours)
    for file in ("k.weights.h5", "k.keras"):
        model.save_weights(tmp_path / file) if file.endswith(".h5") else model.save(tmp_path / file)
        mine.set_weights([np.zeros(w.shape) for w in mine.weights])
        mine.load_weights(tmp_path / file)
        assert_same(mine, model, x)
    same.save_weights(tmp_path / "o.weights.h5")
    keras_model, _ = SNIPPETS[name](theirs)
    keras_model.load_weights(tmp_path / "o.weights.h5")
    assert_same(same, keras_model, x)


@pytest.mark.parametrize(
    "name", ["classifier", "constraints", "regularizers", pytest.param("reset_after=False", marks=pytest.mark.rare)]
)
@pytest.mark.skipif(BACKEND != "tensorflow", reason="a training step of the layers is tested there by test_contract.py")
def test_a_training_is_the_same(name):
    mine, model, x = new_pair(SNIPPETS[name])
    y = np.random.default_rng(2).normal(size=model(x).shape)
    losses = []
    for each in (mine, model):
        each.compile(keras.optimizers.SGD(0.5), "mse", run_eagerly=True)
        losses.append(each.fit(x, y, batch_size=2, shuffle=False, verbose=0).history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-5)
    for got, expected in zip(mine.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)


LAYERS = [ours.SimpleRNN, ours.GRU, ours.LSTM, ours.LayerNormLSTM, ours.MinGRU, ours.MinLSTM]
of_each = rare_on_jax("kind", LAYERS, quick=(ours.GRU, ours.LSTM))


@of_each
def test_the_last_output_is_that_of_the_last_real_position(kind):
    last, every = kind(4), kind(4, return_sequences=True)
    y = every(SERIES)
    last.build(SERIES.shape)
    last.set_weights(every.get_weights())
    mask = np.array([[1, 1, 1, 0, 0], [0, 0, 1, 1, 0], [1, 0, 1, 0, 1], [1] * 5], bool)
    y = numpy(every(SERIES, mask=mask))
    np.testing.assert_array_equal(numpy(last(SERIES, mask=mask)), y[np.arange(4), [2, 3, 4, 4]])


@of_each
def test_what_a_call_gives_is_said_by_the_constructor_or_by_the_call(kind):
    layer, flat = kind(4), kind(4, return_state=True)
    y, state = layer(SERIES, return_state=True)
    flat.build(SERIES.shape)
    flat.set_weights(layer.get_weights())
    given = flat(SERIES)
    assert isinstance(given, tuple)
    for got, expected in zip(given, (y, *tree.flatten(state)), strict=True):
        np.testing.assert_array_equal(numpy(got), numpy(expected))
    structured = flat(SERIES, return_state=True)  # the second law, whatever the constructor got
    assert len(structured) == 2
    tree.assert_same_structure(structured[1], state)
    assert flat(SERIES, return_state=False).shape == (4, 4)
    assert flat.compute_output_shape((4, 5, 3)) == tuple(tuple(part.shape) for part in given)


@of_each
def test_initial_state_is_state_and_may_be_a_flat_list(kind):
    layer = kind(4)
    _, state = layer(SERIES, return_state=True)
    expected = numpy(layer(SERIES, state=state))
    parts = tree.flatten(state)
    np.testing.assert_array_equal(numpy(layer(SERIES, initial_state=parts)), expected)
    np.testing.assert_array_equal(numpy(layer(SERIES, initial_state=state)), expected)
    with pytest.raises(ValueError, match=r"state= and initial_state=, which mean the same; expected only one"):
        layer(SERIES, state=state, initial_state=state)
    with pytest.raises(ValueError, match=r"state has the shapes .*; expected h"):
        layer(SERIES, initial_state=[*parts, parts[0]])


@of_each
def test_what_it_cannot_do_is_refused_with_the_remedy(kind):
    name = kind.__name__
    with pytest.raises(ValueError, match=rf"{name} does not support stateful=True; use Stateful\({name}\("):
        kind(4, stateful=True)
    with pytest.raises(
        TypeError, match=rf"{name} is not a cell for keras.layers.RNN; use {name}\(\.\.\.\) instead of RNN"
    ):
        keras.layers.RNN(kind(4))
    with pytest.raises(ValueError, match="return_sequences=2; expected True or False"):
        kind(4, return_sequences=2)
    assert kind(4, implementation=1).units == 4  # a hint


@pytest.mark.parametrize("kind", [ours.GRU, ours.LSTM])
def test_what_keras_has_in_another_order_is_said_by_name(kind):
    with pytest.raises(TypeError, match="positional arguments"):
        kind(4, "tanh", "sigmoid", True, "he_normal")


@pytest.mark.parametrize("name", ["activation", "recurrent_initializer", "dropout", "reset_after", "use_cudnn"])
def test_what_minimal_layers_lack_is_refused_by_name(name):
    with pytest.raises(ValueError, match=f"MinGRU does not support {name}=: "):
        ours.MinGRU(4, **{name: "tanh"})


def test_a_mask_goes_on_with_a_sequence_alone_and_in_its_order():
    x = keras.layers.Embedding(9, 3, mask_zero=True)(IDS)
    mask = IDS != 0
    for wrap in (lambda layer: layer, ours.Bidirectional, lambda layer: Stateful(layer, 3)):
        y = wrap(ours.GRU(4, return_sequences=True))(x)
        np.testing.assert_array_equal(numpy(y._keras_mask), mask)
        assert getattr(wrap(ours.GRU(4))(x), "_keras_mask", None) is None
    y = ours.GRU(4, return_sequences=True, go_backwards=True)(x)
    np.testing.assert_array_equal(numpy(y._keras_mask), mask[:, ::-1])


def test_stateful_takes_a_layer_that_gives_its_last_output():
    layer = ours.LSTM(4)
    stateful = Stateful(layer, 4)
    whole = np.concatenate([SERIES, SERIES], axis=1)
    stateful(SERIES, training=True)
    np.testing.assert_allclose(numpy(stateful(SERIES, training=True)), numpy(layer(whole)), atol=1e-6)
    with pytest.raises(ValueError, match="return_state=True; expected False, because Stateful holds the state"):
        Stateful(ours.LSTM(4, return_state=True), 4)
    with pytest.raises(ValueError, match="has go_backwards=True; expected False"):
        Stateful(ours.LSTM(4, go_backwards=True), 4)
    with pytest.raises(ValueError, match="expected a layer of one direction"):
        ours.Bidirectional(stateful)


@pytest.mark.parametrize("options", [{}, {"return_sequences": True, "return_state": True}], ids=["last", "state"])
def test_a_language_model_refuses_a_layer_that_gives_no_sequence(options):
    with pytest.raises(ValueError, match=r"does not give one output for each position.*return_sequences=True"):
        LanguageModel(keras.layers.Embedding(5, 4), [ours.LSTM(4, **options)], keras.layers.Dense(5))


def test_a_bias_of_the_other_reset_after_is_refused_by_name(tmp_path):
    model = keras.Sequential([keras.Input((5, 3)), theirs.GRU(4, reset_after=False)])
    model.save_weights(tmp_path / "k.weights.h5")
    mine = keras.Sequential([keras.Input((5, 3)), ours.GRU(4)])
    with pytest.raises(ValueError, match="with reset_after=True; use the same reset_after in both"):
        mine.layers[0].set_weights(model.get_weights())
    with pytest.raises(ValueError, match="with reset_after=True; use the same reset_after in both"):
        mine.load_weights(tmp_path / "k.weights.h5")


def test_a_file_without_its_weights_is_refused(tmp_path):
    keras.Sequential([keras.Input((5, 3)), keras.layers.Flatten()]).save_weights(tmp_path / "k.weights.h5")
    with pytest.raises(ValueError, match="The file has no weights of lstm"):
        keras.Sequential([keras.Input((5, 3)), ours.LSTM(4, name="lstm")]).load_weights(tmp_path / "k.weights.h5")


def test_both_halves_come_separately_without_a_merge_mode():
    mine, layer = (kind.Bidirectional(kind.LSTM(4, return_state=True), merge_mode=None) for kind in (ours, theirs))
    mine.build(SERIES.shape)
    layer.build(SERIES.shape)
    mine.set_weights(layer.get_weights())
    for got, expected in zip(mine(SERIES), layer(SERIES), strict=True):
        np.testing.assert_allclose(numpy(got), numpy(expected), atol=1e-6)
