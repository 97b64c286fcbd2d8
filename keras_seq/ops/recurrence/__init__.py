"""A cell, applied to one time step after the other."""

import keras

from keras_seq.ops.recurrence.reference import recurrence, scan

if keras.backend.backend() == "tensorflow":
    import keras_seq.ops.recurrence.tensorflow  # noqa: F401  (binds the twin)

__all__ = ["recurrence", "scan"]
