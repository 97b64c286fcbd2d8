"""Validate on a sample of a long text during training, and on all of it at the end."""

import warnings
from collections.abc import Callable, Sequence

import numpy as np

from keras_seq.evaluation.validation_sample import ValidationSample, sample_windows
from keras_seq.tracking.summaries import Summaries
from keras_seq.training.config import TrainConfig

MAX_STANDARD_ERRORS = 3.0


def validation_sample(
    ids: Sequence[int], sequence_length: int, train: TrainConfig, num_characters: int | None = None
) -> ValidationSample | None:
    """Return the windows of a validation text that are scored during training; None for all.

    Args:
        ids: The text, integers `[N]`.
        sequence_length: T, tokens of a window.
        train: Training config, whose `validation_characters` is the size of the sample.
        num_characters: Characters of the text; by default each id is one.

    Raises:
        ValueError: If `train.validation_characters` is less than a window and the next token.
    """
    total = len(ids) if num_characters is None else num_characters
    size = train.validated_characters(total, sequence_length + 1 if num_characters is None else 2)
    if size == total:
        return None
    tokens = size * len(ids) // total
    if tokens <= sequence_length:
        raise ValueError(
            f"{size:,} characters of validation text are {tokens} tokens; expected at least {sequence_length + 1}, a "
            "window and the next token: give a longer text, or raise --train.validation-characters."
        )
    return sample_windows(ids, sequence_length, tokens // sequence_length)


def sampled_validation(
    score: Callable[[ValidationSample | None], Summaries], ids: Sequence[int], sequence_length: int, train: TrainConfig
) -> dict:
    """Return the validation arguments of `fit_resumable`: `fit_resumable(..., **sampled_validation(score, ids, ...))`.

    Args:
        score: Function from the windows to score, None for all, to `Summaries`.
        ids: The validation text, a character each, integers `[N]`.
        sequence_length: T, tokens of a window.
        train: Training config; its `validation_characters` limits what is scored during training.

    Returns:
        `validate_fn`, and where a sample is scored, `final_validate_fn` and `final_duration_ratio`.

    Raises:
        ValueError: If `train.validation_characters` is less than a window and the next character.
    """
    sample = validation_sample(ids, sequence_length, train)
    arguments = {"validate_fn": lambda: score(sample)}
    if sample is not None:
        arguments["final_validate_fn"] = lambda: score(None)
        arguments["final_duration_ratio"] = len(ids) / sample.tokens
    return arguments


def check_sample(sample: ValidationSample, last_loss: float, token_losses: np.ndarray):
    """Warn if the last validation, of a sample, differs from the result by more than chance allows.

    Args:
        sample: What was scored during training.
        last_loss: `val_loss_sample` of the last validation.
        token_losses: Those of the result, over all windows, `[windows, T]`.
    """
    loss = float(token_losses.mean(dtype="float64"))
    limit = MAX_STANDARD_ERRORS * sample.standard_error(token_losses)
    if not abs(last_loss - loss) <= limit + 1e-4 * abs(loss):  # rounding
        warnings.warn(
            f"The last val_loss_sample is {last_loss:.3f}, and val_loss, of the whole validation text, is {loss:.3f}: "
            f"by chance they differ by {limit:.3f} at most, so the curve of this run does not speak for its result; "
            "raise --train.validation-characters.",
            stacklevel=2,
        )
