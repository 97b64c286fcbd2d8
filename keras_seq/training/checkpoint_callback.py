"""Save checkpoints during training: at step or time intervals, on a new best validation loss, and before a stop.

A requested stop (stop_signals.py) waits for the running steps, saves a checkpoint and raises `TrainingInterrupted`.
Metrics up to the checkpoint's step are fsynced before the checkpoint is written.
"""

import pathlib
import signal
import time

import keras

from keras_seq.stop_signals import StopRequest
from keras_seq.training import checkpoints, processes
from keras_seq.training.config import TrainConfig
from keras_seq.training.loop_callbacks import ValidationCallback
from keras_seq.training.metrics_logger import MetricsLogger


class TrainingInterrupted(KeyboardInterrupt):
    """Signal that training stopped on request, after a checkpoint was saved.

    Args:
        path: Path of the checkpoint.
        signal_number: Signal that requested the stop.
    """

    def __init__(self, path: str | pathlib.Path, signal_number: int = signal.SIGINT):
        super().__init__(path, signal_number)
        self.path, self.signal_number = path, signal_number


class CheckpointCallback(keras.callbacks.Callback):
    """Save checkpoints periodically, on a new best validation loss, and before a requested stop.

    Args:
        folder: Existing folder of the checkpoints.
        train: Training config: the intervals, and how many checkpoints to keep.
        last_step: Last step of the training.
        logger: `MetricsLogger`, flushed before each checkpoint.
        validation: `ValidationCallback` that runs before this callback.
        stop: `StopRequest` to obey.

    Raises:
        TrainingInterrupted: From `fit`, when a stop was requested and the checkpoint is saved.
        OSError: From `fit`, when a checkpoint cannot be written.
    """

    def __init__(
        self,
        folder: str | pathlib.Path,
        train: TrainConfig,
        last_step: int,
        logger: MetricsLogger,
        validation: ValidationCallback,
        stop: StopRequest,
    ):
        super().__init__()
        self.folder, self.train, self.last_step = pathlib.Path(folder), train, last_step
        self.logger, self.validation, self.stop = logger, validation, stop
        self._last_checkpoint = (None, time.monotonic())  # path and time of the last checkpoint

    def on_train_begin(self, logs=None):
        """Save step 0 where a rollback may need it."""
        if self._step == 0 and self.train.on_nan == "rollback":
            self.save(0)

    @property
    def _step(self):
        return int(self.model.optimizer.step)

    def on_train_batch_end(self, batch, logs=None):
        """Save if a checkpoint is due; raise `TrainingInterrupted` if a stop was requested."""
        # the request is read once: one that arrives from here on takes effect after the next step
        step = self._step
        stop_signal, elapsed = processes.largest(self.stop.signal_number or 0, self._interval_elapsed())
        best = self.validation.best_step == step
        ends = step == self.last_step or self.model.stop_training or stop_signal
        if step % self.train.checkpoint_every == 0 or best or ends or elapsed:
            self.save(step)
            if best:
                checkpoints.save_best_copy(self._last_checkpoint[0])
        if stop_signal:
            raise TrainingInterrupted(self._last_checkpoint[0], stop_signal)

    def _interval_elapsed(self):
        seconds = self.train.checkpoint_every_seconds
        return seconds is not None and time.monotonic() - self._last_checkpoint[1] >= seconds

    def save(self, step: int):
        """Flush the logs and save a checkpoint of the current step."""
        with self.logger.timing("checkpoints"):
            self.logger.flush()
            path = checkpoints.save(self.folder, self.model, self.train.max_checkpoints_to_keep)
        self._last_checkpoint = (path, time.monotonic())
