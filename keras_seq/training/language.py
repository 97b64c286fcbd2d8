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

from keras_seq.generation import Generator
from keras_seq.layers import Carry, arguments
from keras_seq.layers.structure import check_tokenizer
from keras_seq.text import Lanes
from keras_seq.training.alone import alone
from keras_seq.training.compiling import compile_for
from keras_seq.training.evaluate import Score, evaluator_of, perplexity_per_word
from keras_seq.training.files import replacing
from keras_seq.training.loop import fit, save_model
from keras_seq.training.measured import Measured
from keras_seq.training.results import described, write_result
from keras_seq.training.settings import Train


def carried(model, batch_size, length):
    """A model for `fit` around `Carry(model)`: `((ids [B, T], fresh [B]), targets [B, T])`."""
    ids = keras.Input((length,), batch_size=batch_size, dtype="int32", name="ids")
    fresh = keras.Input((), batch_size=batch_size, dtype="bool", name="fresh")
    return keras.Model([ids, fresh], Carry(model, batch_size, name="carry")(ids, fresh), name=f"carried_{model.name}")


def run(
    folder,
    model,
    tokenizer,
    windows,
    validation: str,
    total_steps,
    train: Train,
    settings: dict,
    name="model",
    score_length=None,
    looks=(),
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
    arguments.positive_integer("total_steps", total_steps)
    folder = pathlib.Path(folder)
    settings = {**settings, "vocabulary": described(tokenizer)}
    carry = isinstance(windows, Lanes) and model.context is None
    trainee = carried(model, windows.batch_size, windows.length) if carry else model
    tokens_per_step = windows.batch_size * windows.length
    compile_for(trainee, train, total_steps, tokens_per_step=tokens_per_step)
    whole = look = Look(model, tokenizer, validation, score_length or windows.length, train.sample_length)
    part = train.validated_part(validation)
    if len(part) < len(validation):
        look = Look(model, tokenizer, part, whole.length, train.sample_length)
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder):
        record, measured = fit(
            folder,
            trainee,
            windows.carried if carry else windows.dataset,
            tokens_per_step,
            total_steps,
            train,
            look,
            settings,
            name,
            whole.characters_per_token,
            [functools.partial(further.measure, model) for further in looks],
            callbacks,
            final=None if look is whole else whole,
            final_times=len(validation) / len(part),
            hold=contextlib.nullcontext,
        )
        tokenizer.save(folder / "vocabulary.json")
        save_model(folder / "model.keras", model)
        with replacing(folder / "losses.npy") as temporary:
            np.save(temporary, whole.cold_nats)
        result = _result(model, whole, record, measured, tokens_per_step, validation)
        write_result(folder, result)
    return result


def _result(model, whole, record, measured, tokens_per_step, validation) -> dict:
    """The final figures."""
    cold, warm = measured.figures["nats_per_token"], measured.figures["warm_nats_per_token"]
    nats_per_character = {
        "training": record.loss / whole.characters_per_token,
        "cold": cold / whole.characters_per_token,
        "warm": warm / whole.characters_per_token,
    }
    return {
        "parameters": model.count_params(),
        "training_tokens": record.step * tokens_per_step,
        "training_seconds": record.seconds,
        "tokens_per_second": record.step * tokens_per_step / record.seconds,
        "characters_per_token": whole.characters_per_token,
        "cold_nats_per_token": cold,
        "cold_context": whole.length,
        "warm_nats_per_token": warm,
        **{f"{kind}_nats_per_character": nats for kind, nats in nats_per_character.items()},
        "bits_per_character": nats_per_character["cold"] / math.log(2),
        "warm_bits_per_character": nats_per_character["warm"] / math.log(2),
        "perplexity_per_token": math.exp(cold),
        "warm_perplexity_per_token": math.exp(warm),
        "perplexity_per_word": perplexity_per_word(nats_per_character["cold"], validation),
        "warm_perplexity_per_word": perplexity_per_word(nats_per_character["warm"], validation),
        "cold_nats_by_position": whole.cold_nats.mean(axis=0, dtype="float64").tolist(),
        "sample": measured.texts["sample"],
    }


class Look:
    """Called, it scores a text, cold and warm, and draws a sample of text.

    Raises:
        ValueError: the text makes no window of `length` tokens.
    """

    def __init__(self, model, tokenizer, text, length, sample_length):
        self.evaluator, self.generator = evaluator_of(model), Generator(model, tokenizer)
        self.ids, self.length, self.sample_length = tokenizer.encode(text).numpy(), length, sample_length
        if len(self.ids) <= length:
            raise ValueError(
                f"{len(text):,} characters to validate on are {len(self.ids)} tokens: expected at least {length + 1}, "
                "a window and the one behind it; give a longer text, or more --train.validation-characters."
            )
        self.characters_per_token = len(text) / len(self.ids)
        starts_line = "\n" in text and len(tokenizer.encode("\n"))
        self.prompt = "\n" if starts_line else tokenizer.decode(self.ids[:1])

    def __call__(self) -> Measured:
        self.cold_nats = self.evaluator.cold_nats(self.ids, self.length)
        cold, warm = Score.of(self.cold_nats), self.evaluator.warm(self.ids)
        return Measured(
            {
                "nats_per_token": cold.nats_per_token,
                "warm_nats_per_token": warm.nats_per_token,
                "bits_per_character": cold.bits_per_token / self.characters_per_token,
            },
            {"sample": self.generator(self.prompt, self.sample_length, temperature=0.8)},
        )
