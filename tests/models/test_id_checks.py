import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_seq.models import BiLSTMConfig, LSTMConfig, TransformerConfig
from keras_seq.models.token_ids import InvalidIdsToNaN, TokenIdCheck, validate_token_ids
from tests.conftest import ignores_dropped_masks

VOCABULARY = 11


@pytest.mark.parametrize("convert", [np.asarray, ops.convert_to_tensor])
def test_what_is_known_is_checked(convert):
    validate_token_ids("ids", convert([[0, 10]]), VOCABULARY)
    validate_token_ids("ids", convert(np.zeros((0, 3), "int32")), VOCABULARY, context_length=2)
    for bad in (11, -1):
        with pytest.raises(ValueError, match=rf"^words holds {bad}; expected numbers from 0 to 10\.$"):
            validate_token_ids("words", convert([[1, bad]]), VOCABULARY)
    with pytest.raises(
        ValueError, match=r"^words holds 3 ids in a row, without padding; expected at most context_length=2\.$"
    ):
        validate_token_ids("words", convert([[1, 1, 0, 1], [1, 1, 0, 0]]), VOCABULARY, context_length=2)


def test_inside_compiled_code_it_says_nothing_and_adds_nothing():
    @tf.function
    def trace(ids):
        validate_token_ids("ids", ids, VOCABULARY, context_length=1)
        return ids

    graph = trace.get_concrete_function(tf.TensorSpec((None, None), "int32")).graph
    assert {op.type for op in graph.get_operations()} == {"Placeholder", "Identity"}
    validate_token_ids("ids", keras.KerasTensor((None, None), dtype="int32"), VOCABULARY, context_length=1)


def test_a_language_model_says_which_id_it_does_not_know():
    model = LSTMConfig(embedding_dim=3, units=4).build_model(VOCABULARY)
    with pytest.raises(ValueError, match=r"ids holds 11; expected numbers from 0 to 10\."):
        model(np.array([[1, 11]]))
    with pytest.raises(ValueError, match="ids holds -1"):
        model.step(np.array([[-1]]), model.get_initial_state(1))


def test_the_layer_gives_ids_as_they_came_and_comes_back_from_its_config():
    layer, ids = TokenIdCheck(VOCABULARY, 4, name="given"), np.array([[3, 0, 10]])
    y = layer(ids)
    np.testing.assert_array_equal(ops.convert_to_numpy(y), ids)
    symbolic = layer(keras.KerasTensor((None, 3), dtype="int64"))
    assert (symbolic.shape, symbolic.dtype) == ((None, 3), keras.backend.standardize_dtype(y.dtype))
    assert TokenIdCheck.from_config(layer.get_config()).get_config() == layer.get_config()
    assert TokenIdCheck(VOCABULARY).context_length is None
    for options in ({"vocabulary_size": 0, "context_length": 1}, {"vocabulary_size": 1, "context_length": 0}):
        with pytest.raises(ValueError, match="=0; expected an integer"):
            TokenIdCheck(**options)


MODELS = {
    "lstm": LSTMConfig(embedding_dim=3, units=4),
    "transformer": TransformerConfig(embedding_dim=4, num_layers=1, num_heads=2, feed_forward_dim=8, context_length=4),
}
each = pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)


@each
def test_what_are_no_ids_is_refused_in_one_sentence(config):
    model = config.build_model(VOCABULARY)
    whole = model(np.array([[1, 2]]))
    np.testing.assert_array_equal(model([[1, 2]]), whole)
    no_integers = ([[1.7]], np.full((1, 2), np.nan), [[True]], [["a"]], np.array([["a"]]), keras.KerasTensor((None, 3)))
    for ids in no_integers:
        with pytest.raises(ValueError, match=r"^ids has the dtype \w+; expected integers \[B, T\].*int32"):
            model(ids)
    for ids, message in ((None, "ids=None"), ([[1], [1, 2]], "different lengths"), (3, "ids=3")):
        with pytest.raises(ValueError, match=message):
            model(ids)
    for shape in ((), (3,), (1, 2, 3), (1, 0)):
        with pytest.raises(ValueError, match="ids has shape"):
            model(np.zeros(shape, "int32"))
    with pytest.raises(ValueError, match="ragged"):
        model(tf.ragged.constant([[1, 2], [3]]))
    state = model.get_initial_state(1)
    for ids, before, message in (
        ([[1, 2]], state, r"expected \[B, 1\]"),
        ([[1]], None, "state=None"),
        ([[1]], (), "state"),
    ):
        with pytest.raises(ValueError, match=message):
            model.step(ids, before)
    with pytest.raises(ValueError, match="state has the shapes"):
        model.step([[1], [2]], state)


@each
@pytest.mark.parametrize("compiled", [True, False], ids=["xla", "graph"])
def test_inside_compiled_code_an_id_that_is_none_gives_nan(config, compiled):
    model = config.build_model(VOCABULARY)
    run = tf.function(model, jit_compile=compiled, reduce_retracing=True)
    for bad in (VOCABULARY, -1, 2**32 + 1, 2**31 - 1):
        logits = run(tf.constant([[1, 2], [3, bad]], tf.int64)).numpy()
        assert np.isnan(logits).any(axis=-1).tolist() == [[False, False], [np.isnan(logits[1, 0]).any(), True]]


@ignores_dropped_masks
def test_the_mask_of_an_embedding_goes_on():
    ids = np.array([[3, 0]])
    x = keras.layers.Embedding(VOCABULARY, 2, mask_zero=True)(ids)
    x = InvalidIdsToNaN(VOCABULARY)(x, ids)
    layer = keras.layers.LSTM(2)
    np.testing.assert_array_equal(layer(x), layer(x[:, :1]))


def test_functional_models_do_not_cut_floats_off():
    model = BiLSTMConfig(num_tags=2, embedding_dim=2, units=2).build_model(VOCABULARY)
    with pytest.raises(ValueError, match="ids has the dtype float"):
        model(np.full((1, 2), 1.7, "float32"))
    assert np.isnan(tf.function(model)(tf.constant([[1, -1]]))).all()
