"""Train a language model: batches, the training loop, validation and result.json.

Losses are in nats per token of the tokenizer. Losses per character of the text compare across tokenizers.
"""

import contextlib
import functools
import math
import pathlib
from collections.abc import Sequence

import keras
import numpy as np

from keras_seq import checks
from keras_seq.atomic_files import atomic_write
from keras_seq.data import StatefulWindows
from keras_seq.evaluation.evaluator import LossSum, get_evaluator, word_perplexity
from keras_seq.generation import TextGenerator
from keras_seq.layers import Stateful
from keras_seq.layers.introspection import check_tokenizer
from keras_seq.saving.keras_file import save_model
from keras_seq.tracking.summaries import Summaries
from keras_seq.training.compilation import compile_model
from keras_seq.training.config import TrainConfig
from keras_seq.training.loop import fit_resumable
from keras_seq.training.result_files import describe_tokenizer, write_result
from keras_seq.training.run_lock import lock_run


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
    return keras.Model(
        [ids, reset_mask], Stateful(model, batch_size, name="stateful")(ids, reset_mask), name=f"stateful_{model.name}"
    )


def train_language_model(
    folder: str | pathlib.Path,
    model: keras.Model,
    tokenizer,
    windows,
    validation: str,
    total_steps: int,
    train: TrainConfig,
    config: dict,
    name: str = "model",
    val_sequence_length: int | None = None,
    diagnostics: Sequence = (),
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> dict:
    """Train a language model to `total_steps`, from the latest checkpoint in `folder` if there is one.

    Args:
        folder: The run's folder; logs/README.md lists its files.
        model: A newly built `LanguageModel`.
        tokenizer: The tokenizer of its ids.
        windows: The training batches. With `StatefulWindows`, a model whose state has no length carries it from batch
            to batch.
        validation: Text that is not trained on. Its first `train.validation_characters` are scored at every validation,
            the last step included, so that the points of the curve compare; all of it is scored for the result.
        total_steps: Step at which training ends.
        train: Training config.
        config: Contents of config.json.
        name: Name of the run in the progress bar.
        val_sequence_length: T of the windows of `val_loss`; by default that of the training windows.
        diagnostics: Objects with `compute_summaries(model) -> Summaries`, run at every validation.
        callbacks: Further callbacks for Keras's `fit`.

    Returns:
        The contents of result.json. The token losses `[windows, T]` behind `val_loss` are in val_token_losses.npy.

    Raises:
        ValueError: If the tokenizer and the model differ in vocabulary size, `total_steps` is not an integer of at
            least 1, or the validation text is shorter than a window.
        TrainingDiverged: As `fit_resumable`.
        TrainingInterrupted: As `fit_resumable`.
        CheckpointError: As `fit_resumable`.
        OSError: As `fit_resumable`.
    """
    check_tokenizer(tokenizer, model)
    checks.positive_integer("total_steps", total_steps)
    folder = pathlib.Path(folder)
    config = {**config, "tokenizer": describe_tokenizer(tokenizer)}
    stateful = isinstance(windows, StatefulWindows) and model.context_length is None
    training_model = stateful_training_model(model, windows.batch_size, windows.sequence_length) if stateful else model
    tokens_per_step = windows.batch_size * windows.sequence_length
    compile_model(training_model, train, total_steps, tokens_per_step=tokens_per_step)
    final_validator = validator = LanguageModelValidator(
        model, tokenizer, validation, val_sequence_length or windows.sequence_length, train.sample_length
    )
    part = train.validated_part(validation)
    if len(part) < len(validation):
        validator = LanguageModelValidator(model, tokenizer, part, final_validator.sequence_length, train.sample_length)
    folder.mkdir(parents=True, exist_ok=True)
    with lock_run(folder):
        logger, summaries = fit_resumable(
            folder,
            training_model,
            windows.stateful_dataset if stateful else windows.dataset,
            tokens_per_step,
            total_steps,
            train,
            validator,
            config,
            name,
            final_validator.characters_per_token,
            [functools.partial(diagnostic.compute_summaries, model) for diagnostic in diagnostics],
            callbacks,
            final_validate_fn=None if validator is final_validator else final_validator,
            final_duration_ratio=len(validation) / len(part),
            lock=contextlib.nullcontext,
        )
        tokenizer.save(folder / "tokenizer.json")
        save_model(folder / "model.keras", model)
        with atomic_write(folder / "val_token_losses.npy") as temporary:
            np.save(temporary, final_validator.chunked_token_losses)
        result = _result(model, final_validator, logger, summaries, tokens_per_step, validation)
        write_result(folder, result)
    return result


def _result(model, validator, logger, summaries, tokens_per_step, validation) -> dict:
    """Return the contents of result.json."""
    loss, streaming = summaries.scalars["val_loss"], summaries.scalars["val_loss_streaming"]
    per_character, per_character_streaming = (x / validator.characters_per_token for x in (loss, streaming))
    return {
        "parameters": model.count_params(),
        "train_tokens": logger.step * tokens_per_step,
        "train_seconds": logger.seconds,
        "tokens_per_second": logger.step * tokens_per_step / logger.seconds,
        "characters_per_token": validator.characters_per_token,
        "train_loss": logger.loss,
        "val_loss": loss,
        "val_loss_streaming": streaming,
        "val_sequence_length": validator.sequence_length,
        "train_loss_per_character": logger.loss / validator.characters_per_token,
        "val_loss_per_character": per_character,
        "val_loss_per_character_streaming": per_character_streaming,
        "val_bits_per_character": per_character / math.log(2),
        "val_bits_per_character_streaming": per_character_streaming / math.log(2),
        "val_perplexity": math.exp(loss),
        "val_perplexity_streaming": math.exp(streaming),
        "val_word_perplexity": word_perplexity(per_character, validation),
        "val_word_perplexity_streaming": word_perplexity(per_character_streaming, validation),
        "val_loss_by_position": validator.chunked_token_losses.mean(axis=0, dtype="float64").tolist(),
        "sample": summaries.texts["sample"],
    }


class LanguageModelValidator:
    """Compute `val_loss` and `val_loss_streaming` of a text, and generate a text sample.

    A call returns `Summaries` and keeps the token losses `[windows, T]` as `chunked_token_losses`.

    Args:
        model: A `LanguageModel`.
        tokenizer: The tokenizer of its ids.
        text: The text to score.
        sequence_length: T of the windows of `val_loss`.
        sample_length: Tokens of the text sample.

    Raises:
        ValueError: If the text has fewer than `sequence_length + 1` tokens.
    """

    def __init__(self, model: keras.Model, tokenizer, text: str, sequence_length: int, sample_length: int):
        self.evaluator, self.generator = get_evaluator(model), TextGenerator(model, tokenizer)
        self.ids, self.sequence_length = tokenizer.encode(text).numpy(), sequence_length
        self.sample_length = sample_length
        if len(self.ids) <= sequence_length:
            raise ValueError(
                f"{len(text):,} characters of validation text are {len(self.ids)} tokens; expected at least "
                f"{sequence_length + 1}, a window and the next token: give a longer text, or raise "
                "--train.validation-characters."
            )
        self.characters_per_token = len(text) / len(self.ids)
        starts_line = "\n" in text and len(tokenizer.encode("\n"))
        self.prompt = "\n" if starts_line else tokenizer.decode(self.ids[:1])

    def __call__(self) -> Summaries:
        """Return the validation's scalars and its sample."""
        self.chunked_token_losses = self.evaluator.chunked_token_losses(self.ids, self.sequence_length)
        loss, streaming = LossSum.from_losses(self.chunked_token_losses), self.evaluator.streaming_loss(self.ids)
        return Summaries(
            {
                "val_loss": loss.mean,
                "val_loss_streaming": streaming.mean,
                "val_bits_per_character": loss.bits_per_token / self.characters_per_token,
            },
            {"sample": self.generator(self.prompt, self.sample_length, temperature=0.8)},
        )
