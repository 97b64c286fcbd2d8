"""One loop for every model: `fit` over batches that are a function of the step, with our callbacks.

    compile_for(trainee, train, total_steps, tokens_per_step=tokens_per_step)
    record, measured = fit(folder, trainee, windows.dataset, ...)        batches(first, last)

`first` is 0, or the step of the newest checkpoint: going on is another `first` and nothing else. On a CPU the same
seed gives the same bits on the same number of cores, in any process and with any number of pipeline threads. What
breaks that on a GPU: docs/training.md.
"""

import contextlib
import dataclasses
import functools
import operator
import pathlib
from collections.abc import Callable

import keras
from tqdm import tqdm

from keras_seq.atomic_files import remove_leftovers
from keras_seq.evaluation.progress_bar import ProgressBar
from keras_seq.tracking.event_files import truncate_after
from keras_seq.tracking.summaries import Summaries
from keras_seq.tracking.tensorboard import TokenTensorBoard, points_of
from keras_seq.training import checkpoints, checksummed_json
from keras_seq.training.checkpoint_callback import CheckpointCallback, TrainingInterrupted
from keras_seq.training.checkpoints import CheckpointError
from keras_seq.training.config import TrainConfig
from keras_seq.training.loop_callbacks import TerminateOnNonFinite, TrainingDiverged, ValidationCallback
from keras_seq.training.metrics_logger import MetricsLogger
from keras_seq.training.resume_check import check_resumable
from keras_seq.training.run_lock import lock_run
from keras_seq.training.stop_signals import StopAsked, StopRequest

MAX_ROLLBACKS = 3


def fit_resumable(
    folder,
    training_model,
    batches,
    tokens_per_step,
    total_steps,
    train: TrainConfig,
    measure,
    settings: dict,
    name="model",
    characters_per_token=None,
    diagnostics=(),
    callbacks=(),
    final=None,
    final_times=1.0,
    hold=lock_run,
) -> tuple[MetricsLogger, Summaries]:
    """Trains a compiled model to `total_steps`, from the newest checkpoint in `folder` if there is one.

    A validation measures the same every time, so that the points of a curve compare, the last one too; the best
    checkpoint, the patience and the bar follow these points. Where that is only a part of what is to be scored,
    `final` scores all of it, once, after the last step; no curve has these figures.

    Args:
        folder: the run's folder; logs/README.md says what is written there.
        trainee: the model, compiled by `compile_for`.
        batches: a function of two steps, `first` and `last`, that gives the `tf.data.Dataset` of the batches between.
        tokens_per_step: what a step counts on the axis of all curves.
        total_steps: the step to end at.
        train: how often to log, validate and write a checkpoint.
        measure: a function without arguments that gives a `Measured` of the model as it is.
        settings: what config.json says of the run.
        name: what the progress bar calls the run.
        characters_per_token: for the bits per character of the training curve, where it makes sense.
        looks: further functions like `measure`; what they give is added to it.
        callbacks: further ones for Keras's `fit`.
        final: a function like `measure` for the final figures; by default they are those of the last validation.
        final_times: how many times as much as `measure` it scores; for the time left.
        hold: gives the context in which the folder is this process's own; `contextlib.nullcontext` where the caller
            holds it already, because more is written there afterwards.

    Returns:
        The record, with the `seconds` spent, the last training `loss` and the last `step`, and the final figures.

    Raises:
        Diverged: a loss or gradient became NaN or infinite, and once more after the last way back.
        Interrupted: a stop was asked for, see signals.py; a checkpoint was written. A validation that was cut off is
            done when the run goes on, before its next step.
        CheckpointError: the run in the folder was begun otherwise, or its files are damaged.
        OSError: a file cannot be written, or another process trains in the folder.
    """
    folder = pathlib.Path(folder)
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    with hold(folder):
        check_resumable(folder, settings)
        remove_leftovers(folder)
        checksummed_json.write(folder / "config.json", settings)
        run = _Run(
            folder, training_model, batches, tokens_per_step, total_steps, train, measure, name, diagnostics, callbacks
        )
        run.final, run.final_times = final, final_times
        with run.stop.listening():
            found = run.to_the_end(settings, characters_per_token)
        run.raise_if_stopped()  # here, so that no request is lost
        return found


@dataclasses.dataclass
class _Run:
    """What `fit` is given, and how often it has gone back."""

    folder: pathlib.Path
    training_model: keras.Model
    batches: Callable
    tokens_per_step: int
    total_steps: int
    train: TrainConfig
    measure: Callable
    name: str
    diagnostics: tuple
    callbacks: tuple
    final: Callable | None = None
    final_times: float = 1.0
    rollbacks: int = 0
    stop: StopRequest = dataclasses.field(default_factory=StopRequest)

    def validate_all(self):
        return functools.reduce(
            operator.or_, (diagnostic() for diagnostic in self.diagnostics), self.compute_summaries()
        )

    def to_the_end(self, settings, characters_per_token):
        """Goes on, and back and on again where the training diverges."""
        fault = None
        while True:
            with contextlib.ExitStack() as afterwards:
                try:
                    return self.run_from_checkpoint(settings, characters_per_token, fault, afterwards)
                except TrainingDiverged as error:
                    if self.train.on_nan == "stop" or self.rollbacks == MAX_ROLLBACKS:
                        raise
                    fault = error

    def raise_if_stopped(self):
        """Raises `Interrupted` where a stop was asked for; the step has its checkpoint."""
        if self.stop.number is not None:
            *_, newest = (None, *checkpoints.list_checkpoints(self.folder / "checkpoints"))
            raise TrainingInterrupted(newest, self.stop.number) if newest else KeyboardInterrupt(self.stop.number)

    def run_from_checkpoint(self, settings, characters_per_token, fault, afterwards):
        """From the newest checkpoint to the end; `fault` is what made it go back, if anything did."""
        train, last, tokens = self.train, self.total_steps, self.tokens_per_step
        first = checkpoints.load_newest(self.folder / "checkpoints", self.training_model)
        if first > last:
            raise CheckpointError(
                f"{self.folder} has {first:,} steps behind it: expected at least as many, not {last:,}."
            )
        checkpoints.prune(self.folder / "checkpoints", train.max_checkpoints_to_keep)  # a kill may have come before it
        board = TokenTensorBoard(self.folder)
        record = MetricsLogger(
            self.folder / "metrics.jsonl", board, tokens, train.log_every, last, characters_per_token
        )
        curves, sizes = checkpoints.vouched_at(self.folder / "checkpoints", first)
        lines = record.resume_at(first, curves)
        truncate_after(self.folder, first * tokens if first else -1, sizes, points_of(lines))
        self._halve(record, lines, first, fault)
        times = self.final_times if self.final is not None else 0.0
        progress = ProgressBar(
            self.name, tokens, first, last, record, train.validate_every, times, characters_per_token
        )
        validate = ValidationCallback(self._shown(progress), record, train.validate_every, last, train.patience)
        validate.resume_at(lines)
        saver = CheckpointCallback(self.folder / "checkpoints", train, last, record, validate, self.stop)
        board.set_model(self.training_model)
        for close in (board.on_train_end, progress.on_train_end):
            afterwards.callback(close)
        board.write_hparams(_words_and_numbers(settings))
        if validate.missed(first, lines):
            self._make_up(first, record, validate, saver)
        if first and validate.best_step == first:  # a kill may have come before the copy
            checkpoints.save_best_copy(checkpoints.list_checkpoints(self.folder / "checkpoints")[-1])
        trains = first < last and not validate.out_of_patience
        if first and not trains:
            tqdm.write(f"{self.folder} has all its steps behind it; what is written after them is written again.")
        if trains:
            self._set_steps_per_execution(train.steps_per_execution_from(first))
            self.training_model.fit(
                self.batches(first, last),
                shuffle=False,
                verbose=0,
                callbacks=[TerminateOnNonFinite(), record, validate, saver, progress, *self.callbacks],
            )
        return record, self._final_figures(validate, progress)

    def _shown(self, progress):
        """A validation that the bar shows, and that a stop cuts off."""

        def measure():
            with self.stop.interruptible():
                return progress.validation(self.validate_all)

        return measure

    def _make_up(self, step, record, validate, saver):
        """Does the validation of the checkpoint's step that a stop cut off, and what follows from it."""
        for callback in (record, validate, saver):
            callback.set_model(self.training_model)
        validate.at(step, {"loss": record.loss} if record.point == step else self.training_model.get_metrics_result())
        self.raise_if_stopped()
        saver.save(step)  # again, for what is new; where the patience ended, an open interval was closed, too

    def _final_figures(self, validate, progress):
        if self.final is None and validate.last_summaries is not None:
            return validate.last_summaries
        try:
            with self.stop.interruptible():
                return progress.final_scores(self.final or self.validate_all)
        except StopAsked:
            self.raise_if_stopped()

    def _set_steps_per_execution(self, steps):
        """Lets so many steps run without coming back to Python; Keras would go on with the function it has made."""
        if self.training_model.steps_per_execution != steps:
            self.training_model.steps_per_execution = steps
            self.training_model.make_train_function(force=True)

    def _halve(self, record, lines, first, fault):
        """Notes that the training went back, and halves the learning rate for every time that it did."""
        self.rollbacks = sum(line["split"] == "rollback" for line in lines)
        if fault is not None:
            self.rollbacks += 1
            factor = 0.5**self.rollbacks
            record.write(first, "rollback", {"diverged_at": fault.step, "lr_factor": factor, "told": str(fault)})
            record.flush()
            tqdm.write(f"{fault}\nGoing back to step {first:,}, with {factor:g} of the learning rate.")
        self.training_model.optimizer.lr_factor.assign(0.5**self.rollbacks)


def _words_and_numbers(settings, prefix=""):
    """The leaves of nested settings under dotted names, without those that the HParams table cannot show."""
    leaves = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            leaves |= _words_and_numbers(value, f"{prefix}{name}.")
        elif isinstance(value, (bool, int, float, str)):
            leaves[f"{prefix}{name}"] = value
    return leaves
