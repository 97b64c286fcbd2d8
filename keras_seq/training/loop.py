"""Train any compiled model in a loop that resumes exactly: batches are a function of the step.

    compile_model(training_model, train, total_steps, tokens_per_step=tokens_per_step)
    logger, summaries = fit_resumable(folder, training_model, windows.dataset, ...)    dataset_fn(start_step, stop_step)

`start_step` is 0, or the step of the latest checkpoint: a resumed run differs by its start step alone. On a CPU the
same seed gives the same bits on the same number of cores, in any process and with any number of pipeline threads. For
GPUs see docs/training.md.
"""

import contextlib
import dataclasses
import functools
import operator
import pathlib
from collections.abc import Callable, Sequence

import keras
from tqdm import tqdm

from keras_seq.evaluation.evaluator import sharing_losses
from keras_seq.evaluation.progress_bar import ProgressBar
from keras_seq.files import remove_leftovers
from keras_seq.stop_signals import StopRequest, StopRequested
from keras_seq.tracking.event_files import truncate_after
from keras_seq.tracking.layout import validation_key
from keras_seq.tracking.summaries import SAMPLE, Summaries
from keras_seq.tracking.tensorboard import curve_points
from keras_seq.tracking.tracker import import_tracker, open_tracker
from keras_seq.training import checkpoints, checksummed_json, processes
from keras_seq.training.checkpoint_callback import CheckpointCallback, TrainingInterrupted
from keras_seq.training.checkpoints import CheckpointError
from keras_seq.training.config import TrainConfig
from keras_seq.training.loop_callbacks import StepSeed, TerminateOnNonFinite, TrainingDiverged, ValidationCallback
from keras_seq.training.metrics_logger import MetricsLogger
from keras_seq.training.option_effects import OptionError, check_options, words_of_no_effect
from keras_seq.training.resume_check import check_resumable, flatten
from keras_seq.training.run_lock import lock_run
from keras_seq.training.run_settings import model_name, run_settings
from keras_seq.training.weight_average import averaged_weights

MAX_ROLLBACKS = 3


def fit_resumable(
    folder: str | pathlib.Path,
    training_model: keras.Model,
    dataset_fn: Callable,
    tokens_per_step: int,
    total_steps: int,
    train: TrainConfig,
    validate_fn: Callable[[], Summaries],
    config: dict,
    name: str = "model",
    characters_per_token: float | None = None,
    diagnostics: Sequence[Callable[[], Summaries]] = (),
    callbacks: Sequence[keras.callbacks.Callback] = (),
    final_validate_fn: Callable[[], Summaries] | None = None,
    final_duration_ratio: float = 1.0,
    lock: Callable = lock_run,
) -> tuple[MetricsLogger, Summaries]:
    """Train a compiled model to `total_steps`, from the latest checkpoint in `folder` if there is one.

    `validate_fn` scores the same data every time, so that the points of a curve compare, the last one included; the
    best checkpoint, the patience and the progress bar use it. If that is only a sample of the validation data,
    `final_validate_fn` scores all of it once, after the last step; its scalars are in no curve, and those of the curve
    are called `val_loss_sample`, ... .

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
        config: Contents of config.json, to which `run_settings` are added: a run is resumed with the same ones.
        name: Name of the run in the progress bar.
        characters_per_token: Mean, for the training curve in bits per character; None for no such curve.
        diagnostics: Further functions like `validate_fn`, whose summaries are added to its.
        callbacks: Further callbacks for Keras's `fit`.
        final_validate_fn: Function like `validate_fn` for the result; by default the last validation is used.
        final_duration_ratio: Duration of `final_validate_fn` relative to `validate_fn`, for the time remaining.
        lock: Function from the folder to a context manager that locks it; `contextlib.nullcontext` where the caller
            holds the lock, to write more files afterwards.

    Returns:
        The `MetricsLogger`, with `seconds` spent in steps, the `other_seconds`, the last training `loss` and the last
        `step`; and the final summaries.

    Raises:
        ValueError: If the package of the tracker is not installed.
        OptionError: If an option does not fit the model or the number of steps, or the model was trained before and
            not compiled anew.
        TrainingDiverged: If a loss or gradient was NaN or infinite and, with on_nan="rollback", all MAX_ROLLBACKS
            rollbacks were used.
        TrainingInterrupted: If a stop was requested (stop_signals.py), after a checkpoint is saved. A validation that
            was cut off is repeated on resume.
        CheckpointError: If the run in the folder has other settings or another config, or its files are corrupt.
        OSError: If a file cannot be written, or another process trains in the folder.
    """
    import_tracker(train.tracker)
    check_options(training_model, train, total_steps)
    folder = pathlib.Path(folder)
    if (step := int(training_model.optimizer.step)) and not checkpoints.has_checkpoints(folder / "checkpoints"):
        raise OptionError(f"{training_model.name} was trained for {step} steps; expected it newly compiled or built.")
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    settings = run_settings(training_model, dataset_fn, tokens_per_step, total_steps, train)
    if isinstance(config.get("train"), dict):  # what a model that is compiled has instead of the options of `train`
        settings["train"] = config["train"] | settings["train"]
    config = {"model": {"name": model_name(training_model)}, **config, **settings}
    with lock(folder):
        check_resumable(folder, config)
        remove_leftovers(folder)
        checksummed_json.write(folder / "config.json", config)
        run = _Run(
            folder,
            training_model,
            dataset_fn,
            tokens_per_step,
            total_steps,
            train,
            validate_fn,
            config,
            name,
            characters_per_token,
            diagnostics,
            callbacks,
            final_validate_fn,
            final_duration_ratio,
        )
        with run.stop.listening():
            logger, summaries = run.fit()
        run.raise_if_stopped()  # here, so that no request is lost
        return logger, summaries


@dataclasses.dataclass
class _Run:
    """Hold the arguments of `fit_resumable` and the number of rollbacks."""

    folder: pathlib.Path
    training_model: keras.Model
    dataset_fn: Callable
    tokens_per_step: int
    total_steps: int
    train: TrainConfig
    validate_fn: Callable
    config: dict
    name: str
    characters_per_token: float | None
    diagnostics: Sequence
    callbacks: Sequence
    final_validate_fn: Callable | None
    final_duration_ratio: float
    rollbacks: int = 0
    stop: StopRequest = dataclasses.field(default_factory=StopRequest)

    def validate_all(self, logger):
        """Return the summaries of the validation and all diagnostics; the logger times both."""
        with averaged_weights(self.training_model), sharing_losses():
            with logger.timing("validation"):
                summaries = self.validate_fn() if self.final_validate_fn is None else self.validate_fn().of_sample()
            with logger.timing("diagnostics"):
                return functools.reduce(operator.or_, (diagnostic() for diagnostic in self.diagnostics), summaries)

    def fit(self):
        """Train to the last step, with rollbacks."""
        divergence = None
        while True:
            with contextlib.ExitStack() as cleanup:
                try:
                    return self.run_from_checkpoint(divergence, cleanup)
                except TrainingDiverged as error:
                    if self.train.on_nan == "stop" or self.rollbacks == MAX_ROLLBACKS:
                        raise
                    divergence = error

    def raise_if_stopped(self):
        """Raise `TrainingInterrupted` if a stop was requested; the step has its checkpoint."""
        (signal_number,) = processes.largest(self.stop.signal_number or 0)
        if signal_number:
            *_, latest = (None, *checkpoints.list_checkpoints(self.folder / "checkpoints"))
            raise TrainingInterrupted(latest, signal_number) if latest else KeyboardInterrupt(signal_number)

    def run_from_checkpoint(self, divergence, cleanup):
        """Train from the latest checkpoint to the last step; `divergence` is the error that caused a rollback."""
        train, last_step, tokens = self.train, self.total_steps, self.tokens_per_step
        start_step = checkpoints.load_latest(self.folder / "checkpoints", self.training_model)
        processes.check_equal({"the step of the latest checkpoint": start_step})
        if start_step > last_step:
            raise CheckpointError(
                f"{self.folder} is at step {start_step:,}: expected at least as many steps, not {last_step:,}."
            )
        checkpoints.prune(self.folder / "checkpoints", train.max_checkpoints_to_keep)  # a kill may have prevented it
        tracker = open_tracker(train.tracker if processes.is_first() else "tensorboard", self.folder)
        tracker = cleanup.enter_context(tracker)
        logger = MetricsLogger(
            self.folder / "metrics.jsonl", tracker, tokens, train.log_every, last_step, self.characters_per_token
        )
        metrics, event_file_sizes = checkpoints.logs_at(self.folder / "checkpoints", start_step)
        lines = logger.resume_at(start_step, metrics)
        self._check_protocol(lines)
        truncate_after(self.folder, start_step * tokens if start_step else -1, event_file_sizes, curve_points(lines))
        self._apply_rollback(logger, lines, start_step, divergence)
        progress = ProgressBar(
            self.name,
            tokens,
            start_step,
            last_step,
            logger,
            train.validate_every,
            self.final_duration_ratio if self.final_validate_fn is not None else 0.0,
            self.characters_per_token,
        )
        validation = ValidationCallback(
            self._with_progress(progress, logger), logger, train.validate_every, last_step, train.patience
        )
        validation.restore_from(lines)
        saver = CheckpointCallback(self.folder / "checkpoints", train, last_step, logger, validation, self.stop)
        cleanup.callback(progress.on_train_end)
        settings = {name: part for name, part in self.config.items() if name != "architecture"}  # of hundreds of lines
        tracker.write_settings(flatten(settings), self.training_model)
        if validation.is_missing(start_step, lines):
            self._repeat_validation(start_step, logger, validation, saver)
        if start_step and validation.best_step == start_step:  # a kill may have prevented the copy
            checkpoints.save_best_copy(checkpoints.list_checkpoints(self.folder / "checkpoints")[-1])
        trains = start_step < last_step and not validation.out_of_patience
        if start_step and not trains:
            tqdm.write(f"{self.folder} has done all its steps; the files after training are written again.")
        if trains:
            for word in words_of_no_effect(self.training_model, train, last_step):
                tqdm.write(word)
            self._set_steps_per_execution(train.steps_per_execution_from(start_step))
            self.training_model.fit(
                self.dataset_fn(start_step, last_step),
                steps_per_epoch=last_step - start_step,
                shuffle=False,
                verbose=0,
                callbacks=[StepSeed(), TerminateOnNonFinite(), logger, validation, saver, progress, *self.callbacks],
            )
        self.training_model.optimizer.finalize_variable_values(self.training_model.trainable_variables)  # as `fit` does
        summaries = self._final_summaries(validation, progress, logger)
        scores = {f"result/{validation_key(k)}": v for k, v in summaries.scalars.items() if "/" not in k}
        tracker.record(logger.step * tokens, scores)
        return logger, summaries

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

    def _interruptible(self):
        """Return a block that a stop ends at once; several processes end it together, when it is done."""
        return self.stop.interruptible() if processes.count() == 1 else contextlib.nullcontext()

    def _with_progress(self, progress, logger):
        """Return a validation function that the bar shows and that a stop cuts off."""

        def validate():
            with self._interruptible():
                return progress.validation(functools.partial(self.validate_all, logger))

        return validate

    def _repeat_validation(self, step, logger, validation, saver):
        """Run the validation of the checkpoint's step that a stop cut off, and save the checkpoint again."""
        for callback in (logger, validation, saver):
            callback.set_model(self.training_model)
        at_point = logger.last_point == step
        logs = {"loss": logger.loss} if at_point else self.training_model.get_metrics_result()
        validation.on_interval(step, logs)
        self.raise_if_stopped()
        saver.save(step)  # with the new logs; if patience ran out, the partial logging interval is closed too

    def _final_summaries(self, validation, progress, logger):
        if self.final_validate_fn is None and validation.last_summaries is not None:
            return validation.last_summaries
        try:
            with self._interruptible():
                if self.final_validate_fn is None:
                    return progress.final_validation(functools.partial(self.validate_all, logger))
                with logger.timing("final_validation"):
                    return progress.final_validation(self.final_validate_fn)
        except StopRequested:
            self.raise_if_stopped()
            raise

    def _set_steps_per_execution(self, steps):
        """Set `steps_per_execution` and rebuild the train function, which Keras caches."""
        if self.training_model.steps_per_execution != steps:
            self.training_model.steps_per_execution = steps
            self.training_model.make_train_function(force=True)

    def _apply_rollback(self, logger, lines, step, divergence):
        """Log a rollback, if one happened, and halve the learning rate once for each so far."""
        self.rollbacks = sum(line["split"] == "rollback" for line in lines)
        if divergence is not None:
            self.rollbacks += 1
            lr_factor = 0.5**self.rollbacks
            logger.write(
                step,
                "rollback",
                {"diverged_at": divergence.step, "lr_factor": lr_factor, "message": str(divergence)},
            )
            logger.flush()
            tqdm.write(f"{divergence}\nRolling back to step {step:,}, with {lr_factor:g} of the learning rate.")
        self.training_model.optimizer.lr_factor.assign(0.5**self.rollbacks)
