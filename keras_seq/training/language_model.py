"""The training of a language model: the loop, its batches, and what a validation of it measures.

    trainee = the model, or a model around Carry(model) where the state goes from batch to batch

Losses are per token of the tokenizer, and per character of the text that the tokens stand for, so that models with
other tokenizers can be compared.
"""

import contextlib
import functools
import math
import pathlib

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
from keras_seq.training.compile_model import compile_model
from keras_seq.training.config import TrainConfig
from keras_seq.training.loop import fit_resumable
from keras_seq.training.result_files import describe_tokenizer, write_result
from keras_seq.training.run_lock import lock_run


def stateful_training_model(model, batch_size, length):
    """A model for `fit` around `Carry(model)`: `((ids [B, T], fresh [B]), targets [B, T])`."""
    ids = keras.Input((length,), batch_size=batch_size, dtype="int32", name="ids")
    reset_mask = keras.Input((), batch_size=batch_size, dtype="bool", name="reset_mask")
    return keras.Model(
        [ids, reset_mask], Stateful(model, batch_size, name="carry")(ids, reset_mask), name=f"carried_{model.name}"
    )


def train_language_model(
    folder,
    model,
    tokenizer,
    windows,
    validation: str,
    total_steps,
    train: TrainConfig,
    settings: dict,
    name="model",
    score_length=None,
    diagnostics=(),
    callbacks=(),
) -> dict:
    """Trains `model` to `total_steps`, from the newest checkpoint in `folder` if there is one.

    Args:
        folder: the run's folder; logs/README.md says what is written there.
        model: a `LanguageModel`, freshly built.
        tokenizer: the `Vocabulary` or other tokenizer of its ids.
        windows: the training batches. Over `Lanes`, a model whose state has no length carries it from batch to batch.
        validation: the text to score, never trained on: its beginning, of `train.validation_characters`, at every
            validation and at the last step, so that these points compare; all of it for the final figures.
        total_steps: the step to end at.
        train: everything else about training.
        settings: what config.json says of the run.
        name: what the progress bar calls the run.
        score_length: of the windows of the cold score; by default that of the training windows.
        looks: what else a validation measures: each has `measure(model)` that gives a `Measured`.
        callbacks: further ones for Keras's `fit`.

    Returns:
        The final figures, as result.json has them; the cold nats `[windows, T]` behind them are in losses.npy.

    Raises:
        ValueError: a tokenizer of another number of ids than the model; total_steps is no whole number of at least 1.
        Diverged, Interrupted, CheckpointError, OSError: as `fit` does.
    """
    check_tokenizer(tokenizer, model)
    checks.positive_integer("total_steps", total_steps)
    folder = pathlib.Path(folder)
    settings = {**settings, "vocabulary": describe_tokenizer(tokenizer)}
    carry = isinstance(windows, StatefulWindows) and model.context_length is None
    training_model = stateful_training_model(model, windows.batch_size, windows.length) if carry else model
    tokens_per_step = windows.batch_size * windows.length
    compile_model(training_model, train, total_steps, tokens_per_step=tokens_per_step)
    whole = diagnostic = LanguageModelValidator(
        model, tokenizer, validation, score_length or windows.length, train.sample_length
    )
    part = train.validated_part(validation)
    if len(part) < len(validation):
        diagnostic = LanguageModelValidator(model, tokenizer, part, whole.length, train.sample_length)
    folder.mkdir(parents=True, exist_ok=True)
    with lock_run(folder):
        record, summaries = fit_resumable(
            folder,
            training_model,
            windows.stateful_dataset if carry else windows.dataset,
            tokens_per_step,
            total_steps,
            train,
            diagnostic,
            settings,
            name,
            whole.characters_per_token,
            [functools.partial(further.compute_summaries, model) for further in diagnostics],
            callbacks,
            final=None if diagnostic is whole else whole,
            final_times=len(validation) / len(part),
            hold=contextlib.nullcontext,
        )
        tokenizer.save(folder / "tokenizer.json")
        save_model(folder / "model.keras", model)
        with atomic_write(folder / "val_token_losses.npy") as temporary:
            np.save(temporary, whole.chunked_token_losses)
        result = _result(model, whole, record, summaries, tokens_per_step, validation)
        write_result(folder, result)
    return result


def _result(model, whole, record, summaries, tokens_per_step, validation) -> dict:
    """The final figures."""
    loss, streaming = summaries.scalars["val_loss"], summaries.scalars["val_loss_streaming"]
    per_character, per_character_streaming = (loss / whole.characters_per_token for loss in (loss, streaming))
    return {
        "parameters": model.count_params(),
        "train_tokens": record.step * tokens_per_step,
        "train_seconds": record.seconds,
        "tokens_per_second": record.step * tokens_per_step / record.seconds,
        "characters_per_token": whole.characters_per_token,
        "train_loss": record.loss,
        "val_loss": loss,
        "val_loss_streaming": streaming,
        "val_sequence_length": whole.length,
        "train_loss_per_character": record.loss / whole.characters_per_token,
        "val_loss_per_character": per_character,
        "val_loss_per_character_streaming": per_character_streaming,
        "val_bits_per_character": per_character / math.log(2),
        "val_bits_per_character_streaming": per_character_streaming / math.log(2),
        "val_perplexity": math.exp(loss),
        "val_perplexity_streaming": math.exp(streaming),
        "val_word_perplexity": word_perplexity(per_character, validation),
        "val_word_perplexity_streaming": word_perplexity(per_character_streaming, validation),
        "val_loss_by_position": whole.chunked_token_losses.mean(axis=0, dtype="float64").tolist(),
        "sample": summaries.texts["sample"],
    }


class LanguageModelValidator:
    """Called, it scores a text, cold and warm, and draws a sample of text.

    Raises:
        ValueError: the text makes no window of `length` tokens.
    """

    def __init__(self, model, tokenizer, text, length, sample_length):
        self.evaluator, self.generator = get_evaluator(model), TextGenerator(model, tokenizer)
        self.ids, self.length, self.sample_length = tokenizer.encode(text).numpy(), length, sample_length
        if len(self.ids) <= length:
            raise ValueError(
                f"{len(text):,} characters to validate on are {len(self.ids)} tokens: expected at least {length + 1}, "
                "a window and the one behind it; give a longer text, or more --train.validation-characters."
            )
        self.characters_per_token = len(text) / len(self.ids)
        starts_line = "\n" in text and len(tokenizer.encode("\n"))
        self.prompt = "\n" if starts_line else tokenizer.decode(self.ids[:1])

    def __call__(self) -> Summaries:
        self.chunked_token_losses = self.evaluator.chunked_token_losses(self.ids, self.length)
        loss, streaming = LossSum.of(self.chunked_token_losses), self.evaluator.streaming_loss(self.ids)
        return Summaries(
            {
                "val_loss": loss.mean,
                "val_loss_streaming": streaming.mean,
                "val_bits_per_character": loss.bits_per_token / self.characters_per_token,
            },
            {"sample": self.generator(self.prompt, self.sample_length, temperature=0.8)},
        )
