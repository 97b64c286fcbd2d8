"""Train a model on a text and leave a run folder: `keras_seq.train`, of which `keras-seq train` is the command.

Without `minutes` the training has a number of tokens. With them, the time of a step is measured first, by a model that
is thrown away; the number of steps is then in config.json, so that a resumed run is the same one.
"""

import contextlib
import dataclasses
import inspect
import os
import pathlib
import statistics
import time
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from keras_seq import callbacks as keras_seq_callbacks
from keras_seq import checks, training
from keras_seq.data import PackedDocuments, StatefulWindows, TokenFiles
from keras_seq.data.pipeline import StepBatches
from keras_seq.evaluation.streaming import sample_windows
from keras_seq.models import LANGUAGE_MODELS, MODELS
from keras_seq.models.counts import flops_per_token
from keras_seq.ops.dispatch import clear_session
from keras_seq.reports import plots
from keras_seq.runs.folders import corpus_label, is_run, run_config, timestamped_folder
from keras_seq.runs.run import Run
from keras_seq.runs.texts import TokenMixture, random_windows, split_corpus
from keras_seq.training.checkpoints import list_checkpoints
from keras_seq.training.language_model import text_and_ids
from keras_seq.training.run_config import model_name, read_config

NUM_WINDOWS = 16  # for attention maps and gate saturation
TIMED_STEPS, TIMED_EXECUTIONS = 32, 7  # at least, after the execution that compiles
SECONDS_PER_VALIDATION = 15  # of training, in a run of minutes
TOKENS = 1_536_000
MAX_PATH = 1000  # characters
DEFAULT_TRAIN = training.TrainConfig(optimizer="normuon", use_ema=True, validation_characters=32_768)  # scores use all


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """Hold what `train` was asked for, as config.json has it."""

    texts: Any
    model: str
    minutes: float | None
    tokens: int
    batch_size: int
    sequence_length: int
    seed: int
    train: training.TrainConfig


def train(
    texts: str | os.PathLike[str] | Sequence[str],
    model: str | Any | keras.Model = "lstm",
    *,
    minutes: float | None = None,
    tokens: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    batch_size: int = 12,
    sequence_length: int = 64,
    seed: int = 0,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    **options: Any,
) -> Run:
    """Train a language model on a text, or go on with the run in `folder`; return the finished run.

    The last tenth of the text is validation text, the characters of the whole are the tokens. Recurrent models read
    stateful windows if all of the text is read and fills a batch, else random ones, as models with attention do. The
    same call on the same folder resumes, one with more tokens trains it further, and one with other settings is
    refused. Keras's random seeds are set, and its session is cleared.

    Args:
        texts: As `keras_seq.data.load_corpus` takes it: "docstrings", "pydoc", "source" or "shakespeare"; a UTF-8 file,
            a folder of *.txt files, a pattern, or several; or folders of `keras-seq prepare`.
        model: Name of a model (`keras_seq.models.LANGUAGE_MODELS`); its config, such as `models.LSTMConfig(units=64)`;
            or a causal `keras.Model` from ids `[B, T]` to logits `[B, T, V]`, V being the characters of the text.
            `load_run` loads only layers of keras_seq.
        minutes: About how long to train; None trains on `tokens`.
        tokens: Training tokens, over one or more epochs; 1,536,000 unless given, or `minutes`.
        folder: Folder of the run; by default a new one, logs/train/UTC-TIME-TEXT-MODEL.
        batch_size: B, windows of a step.
        sequence_length: T, tokens of a window.
        seed: Random seed of weights, batches and dropout.
        callbacks: Further callbacks for Keras's `fit`.
        **options: Fields of `keras_seq.training.TrainConfig`, such as `learning_rate=0.01`. The optimizer is NorMuon,
            with averaged weights, unless they say otherwise.

    Returns:
        The run: `run.generate("A ")`, `run.score("A text.")`, `run.result`, `run.folder`.

    Raises:
        TypeError: There is no such argument.
        ValueError: An argument is out of its range, the text cannot be read or is too short, or the run in `folder`
            has other settings.
        TrainingDiverged: As `keras_seq.training.train_language_model`, as are further exceptions.
    """
    if minutes is not None and tokens is not None:
        raise ValueError(f"minutes={minutes} and tokens={tokens}; expected one of them.")
    tokens = TOKENS if tokens is None else tokens
    for name, value in (("tokens", tokens), ("batch_size", batch_size), ("sequence_length", sequence_length)):
        checks.positive_integer(name, value)
    checks.integer("seed", seed, 0, 2**32 - 1)
    if not isinstance(folder, str | os.PathLike | None) or folder == "":
        raise ValueError(f"folder={folder!r}; expected the path of a folder, or None for a new one.")
    callbacks = [*callbacks] if isinstance(callbacks, Iterable) else [callbacks]
    if not all(isinstance(callback, keras.callbacks.Callback) for callback in callbacks):
        raise ValueError(f"callbacks={callbacks!r:.80}; expected a list of keras.callbacks.Callback.")
    if minutes is not None:
        checks.positive_number("minutes", minutes)
    train = _train_config(options)
    model_config = _model_config(model, sequence_length)
    name = model_name(model) if isinstance(model, keras.Model) else model_config.model_name or "language_model"
    settings = RunSettings(_as_text(texts), name, minutes, tokens, batch_size, sequence_length, seed, train)
    label = f"{corpus_label(settings.texts)}-{name}".strip("-")
    if folder is not None and os.path.lexists(folder) and not os.path.isdir(folder):
        raise ValueError(f"folder={os.fspath(folder)!r} is a file; expected a folder or an unused name.")
    place = timestamped_folder("logs/train", label) if folder is None else contextlib.nullcontext(pathlib.Path(folder))
    with place as path:
        goes_on = _check_folder(path, name)
        data = split_corpus(settings.texts, path, sequence_length + 1)

        def build():
            if model_config is None:
                return keras.models.clone_model(model)
            clear_session()  # so that names do not depend on what was built before
            keras.utils.set_random_seed(seed)
            return model_config.build_model(data.tokenizer.vocabulary_size, dtype=train.dtype_policy)

        steps, train = _length(path, settings, build, data, train)
        model = model if model_config is None else build()
        kind = read_config(path).get("windows") if is_run(path) else None  # a run that is trained further keeps it
        if kind is None:
            tokens_per_step = batch_size * sequence_length
            fills_rows = len(data.train) > tokens_per_step  # of stateful windows, which need a state to carry
            carries_state = getattr(model, "context_length", 0) is None and fills_rows
            kind = recurrent_windows(data.train, steps * tokens_per_step) if carries_state else "random"
        windows = _windows(kind, data.train, settings)
        data.introduce(train, sequence_length + 1, f"{model.count_params():,} parameters, {steps:,} steps")
        if goes_on is not None:
            print(f"{path} goes on from step {goes_on:,} of {steps:,}.")
        budget = {"steps": steps, "train_flops_per_token": _flops_per_token(model, sequence_length)}
        config = run_config(
            settings, name, model_config, train, model, data.corpus, windows=kind, seed=seed, budget=budget
        )
        result = train_run(path, model, data.tokenizer, windows, data.scored, steps, train, config, callbacks)
    return Run(path, model, data.tokenizer, result, read_config(path))


def train_run(
    folder: pathlib.Path,
    model: keras.Model,
    tokenizer,
    windows: StepBatches,
    validation: str | np.ndarray,
    steps: int,
    train: training.TrainConfig,
    config: dict,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> dict:
    """Train with all that TensorBoard shows of a run, its embeddings among it; return the result."""
    embeddings = keras_seq_callbacks.EmbeddingProjector(tokenizer, folder)
    with plots.style():
        result = training.train_language_model(
            folder,
            model,
            tokenizer,
            windows,
            validation,
            steps,
            train,
            config,
            diagnostics=diagnostics(tokenizer, validation, windows.sequence_length, train),
            callbacks=[embeddings, *callbacks],
        )
        embeddings.write(model)  # a run stopped in its last validation has not reached the end of the epoch
    return result


def diagnostics(tokenizer, validation: str | np.ndarray, sequence_length: int, train: training.TrainConfig) -> list:
    """Return loss by position, attention maps and gate saturation; what a model lacks, it shows nothing of.

    The loss by position is that of the windows that a validation scores, all of them spread over the text.
    """
    text, ids = text_and_ids(tokenizer, validation)
    total = (len(ids) - 1) // sequence_length
    scored = training.validation_sample(ids, sequence_length, train, len(text))
    sample = sample_windows(ids, sequence_length, NUM_WINDOWS)
    starts = np.arange(total) * sequence_length if sample is None else sample.window_starts
    windows = ids[starts[:, None] + np.arange(sequence_length)]
    tokens = [tokenizer.decode([id]) for id in windows[0].tolist()]
    return [
        keras_seq_callbacks.LossByPosition(
            ids, sequence_length, None if scored is None else scored.tokens // sequence_length
        ),
        keras_seq_callbacks.AttentionMaps(windows, tokens),
        keras_seq_callbacks.GateSaturation(windows),
    ]


def recurrent_windows(ids, tokens: int) -> str:
    """Return the windows of a recurrent model: "stateful" if the training reads all of a text, else "random".

    Stateful windows of less than an epoch are B stretches of the text and no others: after a million tokens of 23 an
    LSTM has a loss of 1.60 with them, and 1.34 with random windows.
    """
    return "random" if isinstance(ids, TokenMixture) or tokens < len(ids) else "stateful"


def training_windows(
    kind: str, ids, batch_size: int, sequence_length: int, seed: int, reset_prob: float = 0.25
) -> StepBatches:
    """Return the "stateful", "random" or "packed" training windows over ids `[N]`, token files or a mixture of them."""
    sizes = {"batch_size": batch_size, "sequence_length": sequence_length, "seed": seed}
    if kind == "random":
        return random_windows(ids, **sizes)
    if isinstance(ids, TokenMixture):
        expected = "random windows, --recurrent-windows random"
        raise ValueError(f"Folders with weights have no {kind} windows: expected {expected}.")
    if kind != "packed":
        return StatefulWindows(ids, reset_prob=reset_prob, **sizes)
    if not isinstance(ids, TokenFiles):
        expected = "a --corpus of folders that keras-seq prepare wrote, which say where documents begin"
        raise ValueError(f"--recurrent-windows or --transformer-windows packed: expected {expected}.")
    return PackedDocuments(ids, **sizes)


class _StepTimer(keras.callbacks.Callback):
    """Measure the seconds of every execution of the train function."""

    def on_train_begin(self, logs=None):
        self.seconds = []

    def on_train_batch_begin(self, batch, logs=None):
        self.start_time = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        int(self.model.optimizer.iterations)  # waits until the device has finished
        self.seconds.append(time.perf_counter() - self.start_time)


def seconds_per_step(model: keras.Model, windows: StepBatches, train: training.TrainConfig, steps: int) -> float:
    """Return the median time of a step of a training of `steps`, without those that compile, and use up a new model."""
    training_model, dataset_fn = training.fit_inputs(model, windows)
    training.compile_model(training_model, train, steps, tokens_per_step=windows.tokens_per_step)
    steps_per_execution, timer = train.steps_per_execution, _StepTimer()
    executions = max(TIMED_EXECUTIONS, TIMED_STEPS // steps_per_execution)
    data = dataset_fn(0, steps_per_execution * (1 + executions))
    training_model.fit(data, shuffle=False, verbose=0, callbacks=[timer])
    return statistics.median(timer.seconds[1:]) / steps_per_execution


def _length(folder, settings, build, data, train):
    """Return the number of steps, and the training config, in a run of minutes with steps between two validations."""
    tokens_per_step = settings.batch_size * settings.sequence_length
    if settings.minutes is None:
        return -(-settings.tokens // tokens_per_step), train
    if is_run(folder):
        saved = read_config(folder)
        if saved.get("experiment", {}).get("minutes") == settings.minutes:
            given, every = (part["train"]["validate_every"] for part in (saved["experiment"], saved))
            every = every if train.validate_every == given else train.validate_every
            return saved["length"]["steps"], dataclasses.replace(train, validate_every=every)
    model = build()
    windows = _windows("random", data.train, settings)
    print("Timing the training steps ...", flush=True)
    seconds = seconds_per_step(model, windows, train, steps=10_000)
    steps, few = max(1, round(60 * settings.minutes / seconds)), max(1, train.steps_per_execution)
    every = few * max(1, round(SECONDS_PER_VALIDATION / seconds / few))
    return steps, dataclasses.replace(train, validate_every=min(train.validate_every, every))


def _model_config(model, sequence_length):
    """Return the config of a model by its name, or the given one, with a context length; None for a `keras.Model`."""
    if isinstance(model, keras.Model):
        return None
    if isinstance(model, str):
        if model not in LANGUAGE_MODELS:
            raise ValueError(f"model={model!r}; expected {', '.join(LANGUAGE_MODELS)}, a config or a keras.Model.")
        model = MODELS[model]()
    if not hasattr(model, "build_model") or isinstance(model, type):
        raise ValueError(f"model={model!r}; expected the name of a model, its config, or a keras.Model.")
    if not hasattr(model, "context_length"):
        return model
    limit = model.context_length
    if limit is not None and limit < sequence_length:
        raise ValueError(f"context_length={limit}; expected at least the sequence_length, {sequence_length}.")
    return dataclasses.replace(model, context_length=limit or sequence_length)


def _windows(kind, ids, settings):
    return training_windows(kind, ids, settings.batch_size, settings.sequence_length, settings.seed)


def _flops_per_token(model, sequence_length):
    """Return the training FLOPs of a token; None for a model with layers whose cost is not known."""
    try:
        return flops_per_token(model, sequence_length, training=True)
    except ValueError:
        return None


def _train_config(options):
    """Return the training config with these fields; name the argument that is none."""
    names = [field.name for field in dataclasses.fields(training.TrainConfig)]
    for name in options:
        if name not in names:
            known = [*names, *inspect.signature(train).parameters]
            is_length = name in ("epochs", "steps")
            hint = "; the length is tokens, or minutes" if is_length else checks.suggestion(name, known)
            raise TypeError(f"keras_seq.train has no argument {name}={options[name]!r:.40}{hint}.")
    return dataclasses.replace(DEFAULT_TRAIN, **options)


def _check_folder(folder, name):
    """Refuse the folder of a run of another model; return the step that the run in it goes on from, None without."""
    if is_run(folder):
        saved = read_config(folder).get("model", {}).get("name")
        if saved != name:
            raise ValueError(f"{folder} is a run of {saved}, not of {name}; expected another folder.")
    elif folder.is_dir():
        others = sorted(path.name for path in folder.iterdir() if path.name[0] != "." and path.name != "checkpoints")
        if others:
            expected = "the folder of a run, an empty folder or an unused name"
            raise ValueError(f"{folder} holds {others[0]} and is no run; expected {expected}.")
    *_, latest = (None, *list_checkpoints(folder / "checkpoints"))
    return latest and int(latest.stem.rpartition("-")[2])


def _as_text(texts):
    """Return the names of texts as config.json can have them."""
    if isinstance(texts, str) and (len(texts) > MAX_PATH or "\n" in texts):
        what = f"texts={texts!r:.40}... is a text of {len(texts):,} characters"
        raise ValueError(f"{what}; expected a path: write it to a file.")
    if isinstance(texts, str | os.PathLike):
        return os.fspath(texts)
    if not isinstance(texts, Sequence) or not all(isinstance(text, str | os.PathLike) for text in texts):
        raise ValueError(f"texts={texts!r:.80}; expected a name or path of a text, or a list of such.")
    return tuple(map(os.fspath, texts))
