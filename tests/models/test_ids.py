import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_seq.models import LSTM
from keras_seq.models.ids import CheckedIds, check_ids

VOCABULARY = 11


@pytest.mark.parametrize("convert", [np.asarray, ops.convert_to_tensor])
def test_what_is_known_is_checked(convert):
    check_ids("ids", convert([[0, 10]]), VOCABULARY)
    check_ids("ids", convert(np.zeros((0, 3), "int32")), VOCABULARY, context=2)
    for bad in (11, -1):
        with pytest.raises(ValueError, match=rf"^words holds {bad}; expected numbers from 0 to 10\.$"):
            check_ids("words", convert([[1, bad]]), VOCABULARY)
    with pytest.raises(ValueError, match=r"^words holds 3 real ids in a row; expected at most context=2\.$"):
        check_ids("words", convert([[1, 1, 0, 1], [1, 1, 0, 0]]), VOCABULARY, context=2)


def test_inside_compiled_code_it_says_nothing_and_adds_nothing():
    @tf.function
    def trace(ids):
        check_ids("ids", ids, VOCABULARY, context=1)
        return ids

    graph = trace.get_concrete_function(tf.TensorSpec((None, None), "int32")).graph
    assert {op.type for op in graph.get_operations()} == {"Placeholder", "Identity"}
    check_ids("ids", keras.KerasTensor((None, None), dtype="int32"), VOCABULARY, context=1)


def test_a_language_model_says_which_id_it_does_not_know():
    model = LSTM(embedding_dim=3, units=4).build(VOCABULARY)
    with pytest.raises(ValueError, match=r"ids holds 11; expected numbers from 0 to 10\."):
        model(np.array([[1, 11]]))
    with pytest.raises(ValueError, match="ids holds -1"):
        model.step(np.array([[-1]]), model.initial_state(1))


def test_the_layer_gives_ids_as_they_came_and_comes_back_from_its_config():
    layer, ids = CheckedIds(VOCABULARY, 4, name="given"), np.array([[3, 0, 10]])
    y = layer(ids)
    np.testing.assert_array_equal(ops.convert_to_numpy(y), ids)
    symbolic = layer(keras.KerasTensor((None, 3), dtype="int64"))
    assert (symbolic.shape, symbolic.dtype) == ((None, 3), keras.backend.standardize_dtype(y.dtype))
    assert CheckedIds.from_config(layer.get_config()).get_config() == layer.get_config()
    for options in ({"vocabulary_size": 0, "context": 1}, {"vocabulary_size": 1, "context": 0}):
        with pytest.raises(ValueError, match="=0; expected a whole number"):
            CheckedIds(**options)
