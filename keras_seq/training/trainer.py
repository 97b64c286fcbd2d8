"""Train any model in a loop that resumes exactly: batches are a function of the step.

    train_model(folder, model, windows.dataset, ...)     compile the model, train it and leave a complete run folder:
                                                         config.json metrics.jsonl checkpoints/ tokenizer.json
                                                         model.keras result.json and event files (logs/README.md)
    fit_resumable(folder, training_model, ...)           only train a model that is compiled

Both make a `Trainer` and call its `fit`. It starts at step 0 or at the step of the latest checkpoint, and a resumed run
differs by its start step alone. On a CPU the same seed gives the same bits on the same number of cores, in any process
and with any number of pipeline threads. For GPUs see docs/training.md. What a resumed run has from where:

    batches, learning rate         functions of the step: data/windows.py, optimizers.py
    weights, moments, states,      the checkpoint's variables, sums of the open logging interval among them:
    seeds of dropout               checkpoints.py, log.py; on torch seeds are functions of the step: callbacks.py
    points of the curves           the checkpoint's metrics.jsonl (log.py); of it best loss, patience (callbacks.py)
    settings                       config.json, refused if they differ: run_config.py
"""

import contextlib
import dataclasses
import functools
import math
import operator
import pathlib
import weakref
from collections.abc import Callable, Sequence

import keras
from tqdm import tqdm

from keras_seq.evaluation.evaluator import sharing_losses
from keras_seq.files import StopRequest, StopRequested, remove_leftovers
from keras_seq.saving.keras_file import save_model
from keras_seq.tracking.summaries import SAMPLE, Summaries
from keras_seq.tracking.tensorboard import validation_key
from keras_seq.tracking.tracker import ProgressBar, import_tracker, open_tracker, scoring_bar
from keras_seq.training import checkpoints, distributed
from keras_seq.training.callbacks import (
    CheckpointCallback,
    EarlyStopCallback,
    StepSeed,
    TerminateOnNonFinite,
    TrainingDiverged,
    TrainingInterrupted,
    ValidationCallback,
    averaged_weights,
)
from keras_seq.training.checkpoints import CheckpointError
from keras_seq.training.config import OptionError, TrainConfig, check_options, words_of_no_effect
from keras_seq.training.guard import GradientGuard
from keras_seq.training.log import METRICS, MetricsLogger
from keras_seq.training.optimizers import compile_model
from keras_seq.training.run_config import check_resumable, environment, flatten, model_name, run_settings, versions
from keras_seq.training.run_folder import describe_tokenizer, lock_run, write_checksummed, write_result

MAX_ROLLBACKS = 3
_compiled_here = weakref.WeakSet()  # optimizers of models that `train_model` compiled, and compiles anew the next time


@dataclasses.dataclass
class Trainer:
    """Train a compiled model to `total_steps`, from the latest checkpoint in `folder` if there is one.

    `validate_fn` scores the same data every time, so that the points of a curve compare, the last one included. The
    best checkpoint and the patience depend on it. If that is only a sample of the validation data, `final_validate_fn`
    scores all of it once, after the last step. Its scalars are in no curve; those of the curve are called
    `val_loss_sample`, ... .

    Args:
        folder: The run's folder; logs/README.md lists its files.
        training_model: The model, compiled by `compile_model`.
        dataset_fn: Function `(start_step, stop_step)` that returns the batches of these steps, the stop excluded, in
            any form that `fit` takes: a `tf.data.Dataset`, a `keras.utils.PyDataset`, a torch `DataLoader`, an
            iterator of arrays.
        tokens_per_step: Tokens of a batch; the axis of all curves is the step times this.
        total_steps: Step at which training ends.
        train: Training config: intervals of logs, validations and checkpoints.
        validate_fn: Function without arguments that returns the `Summaries` of the current model.
        config: Contents of config.json. `run_settings` are added: a run is resumed with the same ones.
        characters_per_token: Mean, for the training curve in bits per character; None for no such curve.
        diagnostics: Further functions like `validate_fn`, whose summaries are added to its.
        callbacks: Further callbacks for Keras's `fit`.
        final_validate_fn: Function like `validate_fn` for the result; by default the last validation is used.

    Raises:
        ValueError: If the package of the tracker is not installed.
        OptionError: If an option does not fit the model or the number of steps, or the model was trained before and
            not compiled anew.
    """

    folder: pathlib.Path
    training_model: keras.Model
    dataset_fn: Callable
    tokens_per_step: int
    total_steps: int
    train: TrainConfig
    validate_fn: Callable[[], Summaries]
    config: dict = dataclasses.field(default_factory=dict)
    characters_per_token: float | None = None
    diagnostics: Sequence[Callable[[], Summaries]] = ()
    callbacks: Sequence[keras.callbacks.Callback] = ()
    final_validate_fn: Callable[[], Summaries] | None = None

    def __post_init__(self):
        """Refuse what cannot be meant before anything is written."""
        self.folder = pathlib.Path(self.folder)
        self.checkpoint_folder = self.folder / "checkpoints"
        self.stop, self.rollbacks = StopRequest(), 0
        import_tracker(self.train.tracker)
        check_options(self.training_model, self.train, self.total_steps)
        name, step = self.training_model.name, int(self.training_model.optimizer.step)
        if step and not checkpoints.has_checkpoints(self.checkpoint_folder):
            raise OptionError(f"{name} was trained for {step} steps; expected it newly compiled or built.")

    def fit(self) -> tuple[MetricsLogger, Summaries]:
        """Train to the last step, with rollbacks; the caller holds the lock of the folder (`lock_run`).

        Returns:
            The `MetricsLogger`, with `seconds` spent in steps, the `other_seconds`, the last training `loss` and the
            last `step`; and the final summaries.

        Raises:
            TrainingDiverged: If a loss or gradient was NaN or infinite and, with on_nan="rollback", all MAX_ROLLBACKS
                rollbacks were used.
            TrainingInterrupted: If a stop was requested (files.py), after a checkpoint is saved. A validation
                that was cut off is repeated on resume.
            CheckpointError: If the run in the folder has other settings or another config, or its files are corrupt.
            OSError: If a file cannot be written, or another process trains in the folder.
        """
        self.checkpoint_folder.mkdir(parents=True, exist_ok=True)
        self.config = self._whole_config()
        check_resumable(self.folder, self.config)
        if (self.folder / "model.keras").exists() and not checkpoints.has_checkpoints(self.checkpoint_folder):
            expected = "the checkpoints that were there, or another folder"
            raise CheckpointError(f"{self.folder} has a model, and no checkpoint to go on from; expected {expected}.")
        remove_leftovers(self.folder)
        write_checksummed(self.folder / "config.json", self.config)
        ended, divergence = None, None
        with self.stop.listening():
            while ended is None:
                with contextlib.ExitStack() as cleanup:
                    try:
                        ended = self._fit_from_checkpoint(divergence, cleanup)
                    except TrainingDiverged as error:  # inside, as a tracker's run has not failed after a rollback
                        if self.train.on_nan == "stop" or self.rollbacks == MAX_ROLLBACKS:
                            raise
                        divergence = error
        self._raise_if_stopped()  # here, so that no request is lost
        return ended

    def _whole_config(self):
        """Return the config with the settings that decide the result."""
        model, train = self.training_model, self.train
        settings = run_settings(model, self.dataset_fn, self.tokens_per_step, self.total_steps, train)
        if isinstance(self.config.get("train"), dict):  # what a compiled model has instead of the options of `train`
            settings["train"] = self.config["train"] | settings["train"]
        return {"model": {"name": model_name(model)}, **self.config, **settings}

    def _fit_from_checkpoint(self, divergence, cleanup):
        """Train from the latest checkpoint to the last step; `divergence` is the error that caused a rollback."""
        model, train, last_step = self.training_model, self.train, self.total_steps

        # The step to go on from, and the logs as they were at this step.
        start_step = checkpoints.load_latest(self.checkpoint_folder, model)
        distributed.check_equal({"the step of the latest checkpoint": start_step})
        if start_step > last_step:
            raise CheckpointError(f"{self.folder} is at step {start_step:,}; expected at most {last_step:,}, the last.")
        checkpoints.prune(self.checkpoint_folder, train.max_checkpoints_to_keep)  # a kill may have prevented it
        tracker_name = train.tracker if distributed.is_first() else "tensorboard"
        tracker = cleanup.enter_context(open_tracker(tracker_name, self.folder, start_step * self.tokens_per_step))
        logger = MetricsLogger(
            self.folder / METRICS, tracker, self.tokens_per_step, train.log_every, last_step, self.characters_per_token
        )
        lines = logger.resume_at(start_step, checkpoints.metrics_at(self.checkpoint_folder, start_step))
        self._check_protocol(lines)
        self._apply_rollback(logger, lines, start_step, divergence)

        # What happens every N steps.
        validate = functools.partial(self._validate, logger)
        validation = ValidationCallback(validate, logger, train.validate_every, last_step, train.patience)
        validation.restore_from(lines)
        saver = CheckpointCallback(self.checkpoint_folder, train, last_step, logger, validation, self.stop)
        progress = ProgressBar(self.folder.name, self.tokens_per_step, start_step, last_step)
        cleanup.callback(progress.on_train_end)
        tracker.write_settings(flatten(self.config | {"architecture": {}}), model)  # which has hundreds of lines

        # What a stop or a kill kept the checkpoint's step from.
        if validation.is_missing(start_step, lines):
            self._repeat_validation(start_step, logger, validation, saver)
        if start_step and validation.best_step == start_step:
            checkpoints.save_best_copy(checkpoints.list_checkpoints(self.checkpoint_folder)[-1])

        # The steps.
        if start_step < last_step and distributed.is_first():
            (self.folder / "result.json").unlink(missing_ok=True)  # of the steps so far
        if start_step < last_step and not validation.out_of_patience:
            own = StepSeed(), TerminateOnNonFinite(), logger, validation, saver, progress
            for word in words_of_no_effect(model, train, last_step):
                tqdm.write(word)
            if (steps_per_execution := train.steps_per_execution_from(start_step)) != model.steps_per_execution:
                model.steps_per_execution = steps_per_execution
                model.make_train_function(force=True)  # Keras caches it
            model.fit(
                self.dataset_fn(start_step, last_step),
                steps_per_epoch=last_step - start_step,
                shuffle=False,
                verbose=0,
                callbacks=[*own, *self.callbacks, EarlyStopCallback(logger, validation, saver)],
            )
        elif start_step:
            ended = "has run out of patience" if start_step < last_step else "has done all its steps"
            tqdm.write(f"{self.folder} {ended}; the files after training are written again.")

        model.optimizer.finalize_variable_values(model.trainable_variables)  # as `fit` does
        summaries = self._final_summaries(validation, logger)
        scores = {f"result/{validation_key(k)}": v for k, v in summaries.scalars.items() if "/" not in k}
        tracker.record(logger.step * self.tokens_per_step, scores)
        return logger, summaries

    def _validate(self, logger):
        """Return the summaries of the validation and of all diagnostics; a stop cuts them off (`StopRequested`)."""
        with averaged_weights(self.training_model), self._interruptible(), scoring_bar("validating"), sharing_losses():
            with logger.timing("validation"):
                summaries = self.validate_fn() if self.final_validate_fn is None else self.validate_fn().of_sample()
            with logger.timing("diagnostics"):
                return functools.reduce(operator.or_, (diagnostic() for diagnostic in self.diagnostics), summaries)

    def _final_summaries(self, validation, logger):
        """Return the summaries of the result: the last validation, or all of the data where that was a sample."""
        if self.final_validate_fn is None and validation.last_summaries is not None:
            return validation.last_summaries
        try:
            if self.final_validate_fn is None:
                return self._validate(logger)
            with logger.timing("final_validation"), self._interruptible(), scoring_bar("scoring"):
                return self.final_validate_fn()
        except StopRequested:
            self._raise_if_stopped()
            raise

    def _repeat_validation(self, step, logger, validation, saver):
        """Run the validation of the checkpoint's step that a stop cut off, and save the checkpoint again."""
        for callback in (logger, validation, saver):
            callback.set_model(self.training_model)
        at_point = logger.last_point == step
        logs = {"loss": logger.loss} if at_point else self.training_model.get_metrics_result()
        validation.on_interval(step, logs)
        self._raise_if_stopped()
        saver.save(step)  # with the new logs; if patience ran out, the partial logging interval is closed too

    def _check_protocol(self, lines):
        """Refuse a run whose validations scored another part of the data: their losses would be in one curve."""
        key, other = "val_loss", f"val_loss{SAMPLE}"
        if self.final_validate_fn is not None:
            key, other = other, key
        if any(line["split"] == "validation" and other in line for line in lines):
            raise CheckpointError(
                f"{self.folder} was validated by {other}, and would go on with {key}, of another part of the "
                "validation data: start a new run, or resume it with the version and the options that began it."
            )

    def _apply_rollback(self, logger, lines, step, divergence):
        """Log a rollback, if one happened, and halve the learning rate once for each so far."""
        self.rollbacks = sum(line["split"] == "rollback" for line in lines)
        if divergence is not None:
            self.rollbacks += 1
            lr_factor, message = 0.5**self.rollbacks, str(divergence)
            entry = {"diverged_at": divergence.step, "lr_factor": lr_factor, "message": message}
            logger.write(step, "rollback", entry)
            logger.flush()
            tqdm.write(f"{message}\nRolling back to step {step:,}, with {lr_factor:g} of the learning rate.")
        self.training_model.optimizer.lr_factor.assign(0.5**self.rollbacks)

    def _interruptible(self):
        """Return a block that a stop ends at once; several processes end it together, when it is done."""
        return self.stop.interruptible() if distributed.count() == 1 else contextlib.nullcontext()

    def _raise_if_stopped(self):
        """Raise `TrainingInterrupted` if a stop was requested; the step has its checkpoint."""
        (signal_number,) = distributed.largest(self.stop.signal_number or 0)
        if signal_number:
            *_, latest = (None, *checkpoints.list_checkpoints(self.checkpoint_folder))
            raise TrainingInterrupted(latest, signal_number) if latest else KeyboardInterrupt(signal_number)


def fit_resumable(*args, **fields) -> tuple[MetricsLogger, Summaries]:
    """Train a compiled model to `total_steps`, from the latest checkpoint in `folder` if there is one.

    The arguments are the fields of `Trainer`, in its order or by name: `folder, training_model, dataset_fn,
    tokens_per_step, total_steps, train, validate_fn, config, ...`. It returns what `Trainer.fit` does, the logger and
    the final summaries, and raises what `Trainer` and its `fit` raise.
    """
    trainer = Trainer(*args, **fields)
    trainer.folder.mkdir(parents=True, exist_ok=True)
    with lock_run(trainer.folder):
        return trainer.fit()


def train_model(
    folder: str | pathlib.Path,
    model: keras.Model,
    dataset_fn: Callable,
    tokens_per_step: int,
    total_steps: int,
    train: TrainConfig,
    validate_fn: Callable[[], Summaries],
    config: dict | None = None,
    *,
    training_model: keras.Model | None = None,
    tokenizer=None,
    loss: keras.losses.Loss | None = None,
    schedule: keras.optimizers.schedules.LearningRateSchedule | None = None,
    finish: Callable[[Summaries], dict] | None = None,
    **options,
) -> dict:
    """Train a model to `total_steps`, from the latest checkpoint in `folder` if there is one, and write its result.

    Args:
        folder: The run's folder.
        model: The model to save.
        dataset_fn: Function `(start_step, stop_step)` that returns the batches of these steps.
        tokens_per_step: Tokens of a batch.
        total_steps: Step at which training ends.
        train: Training config.
        validate_fn: Function without arguments that returns the `Summaries` of the current model.
        config: Contents of config.json. What else decides the result is added, but for what `validate_fn` scores: name
            it, by a digest for example.
        training_model: What `fit` trains, if it is not the model itself (`fit_inputs`). It is compiled by
            `compile_model`, unless its user compiled it, with an optimizer of `keras_seq.training`.
        tokenizer: Saved as tokenizer.json; None for a model without one.
        loss: Keras loss; by default the cross-entropy of logits.
        schedule: Keras learning rate schedule; by default the warm-up and decay of `train`.
        finish: Function from the final summaries to further entries of the result. It may write files into the folder.
        **options: Further fields of `Trainer`. With `characters_per_token` the result has `train_loss_per_character`.

    Returns:
        The contents of result.json: `parameters`, `train_tokens`, `train_seconds`, `other_seconds` (of validations,
        diagnostics, checkpoints and the final validation), `tokens_per_second`, `train_loss`, the ungrouped scalars and
        the texts of the final summaries, and what `finish` returns.

    Raises:
        ValueError: `loss`, `schedule` or another optimizer with a compiled model; or as `Trainer` and its `fit`.
        TrainingDiverged: A number of the result is not finite; or as `Trainer.fit`.
        LostProcess: Of several processes, another one ended (distributed.py).
    """
    folder, training_model = pathlib.Path(folder), model if training_model is None else training_model
    if not training_model.compiled or training_model.optimizer in _compiled_here:
        compile_model(training_model, train, total_steps, loss, schedule, tokens_per_step)
        _compiled_here.add(training_model.optimizer)
    elif loss is not None or schedule is not None:
        raise ValueError(f"{training_model.name} is compiled; expected its loss and schedule in `compile_model`.")
    else:
        _build_compiled(training_model, dataset_fn)
    described = {} if tokenizer is None else {"tokenizer": describe_tokenizer(tokenizer)}
    config = {"model": {"name": model_name(model)}, **(config or {}), **described}
    config |= {"versions": versions(), "environment": environment()}
    trainer = Trainer(
        folder, training_model, dataset_fn, tokens_per_step, total_steps, train, validate_fn, config, **options
    )
    folder.mkdir(parents=True, exist_ok=True)
    with distributed.noticing_loss(), lock_run(folder):
        logger, summaries = trainer.fit()
        if tokenizer is not None:
            tokenizer.save(folder / "tokenizer.json")
        save_model(model, folder / "model.keras")
        tokens, characters = logger.step * tokens_per_step, trainer.characters_per_token
        result = {
            "parameters": model.count_params(),
            "train_tokens": tokens,
            "train_seconds": logger.seconds,
            "other_seconds": logger.other_seconds,
            "tokens_per_second": tokens / logger.seconds,
            "train_loss": logger.loss,
            **({"train_loss_per_character": logger.loss / characters} if characters else {}),
            **{name: value for name, value in summaries.scalars.items() if "/" not in name},
            **summaries.texts,
            **({} if finish is None else finish(summaries)),
        }
        for name, value in result.items():
            if isinstance(value, float) and not math.isfinite(value):
                what = f"{name}={value} at the end of {folder.name}"
                raise TrainingDiverged(f"{what}: training has diverged; try a smaller learning rate.", logger.step)
        write_result(folder, result)
        checkpoints.keep_last(trainer.checkpoint_folder)
    return result


def _build_compiled(model, dataset_fn):
    """Build the optimizer and metrics, as checkpoints have them and `compile` leaves them to the first step."""
    if not isinstance(model.optimizer, GradientGuard):
        name = type(model.optimizer).__name__
        raise ValueError(f"{model.name} is compiled with another {name}; expected one of keras_seq.training.")
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(next(iter(dataset_fn(0, 1))))
    y_pred = model(x, training=False)
    model.compute_loss(x, y, y_pred, sample_weight, training=False)
    model.compute_metrics(x, y, y_pred, sample_weight)
    model.reset_metrics()
