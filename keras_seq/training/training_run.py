"""Train any model on any batches, with any validation, and leave a complete run folder.

    RUN/config.json  metrics.jsonl  checkpoints/  tokenizer.json  model.keras  result.json      and event files

`train_language_model` and every experiment stand on `train_model`; logs/README.md lists the files.
"""

import contextlib
import math
import pathlib
import weakref
from collections.abc import Callable, Sequence

import keras

from keras_seq.data import StatefulWindows
from keras_seq.data.windows import Windows
from keras_seq.layers import Stateful
from keras_seq.saving.keras_file import save_model
from keras_seq.tracking.summaries import Summaries
from keras_seq.training import checkpoints, processes
from keras_seq.training.compilation import compile_model
from keras_seq.training.config import TrainConfig
from keras_seq.training.environment import environment, versions
from keras_seq.training.gradient_guard import GradientGuard
from keras_seq.training.loop import fit_resumable
from keras_seq.training.loop_callbacks import TrainingDiverged
from keras_seq.training.option_effects import check_options
from keras_seq.training.result_files import describe_tokenizer, write_result
from keras_seq.training.run_lock import lock_run
from keras_seq.training.run_settings import model_name

_compiled_here = weakref.WeakSet()  # models that `train_model` compiled, and compiles anew for another training


def train_model(
    folder: str | pathlib.Path,
    model: keras.Model,
    dataset_fn: Callable,
    tokens_per_step: int,
    total_steps: int,
    train: TrainConfig,
    validate_fn: Callable[[], Summaries],
    config: dict,
    *,
    training_model: keras.Model | None = None,
    tokenizer=None,
    loss: keras.losses.Loss | None = None,
    schedule: keras.optimizers.schedules.LearningRateSchedule | None = None,
    characters_per_token: float | None = None,
    diagnostics: Sequence[Callable[[], Summaries]] = (),
    callbacks: Sequence[keras.callbacks.Callback] = (),
    final_validate_fn: Callable[[], Summaries] | None = None,
    final_duration_ratio: float = 1.0,
    finish: Callable[[Summaries], dict] | None = None,
) -> dict:
    """Train a model to `total_steps`, from the latest checkpoint in `folder` if there is one, and write its result.

    Args:
        folder: The run's folder; its name is that of the progress bar.
        model: The model to save.
        dataset_fn: As for `fit_resumable`, as are `tokens_per_step`, `total_steps`, `train`, `validate_fn`,
            `diagnostics`, `callbacks`, `final_validate_fn` and `final_duration_ratio`.
        tokens_per_step: Tokens of a batch.
        total_steps: Step at which training ends.
        train: Training config.
        validate_fn: Function without arguments that returns the `Summaries` of the current model.
        config: Contents of config.json; what else decides the result is added (`run_settings`), the tokenizer,
            versions and environment. What `validate_fn` scores it cannot know: name it, such as by a digest.
        training_model: What `fit` trains, if it is not the model itself (`fit_inputs`). It is compiled by
            `compile_model`, unless its user compiled it, with an optimizer of `keras_seq.training`.
        tokenizer: Saved as tokenizer.json; None for a model without one.
        loss: As for `compile_model`, as is `schedule`.
        schedule: Keras learning rate schedule.
        characters_per_token: Mean, for a curve in bits per character and the `train_loss_per_character` of the result;
            None for neither.
        diagnostics: Further functions like `validate_fn`.
        callbacks: Further callbacks for Keras's `fit`.
        final_validate_fn: Function like `validate_fn` for the result.
        final_duration_ratio: Duration of `final_validate_fn` relative to `validate_fn`.
        finish: Function from the final summaries to further entries of the result, called before it is written. It may
            write files into the folder.

    Returns:
        The contents of result.json: `parameters`, `train_tokens`, `train_seconds`, `other_seconds` (of validations,
        diagnostics, checkpoints and the final validation), `tokens_per_second`, `train_loss`, the ungrouped scalars and
        the texts of the final summaries, and what `finish` returns.

    Raises:
        ValueError: The model is compiled with another optimizer.
        OptionError: As `fit_resumable`.
        TrainingDiverged: As `fit_resumable`.
        TrainingInterrupted: As `fit_resumable`.
        CheckpointError: As `fit_resumable`.
        OSError: As `fit_resumable`.
        LostProcess: Of several processes, another one ended (processes.py).
    """
    folder, training_model = pathlib.Path(folder), model if training_model is None else training_model
    if not training_model.compiled or training_model in _compiled_here:
        compile_model(training_model, train, total_steps, loss, schedule, tokens_per_step)
        _compiled_here.add(training_model)
    else:
        _build_compiled(training_model, dataset_fn)
    check_options(training_model, train, total_steps)
    folder.mkdir(parents=True, exist_ok=True)
    with processes.noticing_loss(), lock_run(folder):
        logger, summaries = fit_resumable(
            folder,
            training_model,
            dataset_fn,
            tokens_per_step,
            total_steps,
            train,
            validate_fn,
            {
                "model": {"name": model_name(model)},
                **config,
                **({} if tokenizer is None else {"tokenizer": describe_tokenizer(tokenizer)}),
                "versions": versions(),
                "environment": environment(),
            },
            folder.name,
            characters_per_token,
            diagnostics,
            callbacks,
            final_validate_fn,
            final_duration_ratio,
            lock=contextlib.nullcontext,
        )
        if tokenizer is not None:
            tokenizer.save(folder / "tokenizer.json")
        save_model(folder / "model.keras", model)
        tokens = logger.step * tokens_per_step
        result = {
            "parameters": model.count_params(),
            "train_tokens": tokens,
            "train_seconds": logger.seconds,
            "other_seconds": logger.other_seconds,
            "tokens_per_second": tokens / logger.seconds,
            "train_loss": logger.loss,
            **({"train_loss_per_character": logger.loss / characters_per_token} if characters_per_token else {}),
            **{name: value for name, value in summaries.scalars.items() if "/" not in name},
            **summaries.texts,
            **({} if finish is None else finish(summaries)),
        }
        for name, value in result.items():
            if isinstance(value, float) and not math.isfinite(value):
                message = f"{name} is {value} at the end of {folder.name}: training has diverged; try a smaller "
                raise TrainingDiverged(message + "learning rate.", logger.step)
        write_result(folder, result)
        checkpoints.keep_last(folder / "checkpoints")
    return result


def _build_compiled(model, dataset_fn):
    """Build what `compile` leaves to the first step, the optimizer and metrics, which checkpoints have."""
    if not isinstance(model.optimizer, GradientGuard):
        name = type(model.optimizer).__name__
        raise ValueError(f"{model.name} is compiled with another {name}; expected one of keras_seq.training.")
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    model._symbolic_build(data_batch=next(iter(dataset_fn(0, 1))))


def fit_inputs(model: keras.Model, windows: Windows) -> tuple[keras.Model, Callable]:
    """Return what `fit` trains, and on which batches.

    Args:
        model: A `LanguageModel`.
        windows: The training batches.

    Returns:
        With `StatefulWindows`, if the state of the model has no length (a Transformer's has), a
        `stateful_training_model` and `windows.stateful_dataset`; else the model and `windows.dataset`.
    """
    if not isinstance(windows, StatefulWindows) or model.context_length is not None:
        return model, windows.dataset
    training_model = stateful_training_model(model, windows.batch_size, windows.sequence_length)
    return training_model, windows.stateful_dataset


def stateful_training_model(model: keras.Model, batch_size: int, sequence_length: int) -> keras.Model:
    """Return a model for `fit` that carries the state from batch to batch: `Stateful(model)`.

    Args:
        model: A `LanguageModel` whose state has no length.
        batch_size: Rows of a batch, B.
        sequence_length: Tokens of a window, T.

    Returns:
        A model of `((ids [B, T], reset_mask [B]), targets [B, T])` that shares the weights.
    """
    ids = keras.Input((sequence_length,), batch_size=batch_size, dtype="int32", name="ids")
    reset_mask = keras.Input((), batch_size=batch_size, dtype="bool", name="reset_mask")
    logits = Stateful(model, batch_size, name="stateful")(ids, reset_mask)
    return keras.Model([ids, reset_mask], logits, name=f"stateful_{model.name}")
