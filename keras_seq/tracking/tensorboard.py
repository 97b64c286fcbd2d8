"""Write a run to TensorBoard, with the tokens seen in training as the axis of everything.

train/ and validation/   scalars by `keras.callbacks.TensorBoard`: epoch_loss and the others, named as in any Keras run;
                         an "epoch" is a logging interval here, and its number the tokens
the run's own folder     the losses again, each under its own tag, so that a chart can overlay the models; texts,
                         images, histograms, and the run's row in the HParams table

`write_hparams_config` and `write_custom_scalars_layout` set up the HParams and Custom Scalars pages of several runs.
"""

import contextlib
import errno
import pathlib
from collections.abc import Iterable

import keras
import tensorflow as tf
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import metadata as custom_scalars_metadata
from tensorboard.plugins.custom_scalar import summary as custom_scalars
from tensorboard.plugins.hparams import api as hparams
from tensorboard.plugins.hparams import metadata

from keras_seq import checks
from keras_seq.tracking.event_files import read_tags
from keras_seq.tracking.summaries import Summaries

# Capitalized, so that TensorBoard, which sorts by code point, shows them first.
OVERLAY_TAGS = {
    "loss": "Loss/training",
    "val_loss": "Loss/validation",
    "val_loss_streaming": "Loss/validation_streaming",
}


class TokenTensorBoard(keras.callbacks.TensorBoard):
    """Log to TensorBoard over tokens instead of epochs, with texts, images, histograms and hyperparameters.

    ```python
    model.fit(x, y, batch_size=12, callbacks=[TokenTensorBoard("logs/mine", tokens_per_step=12 * 64)])
    ```

    `record(tokens, logs)` writes a point: `val_...` to validation/, all else to train/, so that both losses share a
    chart. Every method raises OSError if TensorFlow cannot write.

    Args:
        log_dir: Folder of the run.
        tokens_per_step: Tokens of a batch. If given, the logs of each epoch of `fit` are written at the optimizer's
            step times this; if None, only calls of `record` and `write` are logged.
        **kwargs: Arguments of `keras.callbacks.TensorBoard`; what Keras writes per batch keeps Keras's axis.

    Raises:
        ValueError: If `tokens_per_step` is not an integer of at least 1.
    """

    def __init__(self, log_dir: str | pathlib.Path, tokens_per_step: int | None = None, **kwargs):
        super().__init__(log_dir, **{"write_graph": False, **kwargs})
        if tokens_per_step is not None:
            checks.positive_integer("tokens_per_step", tokens_per_step)
        self.tokens_per_step = tokens_per_step
        self._run_writer = None

    @property
    def run_writer(self):
        """Return the `tf.summary` writer of the run's own folder."""
        if self._run_writer is None:
            self._run_writer = tf.summary.create_file_writer(str(self.log_dir))
        return self._run_writer

    def on_epoch_end(self, epoch, logs=None):
        """Write the epoch's logs at the current tokens, if `tokens_per_step` was given."""
        if self.tokens_per_step is not None:
            self.record(int(self.model.optimizer.iterations) * self.tokens_per_step, logs or {})

    def record(self, tokens: int, logs: dict[str, float]):
        """Write a point of the curves.

        Args:
            tokens: Tokens seen in training.
            logs: Numbers by name.
        """
        with self._as_os_error(), self.run_writer.as_default():
            super().on_epoch_end(tokens, logs)
            for name, tag in OVERLAY_TAGS.items():
                if name in logs:
                    tf.summary.scalar(tag, logs[name], step=tokens)

    def write(self, tokens: int, summaries: Summaries):
        """Write the summaries of a validation.

        Args:
            tokens: Tokens seen in training.
            summaries: Ungrouped scalars go to validation/, all else to the run's own folder.
        """
        ungrouped = {name: value for name, value in summaries.scalars.items() if "/" not in name}
        self.record(tokens, {f"val_{name.removeprefix('val_')}": value for name, value in ungrouped.items()})
        with self._as_os_error():
            write_summaries(self.run_writer, tokens, summaries, exclude=ungrouped)

    def flush(self):
        """Pass all events to the operating system, so that they outlive the process."""
        with self._as_os_error():
            for writer in (*self._writers.values(), self.run_writer):
                writer.flush()

    @contextlib.contextmanager
    def _as_os_error(self):
        """Raise errors of TensorFlow's writers as OSError."""
        try:
            yield
        except tf.errors.OpError as error:
            message = f"TensorBoard's files cannot be written ({error.message})"
            raise OSError(errno.EIO, message, str(self.log_dir)) from error

    def write_hparams(self, values: dict):
        """Write the run's row in the HParams table.

        Args:
            values: Numbers and strings by name.
        """
        with self._as_os_error(), self.run_writer.as_default():
            # the run's name first: the table shows about fifteen characters
            hparams.hparams(values, trial_id=" in ".join(reversed(pathlib.Path(self.log_dir).resolve().parts[-2:])))

    def on_train_end(self, logs=None):
        """Close all files."""
        with self._as_os_error():
            super().on_train_end(logs)
            if self._run_writer is not None:
                self._run_writer.close()
                self._run_writer = None


def write_summaries(writer, step: int, summaries: Summaries, exclude: Iterable[str] = ()):
    """Write summaries; texts keep their spaces and line breaks.

    Args:
        writer: A `tf.summary` writer.
        step: Position on the axis.
        summaries: What to write.
        exclude: Names of scalars to leave out.
    """
    with writer.as_default():
        for name, value in summaries.scalars.items():
            if name not in exclude:
                tf.summary.scalar(name, value, step=step)
        for name, text in summaries.texts.items():
            tf.summary.text(name, "\n".join("    " + line for line in text.splitlines()), step=step)
        for name, image in summaries.images.items():
            tf.summary.image(name, image[None], step=step)
        for name, values in summaries.histograms.items():
            tf.summary.histogram(name, values, step=step)
        writer.flush()


def curve_points(lines: list[dict]) -> dict[str, dict[tuple[str, int], float]]:
    """Return the TensorBoard points that the lines of metrics.jsonl stand for.

    Args:
        lines: Lines of metrics.jsonl.

    Returns:
        Points `{(tag, tokens): value}`, by subfolder of the run ("" for the run's own folder).
    """
    run, train, validation = {}, {}, {}
    for line in lines:
        tokens = line["tokens"]
        if line["split"] == "train":
            run[OVERLAY_TAGS["loss"], tokens] = train["epoch_loss", tokens] = line["loss"]
            for name in ("gradient_norm", "tokens_per_second", "learning_rate"):
                train[f"epoch_{name}", tokens] = line[name]
        elif line["split"] == "validation":
            scalars = {name: value for name, value in line.items() if name not in ("step", "tokens", "split")}
            for name, value in scalars.items():
                if name in OVERLAY_TAGS:
                    run[OVERLAY_TAGS[name], tokens] = value
                if "/" in name:
                    run[name, tokens] = value
                else:
                    validation[f"epoch_{name.removeprefix('val_')}", tokens] = value
    return {"": run, "train": train, "validation": validation}


def write_hparams_config(folder: str | pathlib.Path, names: Iterable[str]):
    """Set up the HParams table of a folder of runs, unless it is set up already.

    Args:
        folder: Folder that contains the runs' folders.
        names: Dotted config names to show as hyperparameters.
    """
    if metadata.EXPERIMENT_TAG in read_tags(folder):
        return
    with tf.summary.create_file_writer(str(folder)).as_default():
        hparams.hparams_config(
            hparams=[hparams.HParam(name) for name in names],
            metrics=[
                hparams.Metric("epoch_loss", group="validation", display_name="val_loss (nats/token)"),
                hparams.Metric(
                    "epoch_loss_streaming", group="validation", display_name="val_loss_streaming (nats/token)"
                ),
                hparams.Metric("epoch_loss", group="train", display_name="train loss (nats/token)"),
            ],
        )


def write_custom_scalars_layout(folder: str | pathlib.Path, categories: dict[str, dict[str, str]]):
    """Set up the Custom Scalars page of a folder of runs, unless it is set up already; each chart overlays all runs.

    Args:
        folder: Folder that contains the runs' folders.
        categories: By title of a category, a dict from titles of charts to tags.
    """
    if custom_scalars_metadata.CONFIG_SUMMARY_TAG in read_tags(folder):
        return
    layout = layout_pb2.Layout(
        category=[
            layout_pb2.Category(
                title=title,
                chart=[
                    layout_pb2.Chart(title=name, multiline=layout_pb2.MultilineChartContent(tag=[f"^{tag}$"]))
                    for name, tag in charts.items()
                ],
            )
            for title, charts in categories.items()
        ]
    )
    with tf.summary.create_file_writer(str(folder)).as_default():
        tf.summary.experimental.write_raw_pb(custom_scalars.pb(layout).SerializeToString(), step=0)
