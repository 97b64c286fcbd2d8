"""Act during `fit`: seed dropout, stop where a number is not finite, validate, save checkpoints, average weights.

All callbacks read the step from the optimizer. They run in this order, the logger (log.py) before the validation: a
checkpoint has the lines of its step.
"""

import contextlib
import math
import pathlib
import signal
import time
from collections.abc import Callable, Iterator

import keras
from tqdm import tqdm

from keras_seq.evaluation.streaming import restored
from keras_seq.files import StopRequest, StopRequested
from keras_seq.ops.dispatch import seed_dropout
from keras_seq.tokenizers.base import show_whitespace
from keras_seq.tracking.summaries import Summaries, scored_key
from keras_seq.training import checkpoints, distributed
from keras_seq.training.config import TrainConfig
from keras_seq.training.log import EveryNSteps, MetricsLogger

EXCERPT = 80  # characters of a sample on the terminal
SEED_STATE = "seed_generator_state"  # Keras's name of the variable that seeds a layer


class TrainingDiverged(RuntimeError):
    """Report a loss or gradient that is NaN or infinite; `step` is the first such step, from 0."""

    def __init__(self, message: str, step: int | None = None):
        super().__init__(message)
        self.step = step


class TrainingInterrupted(KeyboardInterrupt):
    """Signal that training stopped at the request of a signal, after a checkpoint was saved to `path`."""

    def __init__(self, path: str | pathlib.Path, signal_number: int = signal.SIGINT):
        super().__init__(path, signal_number)
        self.path, self.signal_number = path, signal_number

    def __str__(self) -> str:
        """Return what happened and how to go on."""
        return f"Stopped. A checkpoint is in {self.path}; the same call goes on from there."


class StepSeed(keras.callbacks.Callback):
    """Make dropout a function of the step on torch too, so that a resumed run drops what it would have dropped."""

    def on_train_begin(self, logs=None):
        """Read the first numbers of the model's seeds, which are in its checkpoints and never change."""
        needed = keras.backend.backend() == "torch"  # other backends draw from these variables
        states = [v for v in self.model.variables if needed and v.name == SEED_STATE]
        self._seeds = tuple(int(keras.ops.convert_to_numpy(state)[0]) for state in states)

    def on_train_batch_begin(self, batch, logs=None):
        """Seed the draws of this step."""
        if self._seeds:
            seed_dropout(hash((*self._seeds, int(self.model.optimizer.step))))


class TerminateOnNonFinite(keras.callbacks.Callback):
    """Raise `TrainingDiverged` at the first loss or gradient that is NaN or infinite.

    The optimizer has skipped every step since, those of the same execution included.
    """

    def on_train_batch_end(self, batch, logs=None):
        """Raise if the optimizer recorded a step that is not finite."""
        optimizer = self.model.optimizer
        step = int(optimizer.first_nonfinite_step)
        if step >= 0:
            raise TrainingDiverged(
                f"{optimizer.describe_nonfinite()} of step {step} is not a number: training has diverged. Checkpoints "
                "from before it are kept; try a smaller --train.learning-rate, a longer --train.warmup-steps, "
                "--train.precision float32 or --train.on-nan rollback.",
                step,
            )


class ValidationCallback(EveryNSteps):
    """Validate at intervals and at the last step; log the summaries and stop when patience runs out.

    A validation that a stop cuts off (`StopRequested`) writes nothing. `last_summaries` is the result of the last one,
    None if it was cut off. `best_step` is the step of the best one, None before the first.
    """

    def __init__(
        self,
        validate_fn: Callable[[], Summaries],
        logger: MetricsLogger,
        every: int,
        last_step: int,
        patience: int | None = None,
    ):
        super().__init__(every, last_step)
        self.validate_fn, self.logger, self.patience = validate_fn, logger, patience
        self.last_summaries, self.best, self.best_step, self.wait = None, math.inf, None, 0
        self.step = None  # of the last one

    def restore_from(self, lines: list[dict]):
        """Restore the best loss and the wait from the lines of metrics.jsonl."""
        for line in lines:
            if line["split"] == "validation":
                self._update_best(line["step"], _loss(line))

    def is_missing(self, step: int, lines: list[dict]) -> bool:
        """Return whether a stop cut off the validation of a checkpoint's step: the lines up to it have none."""
        logged = {(line["step"], line["split"]) for line in lines}
        return step > 0 and self.is_due(step) and (step, "validation") not in logged

    def _update_best(self, step, loss):
        if loss < self.best:
            self.best, self.best_step, self.wait = loss, step, 0
        else:
            self.wait += 1

    @property
    def out_of_patience(self) -> bool:
        """Return whether training ends because no validation improved for `patience` times."""
        return self.patience is not None and self.wait >= self.patience

    def on_interval(self, step: int, logs: dict):
        """Validate, and write scalars, texts and images."""
        loss = float(logs["loss"])
        self.last_summaries, self.step = None, step
        try:
            with restored(self.model.metrics_variables):  # in which `evaluate` counts from zero
                self.last_summaries = self.validate_fn()
        except StopRequested:  # `CheckpointCallback`, which comes next, saves and raises
            return
        tokens = step * self.logger.tokens_per_step
        self.logger.write(step, "validation", self.last_summaries.scalars)
        with self.logger.timing("diagnostics"):
            self.logger.tracker.write(tokens, self.last_summaries)
        tqdm.write(f"{tokens:>12,} tokens   train loss {loss:.3f}   {self.last_summaries.format_scalars()}")
        if sample := self.last_summaries.texts.get("sample", "").strip():  # in one line, with its spaces as they are
            tqdm.write(f"{'':>14}{' '.join(map(show_whitespace, sample[:EXCERPT].split(' ')))}")
        self._update_best(step, _loss(self.last_summaries.scalars))
        if self.out_of_patience and step < self.last_step:
            best = "none was finite" if self.best_step is None else f"the best was at step {self.best_step:,}"
            tqdm.write(f"No better validation loss in {self.wait} validations: {best}.")
            self.logger.on_interval(step, logs)
            self.model.stop_training = True


def _loss(scalars):
    return scalars.get(scored_key("val_loss", scalars), math.inf)


class CheckpointCallback(keras.callbacks.Callback):
    """Save checkpoints at step or time intervals, on a new best validation loss, and before a requested stop.

    The logger is flushed before each. A stop (files.py) waits for the running steps, and raises
    `TrainingInterrupted` when the checkpoint is saved.
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
        self.step = None  # of it

    def on_train_begin(self, logs=None):
        """Save step 0 where a rollback may need it."""
        if int(self.model.optimizer.step) == 0 and self.train.on_nan == "rollback":
            self.save(0)

    def on_train_batch_end(self, batch, logs=None):
        """Save if a checkpoint is due; raise `TrainingInterrupted` if a stop was requested."""
        # the request is read once: one that arrives from here on takes effect after the next step
        step, stop_signal = int(self.model.optimizer.step), self.stop.signal_number or 0
        seconds = self.train.checkpoint_every_seconds
        elapsed = seconds is not None and time.monotonic() - self._last_checkpoint[1] >= seconds
        stop_signal, elapsed = distributed.largest(stop_signal, elapsed)
        best = self.validation.best_step == step
        ends = step == self.last_step or self.model.stop_training or stop_signal
        if step % self.train.checkpoint_every == 0 or best or ends or elapsed:
            self.save(step)
        if stop_signal:
            raise TrainingInterrupted(self._last_checkpoint[0], stop_signal)

    def save(self, step: int):
        """Flush the logs and save a checkpoint of the current step, and its copy if it is the best."""
        with self.logger.timing("checkpoints"):
            self.logger.flush()
            path = checkpoints.save(self.folder, self.model, self.train.max_checkpoints_to_keep)
        self._last_checkpoint, self.step = (path, time.monotonic()), step
        if step and self.validation.best_step == step:
            checkpoints.save_best_copy(path)


class EarlyStopCallback(keras.callbacks.Callback):
    """Log, validate and save the step at which a callback of the user's, all of which come before, stops the run."""

    def __init__(self, logger: MetricsLogger, validation: ValidationCallback, saver: CheckpointCallback):
        super().__init__()
        self.logger, self.validation, self.saver = logger, validation, saver

    def on_train_batch_end(self, batch, logs=None):
        """Do what was not due at this step: all has been done at the last one, and where patience ran out."""
        step = int(self.model.optimizer.step)
        if not self.model.stop_training or self.logger.last_point == self.validation.step == self.saver.step == step:
            return
        self.logger.on_interval(step, logs)
        if self.validation.step != step:
            self.validation.on_interval(step, logs)
        self.saver.save(step)


@contextlib.contextmanager
def averaged_weights(training_model: keras.Model) -> Iterator[None]:
    """Replace the weights by Keras's moving average (`use_ema`) in a `with` block, if the optimizer keeps one.

    average <- ema_momentum average + (1 - ema_momentum) weight      after each update; after the first one, the weight
    """
    optimizer, variables = training_model.optimizer, training_model.trainable_variables
    with restored(variables if optimizer.use_ema else ()):
        optimizer.finalize_variable_values(variables)
        yield
