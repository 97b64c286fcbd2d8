"""Long short-term memory."""

import keras

from keras_seq.ops.lstm.reference import TANH_AND_SIGMOID, lstm, lstm_cell

if keras.backend.backend() == "tensorflow":
    import keras_seq.ops.lstm.tensorflow
elif keras.backend.backend() == "jax":
    import keras_seq.ops.lstm.jax  # noqa: F401  (binds the twin)

__all__ = ["TANH_AND_SIGMOID", "lstm", "lstm_cell"]
