"""Train a language model: its batches, its validation and its scores in result.json.

Losses are in nats per token of the tokenizer. Losses per character of the text compare across tokenizers.
"""

import copy
import functools
import math
import pathlib
from collections.abc import Callable, Sequence

import keras
import numpy as np

from keras_seq import checks
from keras_seq.evaluation.evaluator import LossSum, get_evaluator, word_perplexity
from keras_seq.evaluation.validation_sample import ValidationSample
from keras_seq.files import atomic_write
from keras_seq.generation import TextGenerator
from keras_seq.layers.introspection import check_tokenizer
from keras_seq.tokenizers.document_token import encode_documents
from keras_seq.tokenizers.text import first_token_characters
from keras_seq.tracking.summaries import Summaries
from keras_seq.training.config import TrainConfig
from keras_seq.training.loop_callbacks import TrainingDiverged
from keras_seq.training.metrics_logger import read_metrics
from keras_seq.training.run_settings import text_digest
from keras_seq.training.sampled_validation import check_sample, validation_sample
from keras_seq.training.training_run import fit_inputs, train_model

DIVERGED = (
    "The validation loss is {:.3g} nats per token: training has diverged; try a smaller --train.learning-rate or a "
    "longer --train.warmup-steps."
)
MAX_LOSS = 700.0  # nats; its perplexity is the largest that a float holds


def train_language_model(
    folder: str | pathlib.Path,
    model: keras.Model,
    tokenizer,
    windows,
    validation: str,
    total_steps: int,
    train: TrainConfig,
    config: dict,
    val_sequence_length: int | None = None,
    diagnostics: Sequence = (),
    callbacks: Sequence[keras.callbacks.Callback] = (),
    finish: Callable[[Summaries], dict] | None = None,
) -> dict:
    """Train a language model to `total_steps`, from the latest checkpoint in `folder` if there is one.

    Args:
        folder: The run's folder; logs/README.md lists its files.
        model: A newly built `LanguageModel`.
        tokenizer: The tokenizer of its ids.
        windows: The training batches. With `StatefulWindows`, a model whose state has no length carries it from batch
            to batch.
        validation: Text that is not trained on. `train.validation_characters` of it, spread evenly and at the same
            places for every model and seed, are scored at every validation (`val_loss_sample`), the last step included,
            so that the points of the curve compare; all of it is scored for the result.
        total_steps: Step at which training ends.
        train: Training config.
        config: Contents of config.json; what else decides the result is added, the digest of `validation` too.
        val_sequence_length: T of the windows of `val_loss`; by default that of the training windows.
        diagnostics: Objects with `compute_summaries(model) -> Summaries`, run at every validation.
        callbacks: Further callbacks for Keras's `fit`.
        finish: As for `train_model`.

    Returns:
        The contents of result.json. The token losses `[windows, T]` behind `val_loss` are in val_token_losses.npy.

    Raises:
        ValueError: If the tokenizer and the model differ in vocabulary size, `total_steps` is not an integer of at
            least 1, or the validation text is shorter than a window.
        TrainingDiverged: As `fit_resumable`; or the final loss is above MAX_LOSS.
        TrainingInterrupted: As `fit_resumable`.
        CheckpointError: As `fit_resumable`.
        OSError: As `fit_resumable`.
    """
    check_tokenizer(tokenizer, model)
    checks.positive_integer("total_steps", total_steps)
    folder, length = pathlib.Path(folder), val_sequence_length or windows.sequence_length
    training_model, dataset_fn = fit_inputs(model, windows)
    final_validator = validator = LanguageModelValidator(model, tokenizer, validation, length, train.sample_length)
    sample = validation_sample(final_validator.ids, length, train, len(validation))
    if sample is not None:
        validator = copy.copy(final_validator)
        validator.sample = sample

    def finish_result(summaries):
        with atomic_write(folder / "val_token_losses.npy") as temporary:
            np.save(temporary, final_validator.chunked_token_losses)
        if sample is not None:
            check_sample(
                sample, read_metrics(folder, "validation")[-1]["val_loss_sample"], final_validator.chunked_token_losses
            )
        more = {} if finish is None else finish(summaries)
        return {**_scores(final_validator, summaries, validation), **more}

    return train_model(
        folder,
        model,
        dataset_fn,
        windows.tokens_per_step,
        total_steps,
        train,
        validator,
        {
            **config,
            "validation": {"characters": len(validation), "sha256": text_digest(validation), "sequence_length": length},
        },
        training_model=training_model,
        tokenizer=tokenizer,
        characters_per_token=final_validator.characters_per_token,
        diagnostics=[functools.partial(diagnostic.compute_summaries, model) for diagnostic in diagnostics],
        callbacks=callbacks,
        final_validate_fn=None if validator is final_validator else final_validator,
        final_duration_ratio=1.0 if sample is None else len(final_validator.ids) / sample.tokens,
        finish=finish_result,
    )


def _scores(validator, summaries, validation) -> dict:
    """Return the entries of result.json that only language models have."""
    loss, streaming = summaries.scalars["val_loss"], summaries.scalars["val_loss_streaming"]
    if not max(loss, streaming) < MAX_LOSS:
        raise TrainingDiverged(DIVERGED.format(loss))
    per_character, per_character_streaming = (x / validator.characters_per_token for x in (loss, streaming))
    return {
        "characters_per_token": validator.characters_per_token,
        "val_sequence_length": validator.sequence_length,
        "val_loss_per_character": per_character,
        "val_loss_per_character_streaming": per_character_streaming,
        "val_bits_per_character": per_character / math.log(2),
        "val_bits_per_character_streaming": per_character_streaming / math.log(2),
        "val_perplexity": math.exp(loss),
        "val_perplexity_streaming": math.exp(streaming),
        "val_word_perplexity": word_perplexity(per_character, validation),
        "val_word_perplexity_streaming": word_perplexity(per_character_streaming, validation),
        "val_loss_by_position": validator.chunked_token_losses.mean(axis=0, dtype="float64").tolist(),
    }


class LanguageModelValidator:
    """Compute `val_loss` and `val_loss_streaming` of a text, and generate a text sample.

    A call returns `Summaries` and keeps the token losses `[windows, T]` as `chunked_token_losses`.

    Args:
        model: A `LanguageModel`.
        tokenizer: The tokenizer of its ids.
        text: The text to score; in it U+001E begins a document.
        sequence_length: T of the windows of `val_loss`.
        sample_length: Tokens of the text sample.

    Attributes:
        sample: The `ValidationSample` of the text to score; None scores all.

    Raises:
        ValueError: If the text has fewer than `sequence_length + 1` tokens.
    """

    sample: ValidationSample | None = None

    def __init__(self, model: keras.Model, tokenizer, text: str, sequence_length: int, sample_length: int):
        self.evaluator, self.generator = get_evaluator(model), TextGenerator(model, tokenizer)
        self.ids, self.sequence_length = encode_documents(tokenizer, text), sequence_length
        self.sample_length = sample_length
        if len(self.ids) <= sequence_length:
            raise ValueError(
                f"{len(text):,} characters of validation text are {len(self.ids)} tokens; expected at least "
                f"{sequence_length + 1}, a window and the next token: give a longer text."
            )
        unpredicted = first_token_characters(tokenizer, text)  # the first token is not scored
        self.characters_per_token = (len(text) - unpredicted) / (len(self.ids) - 1)
        starts_line = "\n" in text and len(tokenizer.encode("\n"))
        self.prompt = "\n" if starts_line else text[: max(1, unpredicted)]

    def __call__(self) -> Summaries:
        """Return the validation's scalars and its sample; raise `TrainingDiverged` if a loss is not finite."""
        losses = self.evaluator.chunked_token_losses(self.ids, self.sequence_length, self.sample)
        if self.sample is None:
            streaming = self.evaluator.streaming_loss(self.ids, chunked=losses)
        else:
            streaming = LossSum.from_losses(self.evaluator.stretch_token_losses(self.ids, self.sample, losses))
        self.chunked_token_losses, loss = losses, LossSum.from_losses(losses)
        if not loss.mean + streaming.mean < math.inf:
            raise TrainingDiverged(DIVERGED.format(loss.mean))
        return Summaries(
            {
                "val_loss": loss.mean,
                "val_loss_streaming": streaming.mean,
                "val_bits_per_character": loss.bits_per_token / self.characters_per_token,
            },
            {"sample": self.generator(self.prompt, self.sample_length, temperature=0.8)},
        )
