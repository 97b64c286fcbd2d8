"""Refuse options that cannot be meant once the model and the steps are known, and tell of those without effect.

An option without effect is an error where nothing would be learned or another result be taken for the one that was
asked for; where a short training leaves it without effect, as in a test of seconds, it is a line on the terminal.
"""

import keras

from keras_seq.layers.introspection import iter_layers
from keras_seq.training.config import COMPILED_FIELDS, TrainConfig


class OptionError(ValueError):
    """Report an option of a training that does not fit its model or its number of steps."""


def check_options(training_model: keras.Model, train: TrainConfig, total_steps: int) -> None:
    """Check the options of a training against the compiled model.

    Args:
        training_model: The compiled model.
        train: Training config.
        total_steps: Step at which training ends.

    Raises:
        OptionError: Gradients are accumulated over more steps than there are, no layer computes in `train.precision`,
            or the model was compiled with another config.
    """
    optimizer = training_model.optimizer
    accumulated = optimizer.accumulation_steps or 1
    if accumulated > total_steps:
        raise OptionError(
            f"gradient_accumulation_steps={accumulated} in a training of {total_steps} steps, which would change no "
            f"weight; expected at most {total_steps}, or more steps."
        )
    compiled = optimizer.train_config
    if compiled is None:
        return
    differ = [name for name in COMPILED_FIELDS if getattr(compiled, name) != getattr(train, name)]
    if differ:
        values = ", ".join(f"{name}={getattr(compiled, name)!r}" for name in differ)
        raise OptionError(f"{training_model.name} was compiled with {values}; expected the config of its training.")
    dtypes = {layer.compute_dtype for layer in iter_layers(training_model)}
    if (train.precision != "float32" or "float16" in dtypes) and train.precision not in dtypes:
        computed = " and ".join(sorted(dtype for dtype in dtypes if dtype is not None))
        raise OptionError(
            f"precision={train.precision!r}, but {training_model.name} computes in {computed}; build the model with "
            f"dtype={train.dtype_policy!r} (TrainConfig.dtype_policy), or change the precision."
        )


def words_of_no_effect(training_model: keras.Model, train: TrainConfig, total_steps: int) -> list[str]:
    """Return a sentence for each option that has no effect, or less than it says.

    Args:
        training_model: The compiled model.
        train: Training config.
        total_steps: Step at which training ends.
    """
    optimizer, words = training_model.optimizer, []
    if optimizer.train_config is None:
        defaults = TrainConfig()
        given = [name for name in COMPILED_FIELDS if getattr(train, name) != getattr(defaults, name)]
        if given:
            words.append(f"{training_model.name} is compiled: {', '.join(given)} of its TrainConfig have no effect.")
    rate = optimizer.get_config()["learning_rate"]
    warmup_steps = rate["config"].get("warmup_steps", 0) if isinstance(rate, dict) else 0
    if warmup_steps > total_steps:
        words.append(
            f"The warm-up of {warmup_steps} steps is longer than the training of {total_steps}: the learning rate ends "
            f"at {total_steps / warmup_steps:.0%} of its peak."
        )
    accumulated = optimizer.accumulation_steps or 1
    if rest := total_steps % accumulated:
        words.append(
            f"gradient_accumulation_steps={accumulated} does not divide the {total_steps} steps: the gradients of the "
            f"last {rest} change no weight."
        )
    validations = -(-total_steps // train.validate_every)
    if train.patience is not None and train.patience + 1 >= validations:
        words.append(
            f"patience={train.patience} cannot end a training of {validations} validations: expected fewer, or a "
            "smaller validate_every."
        )
    return words
