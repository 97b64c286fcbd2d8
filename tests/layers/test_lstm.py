import numpy as np
import pytest
from keras import ops

from keras_seq.layers import LSTM
from keras_seq.ops.lstm import lstm_cell


def test_the_worked_example_of_the_notes():
    """h0 = [1, 1], C0 = [0.3, -0.5] and the pre-activations of the notes, with exact sigmoid and tanh."""
    z = np.array([[6, 4, -4, -6, 1, -6, 4, -5]], "float32")  # input, forget, candidate, output
    h, c = (ops.convert_to_numpy(v)[0] for v in lstm_cell(ops.array(z), ops.array([[0.3, -0.5]], "float32")))
    np.testing.assert_allclose(c, [0.7651069, -0.9832380], atol=1e-6)
    np.testing.assert_allclose(h, [0.6324907, -0.0050495], atol=1e-6)


def test_the_recurrent_initializer_of_the_original_is_an_option():
    layer = LSTM(64, recurrent_initializer="glorot_normal", return_sequences=True)
    layer.build((None, None, 3))
    deviation = np.std(layer.get_weights()[1])
    assert deviation == pytest.approx((2 / (64 + 256)) ** 0.5, rel=0.05)
