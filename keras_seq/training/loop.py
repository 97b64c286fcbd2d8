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

from keras_seq.training import checkpoints, sealed_json
from keras_seq.training.alone import alone
from keras_seq.training.begun import check
from keras_seq.training.callbacks import Diverged, NumbersGuard, Validate
from keras_seq.training.checkpoints import CheckpointError
from keras_seq.training.events import take_back
from keras_seq.training.files import remove_leftovers, replacing
from keras_seq.training.measured import Measured
from keras_seq.training.progress import Progress
from keras_seq.training.record import Record
from keras_seq.training.settings import Train
from keras_seq.training.signals import StopAsked, StopRequest
from keras_seq.training.stops import Checkpoints, Interrupted
from keras_seq.training.tensorboard import TokenTensorBoard, points_of

MOST_ROLLBACKS = 3


def fit(
    folder,
    trainee,
    batches,
    tokens_per_step,
    total_steps,
    train: Train,
    measure,
    settings: dict,
    name="model",
    characters_per_token=None,
    looks=(),
    callbacks=(),
    final=None,
    final_times=1.0,
    hold=alone,
) -> tuple[Record, Measured]:
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
        check(folder, settings)
        remove_leftovers(folder)
        sealed_json.write(folder / "config.json", settings)
        run = _Run(folder, trainee, batches, tokens_per_step, total_steps, train, measure, name, looks, callbacks)
        run.final, run.final_times = final, final_times
        with run.stop.listening():
            found = run.to_the_end(settings, characters_per_token)
        run.stop_if_asked()  # here, so that no request is lost
        return found


@dataclasses.dataclass
class _Run:
    """What `fit` is given, and how often it has gone back."""

    folder: pathlib.Path
    trainee: keras.Model
    batches: Callable
    tokens_per_step: int
    total_steps: int
    train: Train
    measure: Callable
    name: str
    looks: tuple
    callbacks: tuple
    final: Callable | None = None
    final_times: float = 1.0
    rollbacks: int = 0
    stop: StopRequest = dataclasses.field(default_factory=StopRequest)

    def measure_all(self):
        return functools.reduce(operator.or_, (look() for look in self.looks), self.measure())

    def to_the_end(self, settings, characters_per_token):
        """Goes on, and back and on again where the training diverges."""
        fault = None
        while True:
            with contextlib.ExitStack() as afterwards:
                try:
                    return self.go_on(settings, characters_per_token, fault, afterwards)
                except Diverged as error:
                    if self.train.on_nan == "stop" or self.rollbacks == MOST_ROLLBACKS:
                        raise
                    fault = error

    def stop_if_asked(self):
        """Raises `Interrupted` where a stop was asked for; the step has its checkpoint."""
        if self.stop.number is not None:
            *_, newest = (None, *checkpoints.found(self.folder / "checkpoints"))
            raise Interrupted(newest, self.stop.number) if newest else KeyboardInterrupt(self.stop.number)

    def go_on(self, settings, characters_per_token, fault, afterwards):
        """From the newest checkpoint to the end; `fault` is what made it go back, if anything did."""
        train, last, tokens = self.train, self.total_steps, self.tokens_per_step
        first = checkpoints.load_newest(self.folder / "checkpoints", self.trainee)
        if first > last:
            raise CheckpointError(
                f"{self.folder} has {first:,} steps behind it: expected at least as many, not {last:,}."
            )
        checkpoints.prune(self.folder / "checkpoints", train.keep_checkpoints)  # a kill may have come before it
        board = TokenTensorBoard(self.folder)
        record = Record(self.folder / "metrics.jsonl", board, tokens, train.log_every, last, characters_per_token)
        curves, sizes = checkpoints.vouched_at(self.folder / "checkpoints", first)
        lines = record.go_on_from(first, curves)
        take_back(self.folder, first * tokens if first else -1, sizes, points_of(lines))
        self._halve(record, lines, first, fault)
        times = self.final_times if self.final is not None else 0.0
        progress = Progress(self.name, tokens, first, last, record, train.validate_every, times, characters_per_token)
        validate = Validate(self._shown(progress), record, train.validate_every, last, train.patience)
        validate.go_on_from(lines)
        saver = Checkpoints(self.folder / "checkpoints", train, last, record, validate, self.stop)
        board.set_model(self.trainee)
        for close in (board.on_train_end, progress.on_train_end):
            afterwards.callback(close)
        board.settings(_words_and_numbers(settings))
        if validate.missed(first, lines):
            self._make_up(first, record, validate, saver)
        if first and validate.best_step == first:  # a kill may have come before the copy
            checkpoints.keep_best(checkpoints.found(self.folder / "checkpoints")[-1])
        trains = first < last and not validate.exhausted
        if first and not trains:
            tqdm.write(f"{self.folder} has all its steps behind it; what is written after them is written again.")
        if trains:
            self._take_at_once(train.steps_at_once(first))
            self.trainee.fit(
                self.batches(first, last),
                shuffle=False,
                verbose=0,
                callbacks=[NumbersGuard(), record, validate, saver, progress, *self.callbacks],
            )
        return record, self._final_figures(validate, progress)

    def _shown(self, progress):
        """A validation that the bar shows, and that a stop cuts off."""

        def measure():
            with self.stop.interruptible():
                return progress.validation(self.measure_all)

        return measure

    def _make_up(self, step, record, validate, saver):
        """Does the validation of the checkpoint's step that a stop cut off, and what follows from it."""
        for callback in (record, validate, saver):
            callback.set_model(self.trainee)
        validate.at(step, {"loss": record.loss} if record.point == step else self.trainee.get_metrics_result())
        self.stop_if_asked()
        saver.save(step)  # again, for what is new; where the patience ended, an open interval was closed, too

    def _final_figures(self, validate, progress):
        if self.final is None and validate.latest is not None:
            return validate.latest
        try:
            with self.stop.interruptible():
                return progress.final_scores(self.final or self.measure_all)
        except StopAsked:
            self.stop_if_asked()

    def _take_at_once(self, steps):
        """Lets so many steps run without coming back to Python; Keras would go on with the function it has made."""
        if self.trainee.steps_per_execution != steps:
            self.trainee.steps_per_execution = steps
            self.trainee.make_train_function(force=True)

    def _halve(self, record, lines, first, fault):
        """Notes that the training went back, and halves the learning rate for every time that it did."""
        self.rollbacks = sum(line["split"] == "rollback" for line in lines)
        if fault is not None:
            self.rollbacks += 1
            factor = 0.5**self.rollbacks
            record.write(first, "rollback", {"diverged_at": fault.step, "rate_factor": factor, "told": str(fault)})
            record.flush()
            tqdm.write(f"{fault}\nGoing back to step {first:,}, with {factor:g} of the learning rate.")
        self.trainee.optimizer.rate_factor.assign(0.5**self.rollbacks)


def save_model(path, model):
    """Writes a model without optimizer and loss, so that whoever loads it needs no training code."""
    copy = type(model).from_config(model.get_config())
    if not copy.built:
        copy.build((None, None))
    copy.set_weights(model.get_weights())
    with replacing(path) as temporary:
        copy.save(temporary)


def _words_and_numbers(settings, prefix=""):
    """The leaves of nested settings under dotted names, without those that the HParams table cannot show."""
    leaves = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            leaves |= _words_and_numbers(value, f"{prefix}{name}.")
        elif isinstance(value, (bool, int, float, str)):
            leaves[f"{prefix}{name}"] = value
    return leaves
