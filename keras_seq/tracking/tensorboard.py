"""Write a run to TensorBoard, with the tokens seen in training as the axis of everything.

All events of a run are in its own folder: one run of TensorBoard, one color. layout.py names the curves and sets up the
HParams and Custom Scalars pages. Each start of a run writes a file of its own. Its first event names the tokens that it
starts from, and TensorBoard forgets what earlier files have after them: it shows each point once.
"""

import functools
import io
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
from tensorboard.plugins.histogram.summary_v2 import histogram_pb
from tensorboard.plugins.image.metadata import create_summary_metadata
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util.tensor_util import make_tensor_proto

from keras_seq import checks
from keras_seq.tracking import layout
from keras_seq.tracking.layout import SETTINGS, describe, detail_tag, scalar_tag, validation_key
from keras_seq.tracking.summaries import Summaries, scored_key

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
        """Go on in the folder of a run: TensorBoard shows its earlier files up to these tokens only.

        Args:
            tokens: Tokens seen in training so far; 0 shows nothing of them.
        """
        self._start = tokens + 1 if tokens else 0

    def on_epoch_end(self, epoch, logs=None):
        """Write the epoch's logs and the learning rate at the current tokens, if `tokens_per_step` was given."""
        if self.tokens_per_step is not None:
            optimizer = self.model.optimizer
            logs = {"learning_rate": float(optimizer.learning_rate), **(logs or {})}
            self.record(int(optimizer.iterations) * self.tokens_per_step, logs)

    def record(self, tokens: int, logs: Mapping[str, float]):
        """Write a point of each curve.

        Args:
            tokens: Tokens seen in training.
            logs: Numbers by the keys of metrics.jsonl or of Keras's logs.
        """
        self._file.write(tokens, [scalar_proto(key, value, TOKENS_AXIS) for key, value in logs.items()])

    def write(self, tokens: int, summaries: Summaries):
        """Write the summaries of a validation, and what sets up the pages that show its scalars.

        Args:
            tokens: Tokens seen in training.
            summaries: What to write.
        """
        keys = [validation_key(name) for name in summaries.scalars if "/" not in name]
        titles = {name: describe(name, summaries.descriptions).rstrip(".") or name for name in summaries.curves}
        self._file.write(tokens, summary_protos(summaries, TOKENS_AXIS))
        if self._hparams and keys:
            self._file.write(tokens, [layout.hparams_columns(self._hparams, keys)])
        if scored_key("val_loss", keys) in keys:
            self._file.write(tokens, [layout.charts(keys, titles)])

    def write_settings(self, settings: Mapping[str, Any], model: keras.Model):
        """Write the run's row in the HParams table, and all its settings as a text.

        Args:
            settings: JSON values by dotted name.
            model: The model that is trained.
        """
        self._hparams = layout.select_hparams(settings, model)
        # what the whole experiment was asked for comes after what this run does
        rows = sorted(settings.items(), key=lambda item: item[0].startswith("experiment."))
        table = "\n".join(["| setting | value |", "|---|---|", *(f"| {name} | `{value}` |" for name, value in rows)])
        self._file.write(0, [layout.session_start(self._hparams), text_pb(SETTINGS, table, describe(SETTINGS))])


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
    metadata = create_summary_metadata(display_name=None, description=description)
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
