"""Lay out a run in TensorBoard: the tags of its curves, and the HParams and Custom Scalars pages.

    loss, val_loss, val_loss_streaming       Loss/training, Loss/validation, Loss/validation_streaming
    val_loss_sample, result/val_loss         Loss/validation_sample, Result/val_loss
    gradient_norm, val_accuracy              Training/gradient_norm, Validation/accuracy
    gate_saturation/open/lstm_0/forget       diagnostics/gate_saturation/open/lstm_0/forget

TensorBoard sorts groups by code point: losses come first, diagnostics last. HParams has a row for each run. It takes
its columns from one run of a folder, and Custom Scalars its charts from all, so both are in a run's own event file.
"""

import math
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import keras
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar.metadata import CONFIG_SUMMARY_TAG, create_summary_metadata
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.util.tensor_util import make_tensor_proto

from keras_seq.tracking.summaries import SAMPLE, is_of_sample, scored_key

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
PARAMETERS = "parameters (millions)"  # the table shows five digits, so that a count would be 8.2113e+5
NUM_COLUMNS = 5
FIRST = ("model.name", "corpus.name", PARAMETERS, "seed", "train.learning_rate")
RESULTS = ("val_loss", "val_loss_streaming")  # the first columns of numbers, over all of the validation data
COLUMN_NAMES = {"loss": "training loss (nats per token)"} | {
    f"result/{key}": f"{key} (nats per token)" for key in RESULTS
}
# Groups of settings that are equal in all runs of a folder, or too many for a table.
OMITTED = {
    *("experiment", "model", "train", "corpus", "tokenizer", "versions", "environment"),
    *("optimizer", "loss", "length", "batches", "validation"),
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
    """Return the description of a key or name, or of the longest group of it that has one; "" if none has."""
    known = {**DESCRIPTIONS, **descriptions}
    if name.startswith("result/"):
        return " ".join(filter(None, ("After training, over all of the validation data.", known.get(name[7:]))))
    if is_of_sample(name):
        whole = describe(name.removesuffix(SAMPLE), descriptions)
        return " ".join(filter(None, ("Of a sample that is spread evenly over the validation data.", whole)))
    groups = (name, *map(str, pathlib.PurePosixPath(name).parents))
    return next((known[group] for group in groups if group in known), "")


def select_hparams(settings: Mapping[str, Any], model: keras.Model) -> dict[str, bool | int | float | str]:
    """Return the hyperparameters of a run in the order of the columns: FIRST, the others, `train.optimizer`."""
    parameters = sum(math.prod(variable.shape) for variable in model.trainable_variables)
    compiled = {  # by its user, so that `train` does not name them
        "train.learning_rate": settings.get("optimizer.learning_rate"),
        "train.optimizer": settings.get("optimizer.class", "").rpartition(">")[2].lower() or None,
    }
    settings = {**compiled, **settings, PARAMETERS: parameters / 1e6}
    if "seed" in settings:
        settings["seed"] = str(settings["seed"])  # a name: the table shows numbers as 1.0000
    others = (name for name in settings if name.partition(".")[0] not in OMITTED)
    names = dict.fromkeys([*FIRST, *others, "train.optimizer"])
    return {name: settings[name] for name in names if isinstance(settings.get(name), bool | int | float | str)}


def session_start(hparams: Mapping[str, bool | int | float | str]) -> Summary:
    """Return the summary that makes a run a row of the HParams table, under the name of the run."""
    return hparams_pb(hparams, trial_id="")


def hparams_columns(hparams: Iterable[str], keys: Iterable[str]) -> Summary:
    """Return the summary that orders the columns of the HParams table."""
    names = [key.removesuffix(SAMPLE) for key in keys]
    results = [f"result/{name}" for name in dict.fromkeys([*RESULTS, *names]) if name in names]
    columns = dict.fromkeys([*results[:2], "loss", "seconds", "tokens_per_second", *results, *keys])
    experiment = api_pb2.Experiment(
        # the page sorts by `differs`, then by name, and shows the first ones
        hparam_infos=[api_pb2.HParamInfo(name=name, differs=n < NUM_COLUMNS) for n, name in enumerate(hparams)],
        metric_infos=[
            api_pb2.MetricInfo(name=api_pb2.MetricName(tag=scalar_tag(key)), display_name=_column(key))
            for key in columns
        ],
    )
    metadata = hparams_metadata.create_summary_metadata(HParamsPluginData(experiment=experiment))
    value = Summary.Value(tag=hparams_metadata.EXPERIMENT_TAG, metadata=metadata, tensor=hparams_metadata.NULL_TENSOR)
    return Summary(value=[value])


def _column(key):
    """Return the title of a column: scores after training have the names of the reports."""
    name = COLUMN_NAMES.get(key, key.removeprefix("result/"))
    return f"{name}, last validation" if key.startswith("val_") else name


def charts(keys: Iterable[str], titles: Mapping[str, str]) -> Summary:
    """Return the summary of the Custom Scalars page; each chart overlays all runs."""
    loss, streaming = (scored_key(key, keys) for key in RESULTS)
    losses = {"Training and validation loss (nats per token)": ["loss", loss]}
    if streaming in keys:
        losses["Gain from preceding text (nats per token)"] = [loss, streaming]
    categories = {
        "Losses": {title: [LOSSES[key] for key in both] for title, both in losses.items()},
        "Diagnostics": {title: [detail_tag(name)] for name, title in titles.items()},
    }
    layout = layout_pb2.Layout(
        category=[
            layout_pb2.Category(
                title=category,
                chart=[
                    layout_pb2.Chart(
                        title=title,
                        multiline=layout_pb2.MultilineChartContent(tag=[f"^{re.escape(tag)}$" for tag in tags]),
                    )
                    for title, tags in content.items()
                ],
            )
            for category, content in categories.items()
            if content
        ]
    )
    tensor = make_tensor_proto(layout.SerializeToString(), dtype="string")
    value = Summary.Value(tag=CONFIG_SUMMARY_TAG, metadata=create_summary_metadata(), tensor=tensor)
    return Summary(value=[value])
