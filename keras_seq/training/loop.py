"""One loop for every model: `fit` over batches that are a function of the step, with our callbacks.

    compile_for(trainee, train, total_steps)
    record, measured = fit(folder, trainee, windows.dataset, ...)        batches(first, last)

`first` is 0, or the step of the newest checkpoint: going on is another `first` and nothing else.
"""

import contextlib
import functools
import operator
import pathlib

import keras

from keras_seq.layers.structure import loops
from keras_seq.training import checkpoints
from keras_seq.training.callbacks import Checkpoints, NumbersGuard, Progress, Record, Validate
from keras_seq.training.files import replacing, write_json
from keras_seq.training.measured import Measured
from keras_seq.training.optimizers import OPTIMIZERS
from keras_seq.training.schedules import WarmupDecay
from keras_seq.training.settings import Train
from keras_seq.training.tensorboard import TokenTensorBoard


def compile_for(trainee, train: Train, total_steps, loss=None, schedule=None):
    """Compiles a model with the optimizer of `train`.

    Args:
        trainee: the model; its layers say what kind it is, and so which learning rate is the default.
        train: optimizer, learning rate and the like.
        total_steps: where the schedule ends.
        loss: a Keras loss; by default the cross-entropy of logits.
        schedule: from a step to a learning rate; by default the warm-up and decay of `train`.
    """
    peak = train.peak_learning_rate(trainee)
    trainee.compile(
        optimizer=OPTIMIZERS[train.optimizer](
            schedule or WarmupDecay(peak, total_steps, train.warmup_steps, train.final_fraction),
            **train.optimizer_options(trainee),
        ),
        auto_scale_loss=False,
        loss=loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        steps_per_execution=train.steps_per_execution,
        # XLA fuses the many small operations of layers that work on all positions at once; around a loop over the
        # positions it costs more than it gives.
        jit_compile=not loops(trainee),
    )
    trainee.optimizer.build(trainee.trainable_variables)


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

    Returns:
        The record, with the `seconds` spent and the last training `loss`, and what was measured at the end.

    Raises:
        Diverged: a loss or gradient became NaN or infinite.
        Interrupted: Ctrl-C or SIGTERM; a checkpoint was written.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", settings)
    first = 0
    for path in checkpoints.found(folder / "checkpoints")[-1:]:
        first = checkpoints.load(path, trainee)

    board = TokenTensorBoard(folder)
    record = Record(
        folder / "metrics.jsonl", board, tokens_per_step, train.log_every, total_steps, characters_per_token
    )
    record.go_on_from(first)

    def measure_all():
        return functools.reduce(operator.or_, (look() for look in looks), measure())

    validate = Validate(measure_all, record, train.validate_every, total_steps)
    saver = Checkpoints(folder / "checkpoints", train.checkpoint_every, total_steps)
    progress = Progress(name, tokens_per_step, first, total_steps)

    board.set_model(trainee)
    board.settings(_words_and_numbers(settings))
    with contextlib.ExitStack() as afterwards:
        for close in (board.on_train_end, saver.restore_handlers, progress.on_train_end):
            afterwards.callback(close)
        if first < total_steps:
            trainee.fit(
                batches(first, total_steps),
                shuffle=False,
                verbose=0,
                callbacks=[NumbersGuard(), record, validate, saver, progress, *callbacks],
            )
        return record, validate.latest or measure_all()


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
