"""What a run shows in TensorBoard, all of it over the tokens seen in training.

train/ and validation/   scalars by `keras.callbacks.TensorBoard`: epoch_loss and the rest, as any Keras run
                         writes them; an "epoch" is a logging interval here, and its number the tokens seen
the run's own folder     the losses once more, each under a name of its own, so that a chart can overlay the models;
                         texts, pictures, histograms, and the run's row in the HParams table

`write_table` and `write_layout` say for a folder of runs what the HParams and Custom Scalars pages show.
"""

import contextlib
import errno
import pathlib

import keras
import tensorflow as tf
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import metadata as custom_scalars_metadata
from tensorboard.plugins.custom_scalar import summary as custom_scalars
from tensorboard.plugins.hparams import api as hparams
from tensorboard.plugins.hparams import metadata

from keras_seq import checks
from keras_seq.tracking.event_files import tags

# With a capital, so that TensorBoard, which sorts by code point, shows them first.
OVERLAY_TAGS = {
    "loss": "Loss/training",
    "val_loss": "Loss/validation",
    "val_loss_streaming": "Loss/validation_streaming",
}


class TokenTensorBoard(keras.callbacks.TensorBoard):
    """`keras.callbacks.TensorBoard` with the tokens seen as its axis, plus texts, pictures and hyperparameters.

    ```python
    model.fit(x, y, batch_size=12, callbacks=[TokenTensorBoard("logs/mine", tokens_per_step=12 * 64)])
    ```

    Args:
        log_dir: the run's folder.
        tokens_per_step: tokens in a batch. Given, the logs of each epoch of `fit` are written at the optimizer's
            step times this; not given, only what `record` and `show` are told is written.
        **kwargs: as `keras.callbacks.TensorBoard` has them; what Keras writes by batch keeps Keras's axis.

    `record(tokens, logs)` writes a point: `val_...` goes to validation/, all else to train/, so that the losses
    of both stand in one chart.

    Raises:
        ValueError: tokens_per_step is no whole number of at least 1.
    """

    def __init__(self, log_dir, tokens_per_step=None, **kwargs):
        super().__init__(log_dir, **{"write_graph": False, **kwargs})
        if tokens_per_step is not None:
            checks.positive_integer("tokens_per_step", tokens_per_step)
        self.tokens_per_step = tokens_per_step
        self._own = None

    @property
    def own(self):
        """The writer of what belongs to the run as a whole."""
        if self._own is None:
            self._own = tf.summary.create_file_writer(str(self.log_dir))
        return self._own

    def on_epoch_end(self, epoch, logs=None):
        """A point of the curves, in somebody's own `fit`."""
        if self.tokens_per_step is not None:
            self.record(int(self.model.optimizer.iterations) * self.tokens_per_step, logs or {})

    def record(self, tokens, logs):
        """A point at `tokens`: a dict from names to numbers."""
        with self._told(), self.own.as_default():
            super().on_epoch_end(tokens, logs)
            for name, tag in OVERLAY_TAGS.items():
                if name in logs:
                    tf.summary.scalar(tag, logs[name], step=tokens)

    def show(self, tokens, summaries):
        """A `Measured`: its figures to validation/, those with a group and all else to the run's own folder."""
        plain = {name: value for name, value in summaries.scalars.items() if "/" not in name}
        self.record(tokens, {f"val_{name.removeprefix('val_')}": value for name, value in plain.items()})
        with self._told():
            write_summaries(self.own, tokens, summaries, without=plain)

    def flush(self):
        """Hands everything over to the system, where it outlives this process."""
        with self._told():
            for writer in (*self._writers.values(), self.own):
                writer.flush()

    @contextlib.contextmanager
    def _told(self):
        """A fault of TensorFlow's writers as that of a file."""
        try:
            yield
        except tf.errors.OpError as error:
            told = f"TensorBoard's files cannot be written ({error.message})"
            raise OSError(errno.EIO, told, str(self.log_dir)) from error

    def write_hparams(self, values):
        """The run's row in the HParams table: a dict from names to numbers and words."""
        with self._told(), self.own.as_default():
            # The run's name first: the table shows some fifteen letters.
            hparams.hparams(values, trial_id=" in ".join(reversed(pathlib.Path(self.log_dir).resolve().parts[-2:])))

    def on_train_end(self, logs=None):
        """Closes all files."""
        with self._told():
            super().on_train_end(logs)
            if self._own is not None:
                self._own.close()
                self._own = None


def write_summaries(writer, step, summaries, without=()):
    """Writes a `Measured`, but for the figures named by `without`; a text keeps its spaces and line breaks."""
    with writer.as_default():
        for name, value in summaries.scalars.items():
            if name not in without:
                tf.summary.scalar(name, value, step=step)
        for name, text in summaries.texts.items():
            tf.summary.text(name, "\n".join("    " + line for line in text.splitlines()), step=step)
        for name, picture in summaries.images.items():
            tf.summary.image(name, picture[None], step=step)
        for name, values in summaries.histograms.items():
            tf.summary.histogram(name, values, step=step)
        writer.flush()


def points_of(lines) -> dict[str, dict]:
    """The curves that the lines of a metrics.jsonl are in TensorBoard.

    Returns:
        By the folder in that of the run ("" for itself), points `{(tag, tokens): value}`.
    """
    own, train, validation = {}, {}, {}
    for line in lines:
        at = line["tokens"]
        if line["split"] == "train":
            own[OVERLAY_TAGS["loss"], at] = train["epoch_loss", at] = line["loss"]
            for name in ("gradient_norm", "tokens_per_second", "learning_rate"):
                train[f"epoch_{name}", at] = line[name]
        elif line["split"] == "validation":
            scalars = {name: value for name, value in line.items() if name not in ("step", "tokens", "split")}
            for name, value in scalars.items():
                if name in OVERLAY_TAGS:
                    own[OVERLAY_TAGS[name], at] = value
                if "/" in name:
                    own[name, at] = value
                else:
                    validation[f"epoch_{name.removeprefix('val_')}", at] = value
    return {"": own, "train": train, "validation": validation}


def write_hparams_config(folder, names):
    """Says once, for a folder of runs, which hyperparameters and final figures the HParams table shows."""
    if metadata.EXPERIMENT_TAG in tags(folder):
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


def write_custom_scalars_layout(folder, categories):
    """Says once, for a folder of runs, what the Custom Scalars page shows; each chart overlays all runs.

    Args:
        folder: the one around the runs.
        categories: a dict from titles to dicts from titles of charts to tags.
    """
    if custom_scalars_metadata.CONFIG_SUMMARY_TAG in tags(folder):
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
