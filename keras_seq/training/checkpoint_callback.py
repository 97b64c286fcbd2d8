"""Checkpoints while a model trains: every so many steps or seconds, at the best validation, and before a stop.

A stop that is asked for (signals.py) lets the running steps end, writes a checkpoint and raises `Interrupted`. What a
checkpoint vouches for, the curves up to its step, is made durable before it is.
"""

import pathlib
import signal
import time

import keras

from keras_seq.training import checkpoints


class TrainingInterrupted(KeyboardInterrupt):
    """Training stopped on request; a checkpoint is written.

    Args:
        path: of the checkpoint.
        number: of the signal.
    """

    def __init__(self, path, number=signal.SIGINT):
        super().__init__(path, number)
        self.path, self.number = path, number


class CheckpointCallback(keras.callbacks.Callback):
    """Writes them.

    Args:
        folder: of the checkpoints; it is there.
        train: how often, and how many are kept.
        last: the last step.
        record: what has to be durable first.
        validate: the `Validate` that comes before this callback.
        stop: a `StopRequest`.
    """

    def __init__(self, folder, train, last, record, validate, stop):
        super().__init__()
        self.folder, self.train, self.last = pathlib.Path(folder), train, last
        self.record, self.validate, self.stop = record, validate, stop
        self._last_checkpoint = (None, time.monotonic())  # the last path, and when

    def on_train_begin(self, logs=None):
        if self._step == 0 and self.train.on_nan == "rollback":
            self.save(0)  # somewhere to go back to

    @property
    def _step(self):
        return int(self.model.optimizer.iterations)

    def on_train_batch_end(self, batch, logs=None):
        step, asked = self._step, self.stop.number is not None  # who asks from here on waits for the next step
        best = self.validate.best_step == step
        ends = step == self.last or self.model.stop_training or asked
        if step % self.train.checkpoint_every == 0 or best or ends or self._interval_elapsed():
            self.save(step)
            if best:
                checkpoints.save_best_copy(self._last_checkpoint[0])
        if asked:
            raise TrainingInterrupted(self._last_checkpoint[0], self.stop.number)

    def _interval_elapsed(self):
        seconds = self.train.checkpoint_every_seconds
        return seconds is not None and time.monotonic() - self._last_checkpoint[1] >= seconds

    def save(self, step):
        """Writes one."""
        self.record.flush()
        path = checkpoints.save(self.folder, self.model, self.train.max_checkpoints_to_keep)
        self._last_checkpoint = (path, time.monotonic())
