"""Validations of a long text: a part of it during training, all of it at the end."""

from keras_seq.training.config import TrainConfig


def capped_validation(score, validation, train: TrainConfig, least=2) -> dict:
    """What `fit` is told of a validation text: `fit(..., **bounded(score, ids, train))`.

    Args:
        score: a function from a text, or its ids of characters, to a `Measured`.
        validation: the text, or the ids.
        train: says how much of it is scored during training, always its beginning.
        least: the fewest characters that make a score.

    Raises:
        ValueError: `train.validation_characters` is less.
    """
    part = train.validated_part(validation, least)
    told = {"measure": lambda: score(part)}
    if len(part) < len(validation):
        told |= {"final": lambda: score(validation), "final_times": len(validation) / len(part)}
    return told
