"""What a run shows in TensorBoard, all of it over the tokens seen in training.

train/ and validation/   scalars by `keras.callbacks.TensorBoard`: epoch_loss and the rest, as any Keras run
                         writes them; an "epoch" is a logging interval here, and its number the tokens seen
the run's own folder     samples of text, and the run's row in the HParams table
"""

import pathlib

import keras
import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams

TAGS = {"nats_per_token": "loss", "warm_nats_per_token": "warm_loss"}  # in one chart with what Keras calls so


class TokenTensorBoard(keras.callbacks.TensorBoard):
    """`keras.callbacks.TensorBoard` with the tokens seen as its axis, plus texts and hyperparameters.

    Args:
        log_dir: the run's folder.

    `record(tokens, logs)` writes a point: `val_...` goes to validation/, all else to train/, so that the losses
    of both stand in one chart.
    """

    def __init__(self, log_dir, **kwargs):
        super().__init__(log_dir, write_graph=False, **kwargs)
        self._texts = None

    @property
    def texts(self):
        """The writer of what belongs to the run as a whole."""
        if self._texts is None:
            self._texts = tf.summary.create_file_writer(str(self.log_dir))
        return self._texts

    def on_epoch_end(self, epoch, logs=None):
        """Keras's own epochs say nothing here: `record` does."""

    def record(self, tokens, logs):
        """A point at `tokens`: a dict from names to numbers."""
        super().on_epoch_end(tokens, logs)

    def show(self, tokens, measured):
        """A `Measured`: its figures to validation/; texts, every space and line break kept, and pictures."""
        self.record(tokens, {f"val_{TAGS.get(name, name)}": value for name, value in measured.figures.items()})
        with self.texts.as_default():
            for name, text in measured.texts.items():
                tf.summary.text(name, "\n".join("    " + line for line in text.splitlines()), step=tokens)
            for name, picture in measured.pictures.items():
                tf.summary.image(name, picture[None], step=tokens)
            self.texts.flush()

    def settings(self, values):
        """The run's row in the HParams table: a dict from names to numbers and words."""
        with self.texts.as_default():
            hparams.hparams(values, trial_id="/".join(pathlib.Path(self.log_dir).resolve().parts[-2:]))

    def on_train_end(self, logs=None):
        """Closes all files."""
        super().on_train_end(logs)
        if self._texts is not None:
            self._texts.close()
            self._texts = None


def write_table(folder, names):
    """Says once, for a folder of runs, which hyperparameters and final figures the HParams table shows."""
    with tf.summary.create_file_writer(str(folder)).as_default():
        hparams.hparams_config(
            hparams=[hparams.HParam(name) for name in names],
            metrics=[
                hparams.Metric("epoch_loss", group="validation", display_name="validation, cold (nats)"),
                hparams.Metric("epoch_warm_loss", group="validation", display_name="validation, warm (nats)"),
                hparams.Metric("epoch_loss", group="train", display_name="training (nats)"),
            ],
        )
