"""Train a language model: its batches, its validation and its scores in result.json.

Losses are in nats per token of the tokenizer. Losses per character of the text compare across tokenizers. During
training a sample of a long validation text is scored, spread evenly over it and always the same, and all of it at the
end.
"""

import copy
import functools
import math
import pathlib
import warnings
from collections.abc import Callable, Sequence

import keras
import numpy as np

from keras_seq import checks
from keras_seq.data import StatefulWindows
from keras_seq.data.windows import Windows
from keras_seq.evaluation.evaluator import LossSum, get_evaluator, word_perplexity
from keras_seq.evaluation.streaming import ValidationSample, sample_windows
from keras_seq.files import atomic_write
from keras_seq.generation import TextGenerator
from keras_seq.layers import Stateful
from keras_seq.layers.introspection import check_tokenizer
from keras_seq.tokenizers.base import first_token_characters
from keras_seq.tokenizers.registry import decode_documents, encode_documents
from keras_seq.tracking.summaries import Summaries
from keras_seq.training.callbacks import TrainingDiverged
from keras_seq.training.config import TrainConfig
from keras_seq.training.log import read_metrics
from keras_seq.training.run_config import text_digest
from keras_seq.training.trainer import train_model

DIVERGED = (
    "The validation loss is {:.3g} nats per token: training has diverged; try a smaller --train.learning-rate or a "
    "longer --train.warmup-steps."
)
MAX_LOSS = 700.0  # nats; its perplexity is the largest that a float holds
MAX_STANDARD_ERRORS = 3.0


def train_language_model(
    folder: str | pathlib.Path,
    model: keras.Model,
    tokenizer,
    windows,
    validation: str | np.ndarray,
    total_steps: int,
    train: TrainConfig | None = None,
    config: dict | None = None,
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
        validation: Text that is not trained on, or its ids `[N]`: text with [UNK] in it does not give them back.
            `train.validation_characters` of it, spread evenly and at the same places for every model and seed, are
            scored at every validation (`val_loss_sample`), the last step included, so that the points of the curve
            compare; all of it is scored for the result.
        total_steps: Step at which training ends.
        train: Training config; by default `TrainConfig()`.
        config: Contents of config.json; what else decides the result is added, the digest of `validation` too.
        val_sequence_length: T of the windows of `val_loss`; by default that of the training windows.
        diagnostics: Objects with `compute_summaries(model) -> Summaries`, run at every validation.
        callbacks: Further callbacks for Keras's `fit`.
        finish: Function from the final summaries to further entries of the result. It may write files into the folder.

    Returns:
        The contents of result.json. The token losses `[windows, T]` behind `val_loss` are in val_token_losses.npy.

    Raises:
        ValueError: If the tokenizer and the model differ in vocabulary size, `total_steps` is not an integer of at
            least 1, or the validation text is shorter than a window.
        TrainingDiverged: As `Trainer.fit`, as are further exceptions; or the final loss is above MAX_LOSS.
    """
    check_tokenizer(tokenizer, model)
    checks.positive_integer("total_steps", total_steps)
    folder, length = pathlib.Path(folder), val_sequence_length or windows.sequence_length
    train = TrainConfig() if train is None else train
    training_model, dataset_fn = fit_inputs(model, windows)
    final_validator = validator = LanguageModelValidator(model, tokenizer, validation, length, train.sample_length)
    text = final_validator.text
    sample = validation_sample(final_validator.ids, length, train, len(text))
    if sample is not None:
        validator = copy.copy(final_validator)
        validator.sample = sample

    def finish_result(summaries):
        with atomic_write(folder / "val_token_losses.npy") as temporary:
            np.save(temporary, final_validator.chunked_token_losses)
        if sample is not None:
            (*_, last) = read_metrics(folder, "validation")
            check_sample(sample, last["val_loss_sample"], final_validator.chunked_token_losses)
        more = {} if finish is None else finish(summaries)
        return {**_scores(final_validator, summaries), **more}

    scored = {"characters": len(text), "sha256": text_digest(text), "sequence_length": length}
    return train_model(
        folder=folder,
        model=model,
        training_model=training_model,
        dataset_fn=dataset_fn,
        tokens_per_step=windows.tokens_per_step,
        total_steps=total_steps,
        train=train,
        validate_fn=validator,
        config={**(config or {}), "validation": scored},
        tokenizer=tokenizer,
        characters_per_token=final_validator.characters_per_token,
        diagnostics=[functools.partial(diagnostic.compute_summaries, model) for diagnostic in diagnostics],
        callbacks=callbacks,
        final_validate_fn=None if validator is final_validator else final_validator,
        finish=finish_result,
    )


def fit_inputs(model: keras.Model, windows: Windows) -> tuple[keras.Model, Callable]:
    """Return what `fit` trains for a `LanguageModel`, and the function of its batches.

    With `StatefulWindows`, if the state of the model has no length (a Transformer's has), they are a
    `stateful_training_model` and `windows.stateful_dataset`; else the model and `windows.dataset`.
    """
    if not isinstance(windows, StatefulWindows) or model.context_length is not None:
        return model, windows.dataset
    training_model = stateful_training_model(model, windows.batch_size, windows.sequence_length)
    return training_model, windows.stateful_dataset


def stateful_training_model(model: keras.Model, batch_size: int, sequence_length: int) -> keras.Model:
    """Return a model for `fit` that carries the state from batch to batch: `Stateful(model)`.

    It is a model of `((ids [B, T], reset_mask [B]), targets [B, T])`, and shares the weights of a `LanguageModel` whose
    state has no length.
    """
    ids = keras.Input((sequence_length,), batch_size=batch_size, dtype="int32", name="ids")
    reset_mask = keras.Input((), batch_size=batch_size, dtype="bool", name="reset_mask")
    logits = Stateful(model, batch_size, name="stateful")(ids, reset_mask)
    return keras.Model([ids, reset_mask], logits, name=f"stateful_{model.name}")


def validation_sample(
    ids: Sequence[int], sequence_length: int, train: TrainConfig, num_characters: int | None = None
) -> ValidationSample | None:
    """Return the windows of a validation text that are scored during training; None for all.

    Args:
        ids: The text, integers `[N]`.
        sequence_length: T, tokens of a window.
        train: Training config, whose `validation_characters` is the size of the sample.
        num_characters: Characters of the text; by default each id is one.

    Raises:
        ValueError: If `train.validation_characters` is less than a window and the next token.
    """
    total = len(ids) if num_characters is None else num_characters
    size = train.validated_characters(total, sequence_length + 1 if num_characters is None else 2)
    if size == total:
        return None
    tokens = size * len(ids) // total
    if tokens <= sequence_length:
        raise ValueError(
            f"{size:,} characters of validation text are {tokens} tokens; expected at least {sequence_length + 1}, a "
            "window and the next token: give a longer text, or raise --train.validation-characters."
        )
    return sample_windows(ids, sequence_length, tokens // sequence_length)


def sampled_validation(
    score: Callable[[ValidationSample | None], Summaries], ids: Sequence[int], sequence_length: int, train: TrainConfig
) -> dict:
    """Return the validation arguments of `fit_resumable`: `fit_resumable(..., **sampled_validation(score, ids, ...))`.

    Args:
        score: Function from the windows to score, None for all, to `Summaries`.
        ids: The validation text, a character each, integers `[N]`.
        sequence_length: T, tokens of a window.
        train: Training config; its `validation_characters` limits what is scored during training.

    Returns:
        `validate_fn`, and where a sample is scored, `final_validate_fn`.

    Raises:
        ValueError: If `train.validation_characters` is less than a window and the next character.
    """
    sample = validation_sample(ids, sequence_length, train)
    arguments = {"validate_fn": lambda: score(sample)}
    if sample is not None:
        arguments["final_validate_fn"] = lambda: score(None)
    return arguments


def check_sample(sample: ValidationSample, last_loss: float, token_losses: np.ndarray):
    """Warn if the last `val_loss_sample` differs more than by chance from the mean of all token losses."""
    loss = float(token_losses.mean(dtype="float64"))
    limit = MAX_STANDARD_ERRORS * sample.standard_error(token_losses)
    if not abs(last_loss - loss) <= limit + 1e-4 * abs(loss):  # rounding
        warnings.warn(
            f"The last val_loss_sample is {last_loss:.3f}, and val_loss, of the whole validation text, is {loss:.3f}: "
            f"by chance they differ by {limit:.3f} at most, so the curve of this run does not speak for its result; "
            "raise --train.validation-characters.",
            stacklevel=2,
        )


def _scores(validator, summaries) -> dict:
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
        "val_word_perplexity": word_perplexity(per_character, validator.text),
        "val_word_perplexity_streaming": word_perplexity(per_character_streaming, validator.text),
        "val_loss_by_position": validator.chunked_token_losses.mean(axis=0, dtype="float64").tolist(),
    }


def text_and_ids(tokenizer, validation: str | np.ndarray) -> tuple[str, np.ndarray]:
    """Return a text, in which U+001E begins a document, and its ids `[N]`, of which one is given."""
    if isinstance(validation, str):
        return validation, encode_documents(tokenizer, validation)
    return decode_documents(tokenizer, validation), np.asarray(validation)


class LanguageModelValidator:
    """Compute `val_loss` and `val_loss_streaming` of a text or of ids `[N]`, and generate a text sample.

    A call returns `Summaries` and keeps the token losses `[windows, T]` as `chunked_token_losses`. In the text U+001E
    begins a document. `sample` is the `ValidationSample` to score; None scores all.
    """

    sample: ValidationSample | None = None

    def __init__(self, model: keras.Model, tokenizer, validation, sequence_length: int, sample_length: int):
        self.evaluator, self.generator = get_evaluator(model), TextGenerator(model, tokenizer)
        self.text, self.ids = text, _ = text_and_ids(tokenizer, validation)
        self.sequence_length = sequence_length
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
