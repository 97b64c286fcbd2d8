"""One loop for every model: `fit` over batches that are a function of the step, with our callbacks.

    trainee = the model, or a model around Carry(model) where the state goes from batch to batch
    trainee.fit(windows.dataset(first, last))

`first` is 0, or the step of the newest checkpoint: going on is another `first` and nothing else.
"""

import contextlib
import pathlib

import keras

from keras_seq.generation import Generator
from keras_seq.layers import Carry
from keras_seq.text import Lanes
from keras_seq.training import checkpoints
from keras_seq.training.callbacks import Checkpoints, NumbersGuard, Progress, Record, Validate
from keras_seq.training.evaluate import Evaluator
from keras_seq.training.files import replacing, write_json
from keras_seq.training.optimizers import OPTIMIZERS
from keras_seq.training.schedules import WarmupDecay
from keras_seq.training.settings import Train
from keras_seq.training.tensorboard import TokenTensorBoard


def carried(model, batch_size, length):
    """A model for `fit` around `Carry(model)`: `((ids [B, T], fresh [B]), targets [B, T])`."""
    ids = keras.Input((length,), batch_size=batch_size, dtype="int32", name="ids")
    fresh = keras.Input((), batch_size=batch_size, dtype="bool", name="fresh")
    return keras.Model([ids, fresh], Carry(model, batch_size, name="carry")(ids, fresh), name=f"carried_{model.name}")


def compile_for(trainee, model, train: Train, total_steps):
    """Compiles `trainee`, which is `model` or wraps it, with the optimizer, schedule and loss of `train`."""
    schedule = WarmupDecay(train.peak_learning_rate(model), total_steps, train.warmup_steps, train.final_fraction)
    trainee.compile(
        optimizer=OPTIMIZERS[train.optimizer](schedule, **train.optimizer_options(model)),
        auto_scale_loss=False,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        steps_per_execution=train.steps_per_execution,
        # XLA fuses the many small operations of layers that work on all positions at once; around a loop over the
        # positions it costs more than it gives.
        jit_compile=not model.loops,
    )
    trainee.optimizer.build(trainee.trainable_variables)


def uncompiled(model):
    """A copy without optimizer and loss, so that whoever loads it needs no training code."""
    copy = type(model).from_config(model.get_config())
    copy.build((None, None))
    copy.set_weights(model.get_weights())
    return copy


def run(
    folder, model, vocabulary, windows, validation, total_steps, train: Train, settings: dict, name="model"
) -> dict:
    """Trains `model` to `total_steps`, from the newest checkpoint in `folder` if there is one.

    Args:
        folder: the run's folder; see README for what is written there.
        model: a `LanguageModel`, freshly built.
        vocabulary: the `Vocabulary` of its ids.
        windows: the training batches. Over `Lanes`, a model whose state has no length carries it from batch to batch.
        validation: ids `[N]` to score, never trained on.
        total_steps: the step to end at.
        train: everything else about training.
        settings: what config.json says of the run.
        name: what the progress bar calls the run.

    Returns:
        The final figures, as result.json has them.

    Raises:
        Diverged: a loss or gradient became NaN or infinite.
        Interrupted: Ctrl-C or SIGTERM; a checkpoint was written.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", settings)
    vocabulary.save(folder / "vocabulary.json")

    carry = isinstance(windows, Lanes) and model.context is None
    trainee = carried(model, windows.batch_size, windows.length) if carry else model
    compile_for(trainee, model, train, total_steps)
    first = 0
    for path in checkpoints.found(folder / "checkpoints")[-1:]:
        first = checkpoints.load(path, trainee)

    tokens_per_step = windows.batch_size * windows.length
    board = TokenTensorBoard(folder)
    record = Record(folder / "metrics.jsonl", board, tokens_per_step, train.log_every, total_steps)
    record.go_on_from(first)
    validate = Validate(
        evaluator=Evaluator(model),
        generator=Generator(model, vocabulary),
        ids=validation,
        length=windows.length,
        sample_length=train.sample_length,
        record=record,
        every=train.validate_every,
        last=total_steps,
    )
    saver = Checkpoints(folder / "checkpoints", train.checkpoint_every, total_steps)
    progress = Progress(name, tokens_per_step, first, total_steps)

    board.set_model(trainee)
    board.settings(_words_and_numbers(settings))
    with contextlib.ExitStack() as afterwards:
        for close in (board.on_train_end, saver.restore_handlers, progress.on_train_end):
            afterwards.callback(close)
        if first < total_steps:
            batches = windows.carried if carry else windows.dataset
            trainee.fit(
                batches(first, total_steps),
                shuffle=False,
                verbose=0,
                callbacks=[NumbersGuard(), record, validate, saver, progress],
            )
        cold, warm, sample = validate.latest or validate.measure()
    with replacing(folder / "model.keras") as temporary:
        uncompiled(model).save(temporary)
    result = {
        "parameters": model.count_params(),
        "training_tokens": total_steps * tokens_per_step,
        "training_seconds": record.seconds,
        "tokens_per_second": total_steps * tokens_per_step / record.seconds,
        "training_nats_per_character": record.loss,
        "cold_nats_per_character": cold.nats_per_token,
        "cold_context": windows.length,
        "warm_nats_per_character": warm.nats_per_token,
        "bits_per_character": cold.bits_per_token,
        "warm_bits_per_character": warm.bits_per_token,
        "sample": sample,
    }
    write_json(folder / "result.json", result)
    return result


def _words_and_numbers(settings, prefix=""):
    """The leaves of nested settings under dotted names, without those that the HParams table cannot show."""
    leaves = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            leaves |= _words_and_numbers(value, f"{prefix}{name}.")
        elif isinstance(value, (bool, int, float, str)):
            leaves[f"{prefix}{name}"] = value
    return leaves
