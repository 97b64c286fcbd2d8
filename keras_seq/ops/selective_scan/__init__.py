"""The state-space model whose step depends on the input (Mamba)."""

import keras

from keras_seq.ops.selective_scan.reference import selective_scan

if keras.backend.backend() == "tensorflow":
    import keras_seq.ops.selective_scan.tensorflow  # noqa: F401  (binds the twin)

__all__ = ["selective_scan"]
