"""A whole LSTM or GRU, computed by cuDNN or by torch."""

import keras

from keras_seq.ops.fused_rnn.reference import fused_rnn, stored_for_fused_rnn

if keras.backend.backend() == "torch":
    import keras_seq.ops.fused_rnn.torch
else:
    import keras_seq.ops.fused_rnn.keras_layer  # noqa: F401  (binds the twins)

__all__ = ["fused_rnn", "stored_for_fused_rnn"]
