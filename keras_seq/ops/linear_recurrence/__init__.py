"""Recurrences that are linear in the state."""

import keras

from keras_seq.ops.linear_recurrence.reference import (
    LOG_ZERO,
    linear_recurrence,
    log_add,
    log_linear_recurrence,
    max_plus_recurrence,
)

if keras.backend.backend() == "tensorflow":
    import keras_seq.ops.linear_recurrence.tensorflow
elif keras.backend.backend() == "jax":
    import keras_seq.ops.linear_recurrence.jax
elif keras.backend.backend() == "torch":
    import keras_seq.ops.linear_recurrence.torch  # noqa: F401  (binds the twins)

__all__ = ["LOG_ZERO", "linear_recurrence", "log_add", "log_linear_recurrence", "max_plus_recurrence"]
