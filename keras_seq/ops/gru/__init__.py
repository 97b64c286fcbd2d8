"""The gated recurrent unit."""

import keras

from keras_seq.ops.gru.reference import TANH_AND_SIGMOID, gru, gru_cell

if keras.backend.backend() == "tensorflow":
    import keras_seq.ops.gru.tensorflow  # noqa: F401  (binds the twin)

__all__ = ["TANH_AND_SIGMOID", "gru", "gru_cell"]
