"""What happens between the steps. Each callback reads the step from the optimizer, which is the only clock."""

import math

import keras
from tqdm import tqdm

from keras_seq.training.stop_signals import StopAsked


class TrainingDiverged(RuntimeError):
    """A loss or gradient that is no longer a number.

    Args:
        told: a sentence that says what it was.
        step: the first such, from 0.
    """

    def __init__(self, told, step=None):
        super().__init__(told)
        self.step = step


class EveryNSteps(keras.callbacks.Callback):
    """Calls `at(step, logs)` whenever the step has reached a multiple of `every`, and at the last step."""

    def __init__(self, every, last):
        super().__init__()
        self.every = every
        self.last = last

    def due(self, step) -> bool:
        """Whether something happens at a step."""
        return step % self.every == 0 or step == self.last

    def on_train_batch_end(self, batch, logs=None):
        step = int(self.model.optimizer.iterations)
        if self.due(step):
            self.at(step, logs)


class TerminateOnNonFinite(keras.callbacks.Callback):
    """Stops at the first loss or gradient that is not a number, and names its step and which it was.

    The optimizer has made no step since, not even of those that ran in the same execution.
    """

    def on_train_batch_end(self, batch, logs=None):
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
    """Measures the model every so many steps and at the last one; `latest` is what was measured last.

    A validation that a stop cuts off (`StopAsked`) leaves no trace: nothing is written before all of it is measured.

    Args:
        measure: a function without arguments that gives a `Measured`.
        record: where its figures go.
        every, last: steps.
        patience: how many validations may pass without a new best `nats_per_token` before training ends; None for any.

    `best_step` is the step of the best one, None before the first.
    """

    def __init__(self, measure, record, every, last, patience=None):
        super().__init__(every, last)
        self.compute_summaries, self.record, self.patience = measure, record, patience
        self.last_summaries, self.best, self.best_step, self.wait = None, math.inf, None, 0

    def resume_at(self, lines):
        """Takes up the best so far from the lines of metrics.jsonl."""
        for line in lines:
            if line["split"] == "validation":
                self._count(line["step"], line.get("val_loss", math.inf))

    def missed(self, step, lines) -> bool:
        """Whether the validation of a step was due, and is not in the lines of metrics.jsonl: a stop cut it off."""
        return step > 0 and self.due(step) and (step, "validation") not in {(x["step"], x["split"]) for x in lines}

    def _count(self, step, nats):
        if nats < self.best:
            self.best, self.best_step, self.wait = nats, step, 0
        else:
            self.wait += 1

    @property
    def out_of_patience(self):
        """Whether the patience is."""
        return self.patience is not None and self.wait >= self.patience

    def at(self, step, logs):
        """Writes the figures, the texts and the pictures."""
        loss = float(logs["loss"])
        self.last_summaries = None
        try:
            self.last_summaries = self.compute_summaries()
        except StopAsked:  # `Checkpoints`, which comes next, sees to it
            return
        self.record.write(step, "validation", self.last_summaries.scalars)
        self.record.board.write(step * self.record.tokens_per_step, self.last_summaries)
        tokens = step * self.record.tokens_per_step
        tqdm.write(f"{tokens:>12,} tokens   train {loss:.3f} | {self.last_summaries.line}")
        self._count(step, self.last_summaries.scalars.get("val_loss", math.inf))
        if self.out_of_patience and step < self.last:
            best = "none was a number" if self.best_step is None else f"the best is that of step {self.best_step:,}"
            tqdm.write(f"No better validation for {self.wait} times: {best}.")
            self.record.at(step, logs)
            self.model.stop_training = True
