"""Validate an exponential moving average of the weights while the weights themselves are trained.

    average <- ema_momentum average + (1 - ema_momentum) weight      after each update; after the first one, the weight

The average is Keras's (`use_ema`), a part of the optimizer and so of its checkpoints. At the end of a training Keras
replaces the weights by it.
"""

import contextlib
from collections.abc import Iterator

import keras


@contextlib.contextmanager
def averaged_weights(training_model: keras.Model) -> Iterator[None]:
    """Replace the weights of a model by their average in a `with` block, if its optimizer keeps one.

    Args:
        training_model: Compiled model, whose optimizer is built.
    """
    optimizer, variables = training_model.optimizer, training_model.trainable_variables
    weights = [keras.ops.copy(v) for v in variables] if optimizer.use_ema else []  # each where it is
    optimizer.finalize_variable_values(variables)
    try:
        yield
    finally:
        for variable, weight in zip(variables, weights, strict=False):
            variable.assign(weight)
