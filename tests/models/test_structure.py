import keras
import pytest

from keras_seq import layers
from keras_seq.layers.introspection import has_time_loop, iter_layers
from keras_seq.models import MODELS
from keras_seq.models.config import tiny_config

LOOPS = (layers.SimpleRNN, layers.GRU, layers.LSTM, layers.SLSTM)


@pytest.mark.parametrize("name", MODELS)
def test_only_loops_over_the_positions_count_as_loops(name):
    model = tiny_config(name, context_length=8).build_model(7)
    assert has_time_loop(model) == any(isinstance(layer, LOOPS) for layer in iter_layers(model))


def test_they_are_found_however_deep():
    nested = layers.PreNormResidual([layers.PreNormResidual([layers.LSTM(4, return_sequences=True)])])
    model = keras.Sequential([keras.Input((None, 4)), keras.Sequential([nested])])
    assert has_time_loop(model)
    assert nested in iter_layers(model)
    assert not has_time_loop(keras.Sequential([keras.Input((None, 4)), layers.MinLSTM(4, return_sequences=True)]))
