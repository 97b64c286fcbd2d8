"""What the callbacks that look into a model share: when they look, and where what they find goes.

measure(model) -> Measured          in `training.run(looks=[...])`, part of every validation
callbacks=[AttentionMaps(..., log_dir="logs/mine")]          in anybody's `model.fit`
"""

import keras
import tensorflow as tf

from keras_seq import checks
from keras_seq.tracking.summaries import Summaries
from keras_seq.tracking.tensorboard import write_summaries


class Diagnostic(keras.callbacks.Callback):
    """The base. A subclass has `measure(model) -> Measured` and `lacking(model)`.

    Args:
        log_dir: the run's folder; needed in `fit`.
        every: steps between two looks; by default one look at the end of each epoch.
        tokens_per_step: what a step counts on the axis: that of `TokenTensorBoard`, or 1 for steps.
        model: what is looked at, where `fit` trains a model around it, as with `Carry`; by default the one that is fit.

    Raises:
        ValueError: a number that is no whole number of at least 1; in `fit`, there is no log_dir.
    """

    def __init__(self, log_dir=None, update_freq=None, tokens_per_step=1, model=None):
        super().__init__()
        for name, value in (("every", update_freq), ("tokens_per_step", tokens_per_step)):
            if value is not None:
                checks.positive_integer(f"{type(self).__name__}: {name}", value)
        self.log_dir, self.update_freq, self.tokens_per_step, self.inner = log_dir, update_freq, tokens_per_step, model

    def compute_summaries(self, model) -> Summaries:
        """What is found in a model as it is; nothing, where it has nothing of the kind."""
        raise NotImplementedError

    def missing_requirement(self, model) -> str | None:
        """What a model would need to have for something to be found, or None where it has it."""
        raise NotImplementedError

    def on_train_begin(self, logs=None):
        """Says so if there will be nothing to see."""
        name = type(self).__name__
        if self.log_dir is None:
            raise ValueError(f"{name}: log_dir=None; expected the run's folder, as nobody else writes what is found.")
        what = self.missing_requirement(self._looked_at)
        if what:
            print(f"{name} shows nothing of {self._looked_at.name}, which has no {what}.")
        self._writer = None if what else tf.summary.create_file_writer(str(self.log_dir))
        self._looked_after = self._step

    def on_train_batch_end(self, batch, logs=None):
        if self.update_freq is not None and self._step // self.update_freq > self._looked_after // self.update_freq:
            self._look()

    def on_epoch_end(self, epoch, logs=None):
        if self.update_freq is None:
            self._look()

    def on_train_end(self, logs=None):
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()

    @property
    def _step(self):
        return int(self.model.optimizer.iterations)

    @property
    def _looked_at(self):
        return self.model if self.inner is None else self.inner

    def _look(self):
        self._looked_after = self._step
        if self._writer is not None:
            write_summaries(self._writer, self._step * self.tokens_per_step, self.compute_summaries(self._looked_at))
