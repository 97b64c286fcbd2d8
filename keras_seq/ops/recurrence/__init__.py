"""A cell, applied to one time step after the other; a whole LSTM or GRU where a backend has one."""

import keras

from keras_seq.ops.recurrence.reference import fused_rnn, recurrence, scan, stored_for_fused_rnn

if keras.backend.backend() == "tensorflow":
    import keras_seq.ops.recurrence.tensorflow
elif keras.backend.backend() == "torch":
    import keras_seq.ops.recurrence.torch  # noqa: F401  (binds the twins)

__all__ = ["fused_rnn", "recurrence", "scan", "stored_for_fused_rnn"]
