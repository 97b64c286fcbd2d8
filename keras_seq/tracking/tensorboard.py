"""Write a run to TensorBoard, with the tokens seen in training as the axis of everything.

All events of a run are in its own folder: one run of TensorBoard, one color. tags.py names the curves, layout.py sets
up the HParams and Custom Scalars pages.
"""

import contextlib
import errno
import pathlib
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from keras_seq import checks
from keras_seq.tracking import layout
from keras_seq.tracking.summaries import Summaries
from keras_seq.tracking.tags import SETTINGS, describe, detail_tag, scalar_tag, validation_key

TRAIN_KEYS = ("loss", "gradient_norm", "learning_rate", "tokens_per_second", "seconds")  # of metrics.jsonl
TOKENS_AXIS = "training tokens"


class TokenTensorBoard(keras.callbacks.Callback):
    """Log to TensorBoard over tokens instead of epochs, with texts, images, histograms and settings.

    ```python
    model.fit(x, y, batch_size=12, callbacks=[TokenTensorBoard("logs/mine", tokens_per_step=12 * 64)])
    ```

    Unlike `keras.callbacks.TensorBoard`, it writes training and validation into one folder, each under its own tag:
    `Loss/training`, `Loss/validation`, `Training/...`, `Validation/...`. Every method raises OSError if TensorFlow
    cannot write.

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
        self._writer, self._hparams = None, {}

    @contextlib.contextmanager
    def _writing(self):
        """Make the run's event file the default of `tf.summary`; raise errors of TensorFlow as OSError."""
        try:
            if self._writer is None:
                self._writer = tf.summary.create_file_writer(str(self.log_dir))
            with self._writer.as_default():
                yield
        except tf.errors.OpError as error:
            message = f"TensorBoard's files cannot be written ({error.message})"
            raise OSError(errno.EIO, message, str(self.log_dir)) from error

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
        with self._writing():
            for key, value in logs.items():
                write_scalar(key, value, tokens, TOKENS_AXIS)

    def write(self, tokens: int, summaries: Summaries):
        """Write the summaries of a validation, and what sets up the pages that show its scalars.

        Args:
            tokens: Tokens seen in training.
            summaries: What to write.
        """
        keys = [validation_key(name) for name in summaries.scalars if "/" not in name]
        titles = {name: describe(name, summaries.descriptions).rstrip(".") or name for name in summaries.curves}
        with self._writing():
            write_summaries(tokens, summaries, TOKENS_AXIS)
            if self._hparams and keys:
                tf.summary.experimental.write_raw_pb(layout.hparams_columns(self._hparams, keys), step=tokens)
            if "val_loss" in keys:
                tf.summary.experimental.write_raw_pb(layout.charts(keys, titles), step=tokens)
            self._writer.flush()

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
        with self._writing():
            tf.summary.experimental.write_raw_pb(layout.session_start(self._hparams), step=0)
            tf.summary.text(SETTINGS, table, step=0, description=describe(SETTINGS))

    def flush(self):
        """Pass all events to the operating system, so that they outlive the process."""
        with self._writing():
            self._writer.flush()

    def on_train_end(self, logs=None):
        """Close the event file."""
        if self._writer is not None:
            with self._writing():
                self._writer.close()
            self._writer = None


def write_scalar(key: str, value: float, step: int, axis: str, descriptions: Mapping[str, str] = {}):
    """Write a number to the default writer of `tf.summary`.

    Args:
        key: Key of metrics.jsonl or of Keras's logs.
        value: The number.
        step: Position on the axis.
        axis: Unit of the axis.
        descriptions: Descriptions by name or group.
    """
    description = f"{describe(key, descriptions)} Horizontal axis: {axis}.".strip()
    tf.summary.scalar(scalar_tag(key), value, step=step, description=description)


def write_summaries(step: int, summaries: Summaries, axis: str):
    """Write summaries to the default writer of `tf.summary`; texts keep their spaces and line breaks.

    Args:
        step: Position on the axis.
        summaries: What to write.
        axis: Unit of the axis.
    """
    replaced = {name.partition("/")[0] for name in summaries.curves}
    scalars = {name: value for name, value in summaries.scalars.items() if name.partition("/")[0] not in replaced}
    for name, value in {**scalars, **summaries.curves}.items():
        write_scalar(validation_key(name), value, step, axis, summaries.descriptions)
    for name, text in summaries.texts.items():
        code = "\n".join("    " + line for line in text.splitlines())
        tf.summary.text(name, code, step=step, description=describe(name, summaries.descriptions))
    for name, image in summaries.images.items():
        images = image if image.ndim == 4 else image[None]
        description = describe(name, summaries.descriptions)
        tf.summary.image(detail_tag(name), images, step=step, max_outputs=len(images), description=description)
    for name, values in summaries.histograms.items():
        description = describe(name, summaries.descriptions)
        tf.summary.histogram(detail_tag(name), values, step=step, description=description)


def curve_points(lines: list[dict]) -> dict[tuple[str, int], float]:
    """Return the points of TensorBoard's curves that the lines of metrics.jsonl stand for: `{(tag, tokens): value}`.

    Args:
        lines: Lines of metrics.jsonl.
    """
    points = {}
    for line in lines:
        if line["split"] == "train":
            points |= {(scalar_tag(key), line["tokens"]): line[key] for key in TRAIN_KEYS}
        elif line["split"] == "validation":
            names = line.keys() - {"step", "tokens", "split"}
            points |= {(scalar_tag(validation_key(name)), line["tokens"]): line[name] for name in names}
    return points
