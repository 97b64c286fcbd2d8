import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_seq.ops
from keras_seq import layers
from keras_seq.models import LanguageModel
from keras_seq.ops import dispatch
from keras_seq.ops.position_wise import projects_table, rows_of_table
from tests.ops.compare import twins_called

IDS = np.random.default_rng(0).integers(5, size=(3, 7)).astype("int32")


def model_of(layer, dtype="float32", **embedding):
    model = LanguageModel(
        keras.layers.Embedding(5, 6, dtype=dtype, **embedding), [layer], keras.layers.Dense(5, dtype=dtype), dtype=dtype
    )
    model.build((None, None))
    for n, weight in enumerate(model.weights):
        weight.assign(np.random.default_rng(n).normal(size=weight.shape, scale=0.5))
    return model


def logits_of(model, training=True):
    return tf.function(model)(tf.constant(IDS), training=training)


def logits_and_gradients(model):
    @tf.function
    def compute(ids):
        with tf.GradientTape() as tape:
            logits = model(ids, training=True)
            loss = tf.reduce_sum(tf.sin(logits) * tf.range(7, dtype=logits.dtype)[:, None])
        return logits, [tf.convert_to_tensor(g) for g in tape.gradient(loss, model.trainable_weights)]

    return compute(tf.constant(IDS))


@pytest.fixture
def taken():
    """The calls that look up rows of a table."""
    with twins_called(rows_of_table) as calls:
        yield calls


def test_values_and_gradients_are_those_of_indexing():
    table = tf.random.stateless_normal((5, 4), (0, 1))
    weights = tf.random.stateless_normal((3, 7, 4), (0, 2))

    def sum_and_gradient(look_up):
        with tf.GradientTape() as tape:
            tape.watch(table)
            z = look_up(table)
            total = tf.reduce_sum(weights * z * z)
        return z, tape.gradient(total, table)

    z, gradient = sum_and_gradient(lambda table: rows_of_table(tf.constant(IDS), table))
    np.testing.assert_array_equal(z, table.numpy()[IDS])
    expected = np.zeros((5, 4))
    np.add.at(expected, IDS, 2 * weights.numpy() * z.numpy())
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        pytest.param(layers.SimpleRNN, "mixed_bfloat16", marks=pytest.mark.rare),
        (layers.GRU, "float32"),
        pytest.param(layers.LSTM, "float32", marks=pytest.mark.rare),
        (layers.LSTM, "mixed_bfloat16"),
        (layers.LayerNormLSTM, "float32"),
    ],
)
def test_a_model_gives_what_it_gives_without(taken, kind, dtype):
    model = model_of(kind(4, return_sequences=True, dtype=dtype), dtype)
    logits, gradients = logits_and_gradients(model)
    [(_, (_, table))] = taken
    assert table.shape == (5, kind.num_gates * 4)
    with keras_seq.ops.reference():
        expected, expected_gradients = logits_and_gradients(model)
    assert len(taken) == 1
    tolerance = {"float32": 2e-6, "mixed_bfloat16": 3e-2}[dtype]
    for ours, theirs in zip([logits, *gradients], [expected, *expected_gradients], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=tolerance * np.abs(theirs).max())


def test_a_mask_of_the_ids_still_counts(taken):
    model = model_of(layers.LSTM(4, return_sequences=True), mask_zero=True)
    logits = logits_of(model)
    with keras_seq.ops.reference():
        expected = logits_of(model)
    assert taken
    assert (IDS == 0).any()
    np.testing.assert_allclose(logits, expected, atol=1e-6)


def test_the_state_goes_in_and_comes_out(taken):
    model = model_of(layers.LSTM(4, return_sequences=True))
    state = (tuple(tf.random.stateless_normal((3, 4), (0, n)) for n in range(2)),)
    call = tf.function(lambda ids, state: model(ids, state=state, return_state=True))
    logits, ((h, c),) = call(tf.constant(IDS), state)
    with keras_seq.ops.reference():
        expected, ((expected_h, expected_c),) = model(IDS, state=state, return_state=True)
    assert taken
    for ours, theirs in ((logits, expected), (h, expected_h), (c, expected_c)):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_dropped_inputs_are_not_looked_up(taken):
    model = model_of(layers.LSTM(4, dropout=0.5, return_sequences=True))
    logits_of(model)
    assert not taken
    logits_of(model, training=False)
    assert taken


def test_an_embedding_that_may_know_the_place_is_asked_for_every_position(taken):
    class WithPlace(keras.layers.Embedding):
        pass

    model = LanguageModel(WithPlace(5, 6), [layers.LSTM(4, return_sequences=True)], keras.layers.Dense(5))
    model.build((None, None))
    logits_of(model)
    assert not taken


def test_a_layer_with_a_call_of_its_own_is_called_as_ever(taken):
    class Doubled(layers.LSTM):
        def call(self, x, state=None, training=None, return_state=False):
            return super().call(2 * x, state=state, training=training, return_state=return_state)

    logits_of(model_of(Doubled(4, return_sequences=True)))
    assert not taken


def test_it_pays_for_many_ids_of_a_small_vocabulary(monkeypatch):
    def pays(shape, rows, width):
        with tf.Graph().as_default():
            return projects_table(tf.TensorSpec(shape, "int32"), rows, width)

    assert pays((12, 64), 65, 64)
    assert not pays((None, 64), 65, 64)
    assert not pays((3, 64), 65, 64)
    assert not pays((1000, 64), 129, 64)
    assert not projects_table(tf.TensorSpec((12, 64), "int32"), 65, 64)  # eager
    monkeypatch.setattr(dispatch, "on_cpu", lambda: False)
    assert not pays((12, 64), 65, 64)


def test_the_reference_has_the_same_rows_and_nan_for_other_ids():
    ids, table = tf.constant([[0, 4], [-1, 5]]), tf.random.stateless_normal((5, 4), (0, 1))
    expected = rows_of_table(ids, table)
    assert np.isnan(expected).any(axis=-1).tolist() == [[False, False], [True, True]]
    with keras_seq.ops.reference():
        np.testing.assert_array_equal(rows_of_table(ids, table), expected)
