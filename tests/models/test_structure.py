import keras
import pytest

from keras_seq import layers
from keras_seq.layers.introspection import has_time_loop, iter_layers
from keras_seq.models import MODELS

SIZES = {"units": 4, "embedding_dim": 8, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 8, "context_length": 8}


@pytest.mark.parametrize("name", MODELS)
def test_only_loops_over_the_positions_count_as_loops(name):
    fields = MODELS[name].__dataclass_fields__
    model = MODELS[name](**{field: size for field, size in SIZES.items() if field in fields}).build_model(7)
    assert has_time_loop(model) == (name in {"rnn", "gru", "lstm", "bilstm"})


def test_they_are_found_however_deep():
    nested = layers.PreNormResidual([layers.PreNormResidual([layers.LSTM(4, return_sequences=True)])])
    model = keras.Sequential([keras.Input((None, 4)), keras.Sequential([nested])])
    assert has_time_loop(model)
    assert nested in iter_layers(model)
    assert not has_time_loop(keras.Sequential([keras.Input((None, 4)), layers.MinLSTM(4, return_sequences=True)]))
