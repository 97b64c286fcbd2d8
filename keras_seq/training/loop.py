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

from keras_seq.kernels.devices import on_cpu
from keras_seq.layers.structure import loops
from keras_seq.training import checkpoints, sealed_json
from keras_seq.training.alone import alone
from keras_seq.training.begun import check
from keras_seq.training.callbacks import Diverged, NumbersGuard, Progress, Validate
from keras_seq.training.checkpoints import CheckpointError
from keras_seq.training.events import take_back
from keras_seq.training.files import remove_leftovers, replacing
from keras_seq.training.measured import Measured
from keras_seq.training.optimizers import OPTIMIZERS
from keras_seq.training.record import Record
from keras_seq.training.schedules import WarmupDecay
from keras_seq.training.settings import Train
from keras_seq.training.stops import Checkpoints
from keras_seq.training.tensorboard import TokenTensorBoard, points_of

MOST_ROLLBACKS = 3
# Weights times tokens of a step up to which a CPU is faster with the whole step compiled. Beyond, XLA's matmuls, slower
# than TensorFlow's, in bfloat16 by far, cost more than fusing small operations gives (JOURNAL.md).
MOST_AT_ONCE = {"float32": 10**10, "bfloat16": 10**9, "float16": 10**9}


@keras.saving.register_keras_serializable(package="keras_seq")
class _CrossEntropy(keras.losses.SparseCategoricalCrossentropy):
    """Keras's, also where a text has only one character: Keras's own would take logits `[B, T, 1]` for `[B, T]`."""

    def call(self, y_true, y_pred):
        return keras.ops.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)


def compile_for(trainee, train: Train, total_steps, loss=None, schedule=None, tokens_per_step=1000):
    """Compiles a model with the optimizer of `train`.

    Args:
        trainee: the model; its layers say what kind it is, and so which learning rate is the default.
        train: optimizer, learning rate and the like.
        total_steps: where the schedule ends.
        loss: a Keras loss; by default the cross-entropy of logits.
        schedule: from a step to a learning rate; by default the warm-up and decay of `train`.
        tokens_per_step: positions of a batch, roughly: which way to compile is the fastest depends on it.
    """
    peak = train.peak_learning_rate(trainee)
    trainee.compile(
        optimizer=OPTIMIZERS[train.optimizer](
            schedule or WarmupDecay(peak, total_steps, train.warmup_steps, train.final_fraction),
            **train.optimizer_options(trainee),
        ),
        auto_scale_loss=False,
        loss=loss or _CrossEntropy(from_logits=True),
        steps_per_execution=train.steps_per_execution,
        jit_compile=_one_program(trainee, train.precision, tokens_per_step),
    )
    trainee.optimizer.build(trainee.trainable_variables)


def _one_program(trainee, precision, tokens_per_step):
    """Whether XLA compiles a whole step, which fuses many small operations; else the kernels have it compile parts."""
    if loops(trainee):  # over positions, around which it costs more than it gives
        return False
    return not on_cpu() or trainee.count_params() * tokens_per_step <= MOST_AT_ONCE[precision]


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
    hold=alone,
) -> tuple[Record, Measured]:
    """Trains a compiled model to `total_steps`, from the newest checkpoint in `folder` if there is one.

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
        hold: gives the context in which the folder is this process's own; `contextlib.nullcontext` where the caller
            holds it already, because more is written there afterwards.

    Returns:
        The record, with the `seconds` spent, the last training `loss` and the last `step`, and what was measured at
        the end.

    Raises:
        Diverged: a loss or gradient became NaN or infinite, and once more after the last way back.
        Interrupted: Ctrl-C or SIGTERM; a checkpoint was written.
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
        fault = None
        while True:
            with contextlib.ExitStack() as afterwards:
                try:
                    return run.go_on(settings, characters_per_token, fault, afterwards)
                except Diverged as error:
                    if train.on_nan == "stop" or run.rollbacks == MOST_ROLLBACKS:
                        raise
                    fault = error


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
    rollbacks: int = 0

    def measure_all(self):
        return functools.reduce(operator.or_, (look() for look in self.looks), self.measure())

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
        validate = Validate(self.measure_all, record, train.validate_every, last, train.patience)
        validate.go_on_from(lines)
        saver = Checkpoints(self.folder / "checkpoints", train, last, record, validate)
        progress = Progress(self.name, tokens, first, last)
        board.set_model(self.trainee)
        for close in (board.on_train_end, saver.restore_handlers, progress.on_train_end):
            afterwards.callback(close)
        board.settings(_words_and_numbers(settings))
        if first and validate.best_step == first:  # a kill may have come before the copy
            checkpoints.keep_best(checkpoints.found(self.folder / "checkpoints")[-1])
        if first < last and not validate.exhausted:
            self._take_at_once(train.steps_at_once(first))
            self.trainee.fit(
                self.batches(first, last),
                shuffle=False,
                verbose=0,
                callbacks=[NumbersGuard(), record, validate, saver, progress, *self.callbacks],
            )
            saver.restore_handlers()  # first: from here on nobody looks whether a stop was asked for
            saver.stop_if_asked()
        return record, validate.latest or self.measure_all()

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
