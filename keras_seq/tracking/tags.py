"""Derive TensorBoard's tags from the keys of metrics.jsonl, and describe them with their units.

    loss, val_loss, val_loss_streaming       Loss/training, Loss/validation, Loss/validation_streaming
    val_loss_sample                          Loss/validation_sample
    result/val_loss                          Result/val_loss
    gradient_norm                            Training/gradient_norm
    val_accuracy                             Validation/accuracy
    loss_by_position/7                       Validation/loss_by_position/7
    gate_saturation/open/lstm_0/forget       diagnostics/gate_saturation/open/lstm_0/forget

TensorBoard sorts groups by code point, so the losses come first and the diagnostics last. Every number of a run has one
tag in one run of TensorBoard, so that a model has one color in all charts.
"""

import pathlib
from collections.abc import Mapping

from keras_seq.tracking.summaries import SAMPLE, is_of_sample

LOSSES = {
    "loss": "Loss/training",
    "val_loss": "Loss/validation",
    "val_loss_streaming": "Loss/validation_streaming",
    "val_loss_sample": "Loss/validation_sample",
    "val_loss_streaming_sample": "Loss/validation_streaming_sample",
}
RESULT = "Result"  # group of the scores after training, of all of the validation data
SETTINGS = "settings"  # the text with all settings of a run
DESCRIPTIONS = {
    "loss": "Mean training loss of a logging interval, in nats per token.",
    "val_loss": "Mean loss of the validation data, in nats per token.",
    "val_loss_streaming": "Mean loss of the validation text from start to end, in nats per token: recurrent models "
    "carry their state, Transformers use a sliding window.",
    "val_bits_per_character": "`val_loss` in bits per character of the text.",
    "gradient_norm": "Norm of all gradients together before clipping, at the last step of a logging interval.",
    "learning_rate": "Learning rate at the last step of a logging interval.",
    "tokens_per_second": "Training tokens per second of a logging interval, without validations and checkpoints.",
    "seconds": "Seconds in training steps so far, compilation included, without validations and checkpoints.",
    SETTINGS: "All settings of the run; config.json has them too.",
}


def scalar_tag(key: str) -> str:
    """Return the tag of a key of metrics.jsonl; validation keys without a group begin with `val_`."""
    if key in LOSSES:
        return LOSSES[key]
    if key.startswith("result/"):
        return f"{RESULT}/{key.removeprefix('result/')}"
    if "/" in key:
        return detail_tag(key)
    return f"Validation/{key.removeprefix('val_')}" if key.startswith("val_") else f"Training/{key}"


def detail_tag(name: str) -> str:
    """Return the tag of a name with a group, an image or a histogram: losses are scores, the rest is diagnostics."""
    return f"{'Validation' if name.startswith('loss') else 'diagnostics'}/{name}"


def validation_key(name: str) -> str:
    """Return the key under which a validation's scalar is shown: `accuracy` is `val_accuracy`."""
    return name if "/" in name or name.startswith("val_") else f"val_{name}"


def describe(name: str, descriptions: Mapping[str, str] = {}) -> str:
    """Return the description of a key or name, or of the longest group of it that has one; "" if none has.

    Args:
        name: Key or name.
        descriptions: Descriptions by name or group, which come before those of the keys above.
    """
    known = {**DESCRIPTIONS, **descriptions}
    if name.startswith("result/"):
        return " ".join(filter(None, ("After training, over all of the validation data.", known.get(name[7:]))))
    if is_of_sample(name):
        whole = describe(name.removesuffix(SAMPLE), descriptions)
        return " ".join(filter(None, ("Of a sample that is spread evenly over the validation data.", whole)))
    groups = (name, *map(str, pathlib.PurePosixPath(name).parents))
    return next((known[group] for group in groups if group in known), "")
