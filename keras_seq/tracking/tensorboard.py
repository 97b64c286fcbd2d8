"""Write a run to TensorBoard, with the tokens seen in training as the axis of everything, and lay out its pages.

    loss, val_loss, val_loss_streaming       Loss/training, Loss/validation, Loss/validation_streaming
    val_loss_sample, result/val_loss         Loss/validation_sample, Result/val_loss
    gradient_norm, val_accuracy              Training/gradient_norm, Validation/accuracy
    gate_saturation/open/lstm_0/forget       diagnostics/gate_saturation/open/lstm_0/forget

TensorBoard sorts groups by code point: losses come first, diagnostics last. HParams has a row for each run. It takes
its columns from one run of a folder, and Custom Scalars its charts from all, so both are in a run's own event file.
"""

import functools
import io
import math
import os
import pathlib
import platform
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
from PIL import Image
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar.metadata import CONFIG_SUMMARY_TAG, create_summary_metadata
from tensorboard.plugins.histogram.summary_v2 import histogram_pb
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.image import metadata as image_metadata
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util.tensor_util import make_tensor_proto

from keras_seq import checks
from keras_seq.tracking.summaries import SAMPLE, Summaries, scored_key

LOSSES = {"loss": "Loss/training"}
LOSSES |= {f"val_loss{end}": f"Loss/validation{end}" for end in ("", "_streaming", "_sample", "_streaming_sample")}
RESULT = "Result"  # group of the scores after training, of all of the validation data
SETTINGS = "settings"  # the text with all settings of a run
DESCRIPTIONS = {
    "loss": "Mean training loss of a logging interval, in nats per token.",
    "val_loss": "Mean loss of the validation data, in nats per token.",
    "val_loss_streaming": "Mean loss of the validation text from start to end, in nats per token: recurrent models "
    "carry their state, Transformers use a sliding window.",
    "val_bits_per_character": "`val_loss` in bits per character of the text.",
    "gradient_norm": "Norm of all gradients together before clipping, at the last step of a logging interval.",
    "learning_rate": "Learning rate of the step after a logging interval.",
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
    if name.endswith(SAMPLE):
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
    categories = {"Losses": {title: [LOSSES[key] for key in both] for title, both in losses.items()}}
    if titles:
        categories["Diagnostics"] = {title: [detail_tag(name)] for name, title in titles.items()}
    layout = layout_pb2.Layout()
    for title, content in categories.items():
        category = layout.category.add(title=title)
        for chart, tags in content.items():
            curves = layout_pb2.MultilineChartContent(tag=[f"^{re.escape(tag)}$" for tag in tags])
            category.chart.add(title=chart, multiline=curves)
    tensor = make_tensor_proto(layout.SerializeToString(), dtype="string")
    value = Summary.Value(tag=CONFIG_SUMMARY_TAG, metadata=create_summary_metadata(), tensor=tensor)
    return Summary(value=[value])


# All events of a run are in its own folder: one run of TensorBoard, one color. Each start of a run writes a file of its
# own. Its first event names the tokens that it starts from, and TensorBoard forgets what earlier files have after them:
# it shows each point once.

TRAIN_KEYS = ("loss", "gradient_norm", "learning_rate", "tokens_per_second", "seconds")  # of metrics.jsonl
TOKENS_AXIS = "training tokens"
FILE_VERSION = "brain.Event:2"  # of the first event of a file


class EventFile:
    """Append summaries to a new event file of a folder, which is open only while they are written.

    tensorboard's own writer hands events to a thread: a full disk would be met later than in the call that caused it.
    """

    def __init__(self, folder: str | pathlib.Path):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads files in the order of their names: this is the last one, whatever the clock says
        others = (re.match(r"events\.out\.tfevents\.(\d{10})\.", path.name) for path in folder.iterdir())
        number = max([int(time.time()), *(int(match[1]) + 1 for match in others if match)])
        self.path = folder / f"events.out.tfevents.{number:010}.{platform.node()}.{os.getpid()}"
        self._append([Event(wall_time=time.time(), file_version=FILE_VERSION)])

    def write(self, step: int, summaries: Iterable[Summary]):
        """Append an event for each summary, at a position on the axis."""
        self._append(Event(wall_time=time.time(), step=step, summary=summary) for summary in summaries)

    def start(self, step: int):
        """Have TensorBoard forget what earlier files of the folder have from a step on."""
        event = Event(wall_time=time.time(), step=step, session_log=SessionLog(status=SessionLog.START))
        self._append([event, event])  # the first start that it reads is no restart

    def _append(self, events):
        try:
            with open(self.path, "ab") as file:
                records = io.BytesIO()
                for event in events:
                    RecordWriter(records).write(event.SerializeToString())
                file.write(records.getvalue())
        except OSError as error:  # that of a full disk names no file
            raise type(error)(error.errno, error.strerror, str(self.path)) from error


class TokenTensorBoard(keras.callbacks.Callback):
    """Log to TensorBoard over tokens instead of epochs, with texts, images, histograms and settings.

    ```python
    model.fit(x, y, batch_size=12, callbacks=[TokenTensorBoard("logs/mine", tokens_per_step=12 * 64)])
    ```

    Unlike `keras.callbacks.TensorBoard`, it writes training and validation into one folder, each under its own tag:
    `Loss/training`, `Loss/validation`, `Training/...`, `Validation/...`. What a method writes is in the file when it
    returns, and outlives the process. Every method raises OSError if it cannot write.

    Args:
        log_dir: Folder of the run.
        tokens_per_step: Tokens of a batch. If given, the logs of each epoch of `fit` are written at the optimizer's
            step times this; if None, only calls of the methods below are logged.

    Raises:
        ValueError: If `tokens_per_step` is not an integer of at least 1.
    """

    def __init__(self, log_dir: str | pathlib.Path, tokens_per_step: int | None = None):
        super().__init__()
        if tokens_per_step is not None:
            checks.positive_integer("tokens_per_step", tokens_per_step)
        self.log_dir, self.tokens_per_step = log_dir, tokens_per_step
        self._hparams, self._start = {}, None

    @functools.cached_property
    def _file(self):
        file = EventFile(self.log_dir)
        if self._start is not None:
            file.start(self._start)
        return file

    def resume_at(self, tokens: int):
        """Go on in a run's folder after so many training tokens; of earlier files TensorBoard shows what is before."""
        self._start = tokens + 1 if tokens else 0

    def on_epoch_end(self, epoch, logs=None):
        """Write the epoch's logs and the learning rate at the current tokens, if `tokens_per_step` was given."""
        if self.tokens_per_step is not None:
            optimizer = self.model.optimizer
            logs = {"learning_rate": float(optimizer.learning_rate), **(logs or {})}
            self.record(num_batches(optimizer) * self.tokens_per_step, logs)

    def record(self, tokens: int, logs: Mapping[str, float]):
        """Write a point of each curve after so many training tokens, by the keys of metrics.jsonl or Keras's logs."""
        self._file.write(tokens, [scalar_proto(key, value, TOKENS_AXIS) for key, value in logs.items()])

    def write(self, tokens: int, summaries: Summaries):
        """Write the summaries of a validation after so many training tokens, and what lays out the pages for them."""
        keys = [validation_key(name) for name in summaries.scalars if "/" not in name]
        titles = {name: describe(name, summaries.descriptions).rstrip(".") or name for name in summaries.curves}
        self._file.write(tokens, summary_protos(summaries, TOKENS_AXIS))
        if self._hparams and keys:
            self._file.write(tokens, [hparams_columns(self._hparams, keys)])
        if scored_key("val_loss", keys) in keys:
            self._file.write(tokens, [charts(keys, titles)])

    def write_settings(self, settings: Mapping[str, Any], model: keras.Model):
        """Write the row of a training model in the HParams table, and its settings, JSON values by dotted name."""
        self._hparams = select_hparams(settings, model)
        # what the whole experiment was asked for comes after what this run does
        rows = sorted(settings.items(), key=lambda item: item[0].startswith("experiment."))
        table = "\n".join(["| setting | value |", "|---|---|", *(f"| {name} | `{value}` |" for name, value in rows)])
        row = hparams_pb(self._hparams, trial_id="")  # under the name of the run
        self._file.write(0, [row, text_pb(SETTINGS, table, describe(SETTINGS))])


def num_batches(optimizer: keras.optimizers.Optimizer) -> int:
    """Return the batches so far; of Keras's optimizers, which count updates, those of all updates."""
    if hasattr(optimizer, "step"):  # of `keras_seq.training`
        return int(optimizer.step)
    accumulating = getattr(optimizer, "inner_optimizer", optimizer)  # of a `LossScaleOptimizer`
    return int(optimizer.iterations) * (getattr(accumulating, "gradient_accumulation_steps", None) or 1)


def scalar_proto(key: str, value: float, axis: str, descriptions: Mapping[str, str] = {}) -> Summary:
    """Return the protocol buffer of a number."""
    description = f"{describe(key, descriptions)} Horizontal axis: {axis}.".strip()
    return scalar_pb(scalar_tag(key), float(value), description)


def image_proto(tag: str, images: np.ndarray, description: str = "") -> Summary:
    """Return the protocol buffer of images, uint8 `[N, height, width, 3]`: their width, height and PNG files."""
    files = [io.BytesIO() for _ in images]
    for file, image in zip(files, images, strict=True):
        Image.fromarray(image).save(file, "PNG")
    _, height, width, _ = images.shape
    strings = [b"%d" % width, b"%d" % height, *(file.getvalue() for file in files)]
    metadata = image_metadata.create_summary_metadata(display_name=None, description=description)
    tensor = make_tensor_proto(strings, dtype="string")
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])


def summary_protos(summaries: Summaries, axis: str) -> Iterator[Summary]:
    """Return the protocol buffers of summaries; texts keep their spaces and line breaks."""
    for name, value in summaries.charted.items():
        yield scalar_proto(validation_key(name), value, axis, summaries.descriptions)
    for name, text in summaries.texts.items():
        yield text_pb(name, code_block(text), describe(name, summaries.descriptions))
    for name, image in summaries.images.items():
        images = image if image.ndim == 4 else image[None]
        yield image_proto(detail_tag(name), images, describe(name, summaries.descriptions))
    for name, values in summaries.histograms.items():
        with np.errstate(invalid="ignore"):  # NaN is in no bucket
            proto = histogram_pb(detail_tag(name), values, description=describe(name, summaries.descriptions))
        yield proto


def code_block(text: str) -> str:
    """Return a text as a code block of Markdown."""
    return "\n".join("    " + line for line in text.splitlines())
