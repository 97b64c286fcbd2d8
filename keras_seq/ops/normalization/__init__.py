"""Layer and RMS normalization."""

import keras

from keras_seq.ops.normalization.reference import normalize

if keras.backend.backend() == "tensorflow":
    import keras_seq.ops.normalization.tensorflow
elif keras.backend.backend() == "torch":
    import keras_seq.ops.normalization.torch  # noqa: F401  (binds the twin)

__all__ = ["normalize"]
