"""Define callbacks that act at intervals of steps. All of them read the step from the optimizer."""

import math
from collections.abc import Callable

import keras
from tqdm import tqdm

from keras_seq.ops.dispatch import seed_dropout
from keras_seq.stop_signals import StopRequested
from keras_seq.tracking.summaries import Summaries, scored_key

SEED_STATE = "seed_generator_state"  # Keras's name of the variable that seeds a layer


class TrainingDiverged(RuntimeError):
    """Report a loss or gradient that is NaN or infinite.

    Args:
        message: Sentence that says which one.
        step: First such step, from 0.
    """

    def __init__(self, message: str, step: int | None = None):
        super().__init__(message)
        self.step = step


class StepSeed(keras.callbacks.Callback):
    """Make dropout a function of the step on torch too, so that a run that goes on drops what it would have dropped."""

    def on_train_begin(self, logs=None):
        """Read the first numbers of the model's seeds, which are in its checkpoints and never change."""
        needed = keras.backend.backend() == "torch"  # other backends draw from these variables
        states = [v for v in self.model.variables if needed and v.name == SEED_STATE]
        self._seeds = tuple(int(keras.ops.convert_to_numpy(state)[0]) for state in states)

    def on_train_batch_begin(self, batch, logs=None):
        """Seed the draws of this step."""
        if self._seeds:
            seed_dropout(hash((*self._seeds, int(self.model.optimizer.step))))


class EveryNSteps(keras.callbacks.Callback):
    """Call `on_interval(step, logs)` at each multiple of `every` and at the last step.

    Args:
        every: Interval in steps.
        last_step: Last step of the training.
    """

    def __init__(self, every: int, last_step: int):
        super().__init__()
        self.every = every
        self.last_step = last_step

    def is_due(self, step: int) -> bool:
        """Return whether a step ends an interval."""
        return step % self.every == 0 or step == self.last_step

    def on_train_batch_end(self, batch, logs=None):
        """Call `on_interval` if the optimizer's step ends an interval."""
        step = int(self.model.optimizer.step)
        if self.is_due(step):
            self.on_interval(step, logs)


class TerminateOnNonFinite(keras.callbacks.Callback):
    """Raise `TrainingDiverged` at the first loss or gradient that is NaN or infinite.

    The optimizer has skipped every step since, those of the same execution included.

    Raises:
        TrainingDiverged: From `fit`, with the step and the variable.
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

    A validation that a stop cuts off (`StopRequested`) writes nothing. `last_summaries` is the result of the last
    validation, None if it was cut off; `best_step` is the step of the best one, None before the first.

    Args:
        validate_fn: Function without arguments that returns `Summaries`.
        logger: `MetricsLogger` that the scalars are written to.
        every: Interval in steps.
        last_step: Last step of the training.
        patience: Validations without a new best `val_loss`, of a sample or of all data, after which training ends; None
            never ends it.
    """

    def __init__(
        self,
        validate_fn: Callable[[], Summaries],
        logger: EveryNSteps,
        every: int,
        last_step: int,
        patience: int | None = None,
    ):
        super().__init__(every, last_step)
        self.validate_fn, self.logger, self.patience = validate_fn, logger, patience
        self.last_summaries, self.best, self.best_step, self.wait = None, math.inf, None, 0

    def restore_from(self, lines: list[dict]):
        """Restore the best loss and the wait from the lines of metrics.jsonl."""
        for line in lines:
            if line["split"] == "validation":
                self._update_best(line["step"], _loss(line))

    def is_missing(self, step: int, lines: list[dict]) -> bool:
        """Return whether the validation of a step was cut off by a stop.

        Args:
            step: Step of a checkpoint.
            lines: Lines of metrics.jsonl up to it.
        """
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
        """Validate, and write scalars, texts and images.

        Args:
            step: Current step.
            logs: Keras's logs, with the training `loss`.
        """
        loss = float(logs["loss"])
        self.last_summaries = None
        try:
            self.last_summaries = self.validate_fn()
        except StopRequested:  # `CheckpointCallback`, which comes next, saves and raises
            return
        tokens = step * self.logger.tokens_per_step
        self.logger.write(step, "validation", self.last_summaries.scalars)
        with self.logger.timing("diagnostics"):
            self.logger.tracker.write(tokens, self.last_summaries)
        tqdm.write(f"{tokens:>12,} tokens   train loss {loss:.3f}   {self.last_summaries.format_scalars()}")
        self._update_best(step, _loss(self.last_summaries.scalars))
        if self.out_of_patience and step < self.last_step:
            best = "none was finite" if self.best_step is None else f"the best was at step {self.best_step:,}"
            tqdm.write(f"No better validation loss in {self.wait} validations: {best}.")
            self.logger.on_interval(step, logs)
            self.model.stop_training = True


def _loss(scalars):
    return scalars.get(scored_key("val_loss", scalars), math.inf)
