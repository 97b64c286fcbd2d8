"""Validate on the beginning of a long text during training, and on all of it at the end."""

from collections.abc import Callable, Sequence

from keras_seq.tracking.summaries import Summaries
from keras_seq.training.config import TrainConfig


def capped_validation(
    score: Callable[[Sequence], Summaries], validation: Sequence, train: TrainConfig, min_characters: int = 2
) -> dict:
    """Return the validation arguments of `fit_resumable`: `fit_resumable(..., **capped_validation(score, ids, train))`.

    Args:
        score: Function from a text, or from its character ids, to `Summaries`.
        validation: The text or the ids.
        train: Training config; its `validation_characters` limits what is scored during training.
        min_characters: Fewest characters that can be scored.

    Returns:
        `validate_fn`, and where the text is cut, `final_validate_fn` and `final_duration_ratio`.

    Raises:
        ValueError: If `train.validation_characters` is less than `min_characters`.
    """
    part = train.validated_part(validation, min_characters)
    arguments = {"validate_fn": lambda: score(part)}
    if len(part) < len(validation):
        arguments["final_validate_fn"] = lambda: score(validation)
        arguments["final_duration_ratio"] = len(validation) / len(part)
    return arguments
