"""Products with matrices and what goes with them: biases, activations, rows of a table, the cross-entropy."""

import keras

from keras_seq.ops.dense.reference import (
    activate,
    add_bias,
    cross_entropy,
    dense,
    projects_table,
    rows_of_table,
)

if keras.backend.backend() == "tensorflow":
    import keras_seq.ops.dense.tensorflow
elif keras.backend.backend() == "torch":
    import keras_seq.ops.dense.torch  # noqa: F401  (binds the twins)

__all__ = ["activate", "add_bias", "cross_entropy", "dense", "projects_table", "rows_of_table"]
