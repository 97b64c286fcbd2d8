"""Learn to say a random sequence backwards, and show by its loss that a model does not see the future.

    python -m experiments.reverse
    python -m experiments.reverse --broken-mask --steps 300          # a Transformer without a causal mask: it is caught
    python -m experiments.reverse --smoke                            # seconds, tiny: does everything work?
    python -m experiments.reverse --resume logs/reverse/20260101-120000

Seven minutes on 2 busy cores. To expect on 20,000 new sequences of 1 to 20 letters, the trained lengths, with seed 0:

    Transformer   102,464 parameters   second half 100.00 % right   sequences 100.00 %   first half 3.259 nats a letter
    LSTM          338,013              99.09 %                      91.42 %              3.268

where log 26 = 3.258 is the least without seeing the future; without the mask it is 0.030, and the status is 1. The LSTM
has to hold all letters in its state, and gets 44 % of the sequences of 20. At lengths never trained on both fail: no
sequence of 21 letters for the Transformer, new to such positions, 23 % for the LSTM, and 10 to 12 % of ids at 40.
"""

import dataclasses
import math
import pathlib
import sys

import keras
import numpy as np

from experiments import pictures, reverse_report
from experiments.reverse_scores import Score, Scorer, attention, spelled, verdict
from experiments.reverse_settings import BROKEN, Reverse, tiny
from experiments.runs import begin, config
from experiments.startup import one_sentence
from keras_seq import training
from keras_seq.evaluation import TokenCrossEntropy
from keras_seq.layers import TransformerBlock
from keras_seq.saving import save_model
from keras_seq.tracking import Summaries

VALIDATION, TEST = 2**40, 2**41  # added to the seed of training: sequences of their own


def build(settings: Reverse, name) -> keras.Model:
    """The Keras model."""
    model = settings.model(name).build_model(settings.task.vocabulary_size, dtype=settings.train.dtype_policy)
    return without_mask(model) if name == BROKEN else model


def without_mask(model) -> keras.Model:
    """The layers of a language model with attention that sees all positions; `LanguageModel` refuses such blocks."""
    ids = keras.Input((None,), dtype="int32")
    x = model.embedding(ids)
    for block in model.blocks:
        if isinstance(block, TransformerBlock):
            block = TransformerBlock.from_config({**block.get_config(), "causal": False})
        x = block(x)
    return keras.Model(ids, model.embedding(x, reverse=True) if model.head is None else model.head(x), name="broken")


class Look:
    """Called, it scores a model on the sequences of validations, has it write some, and draws where it looks."""

    def __init__(self, model, scorer: Scorer, settings: Reverse):
        self.model, self.scorer, self.task = model, scorer, settings.task
        self.seed, self.sequences = settings.seed + VALIDATION, settings.validation_sequences

    def __call__(self) -> Summaries:
        longest = self.task.max_length
        scores = self.scorer(range(1, longest + 1), self.sequences, self.seed)
        (row,) = self.rows(longest, count=1)
        maps = attention(self.model, row[:-1])
        drawn = reverse_report.attention_maps(maps, spelled(row[:-1], self.task)) if maps else None
        return Summaries(
            sum(scores.values(), Score()).scalars,
            {"sample": "\n".join(self.sample(length) for length in (longest, longest + 1, 2 * longest))},
            {} if drawn is None else {"attention": pictures.pixels(drawn)},
        )

    def rows(self, length, count):
        """Whole sequences `[count, 2 L + 3]`."""
        x, y = dataclasses.replace(self.task.with_length(length), batch_size=count, seed=self.seed + length).batch(0)
        return np.concatenate([x, y[:, -1:]], axis=1)

    def sample(self, length):
        """Sequences of one length, and what the model writes behind the separator."""
        lines = [f"{length} letters{'' if length <= self.task.max_length else ', a length never trained on'}:"]
        rows = self.rows(length, count=3)
        for right, written in zip(rows, self.scorer.write(rows[:, : length + 2]), strict=True):
            text = spelled(written, self.task)
            hits = (right == written)[length + 2 :].sum()
            lines.append(f"    {text[: length + 2]} {text[length + 2 :]}   {hits} right of {length + 1}")
        return "\n".join(lines)


def train_one(folder, settings: Reverse, name) -> dict:
    """One run: one model. Returns what result.json says."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(settings.seed)
    task, model = settings.task, build(settings, name)
    scorer = Scorer(model, task)
    train = {**dataclasses.asdict(settings.train), **settings.train.resolved(model)}
    print(f"\n{folder.name}, {model.count_params():,} parameters")
    loss, tokens_per_step = TokenCrossEntropy(), task.tokens_per_step
    training.compile_model(model, settings.train, settings.steps, loss, tokens_per_step=tokens_per_step)
    record, summaries = training.fit_resumable(
        folder,
        model,
        task.dataset,
        tokens_per_step,
        settings.steps,
        settings.train,
        Look(model, scorer, settings),
        config(settings, name, settings.model(name), train, seed=settings.seed),
        folder.name,
    )
    save_model(folder / "model.keras", model)
    tokens = record.step * tokens_per_step
    result = {
        "parameters": model.count_params(),
        "train_tokens": tokens,
        "train_seconds": record.seconds,
        "tokens_per_second": tokens / record.seconds,
        **tested(settings, scorer),
        "sample": summaries.texts["sample"],
    }
    training.write_result(folder, result)
    return result


def tested(settings: Reverse, scorer: Scorer) -> dict:
    """The figures on new sequences: of all trained lengths together, of each length up to twice the longest."""
    longest = settings.max_length
    scores = scorer(range(1, 2 * longest + 1), settings.test_sequences, settings.seed + TEST)
    figures = sum((scores[length] for length in range(1, longest + 1)), Score()).scalars
    causal, passed, sentence = verdict(figures["first_half_loss"], settings.alphabet_size)
    return {
        **figures,
        "entropy": math.log(settings.alphabet_size),
        "causal": causal,
        "passed": passed,
        "verdict": sentence,
        "by_length": [
            {"length": length, "trained": length <= longest, **score.scalars} for length, score in scores.items()
        ],
    }


def compare(settings: Reverse, folder: pathlib.Path) -> list[dict]:
    """Trains all that is not yet trained in `folder`, then writes the report. Returns its rows."""
    for name in settings.names:  # what cannot be built is an error now, before anything is written
        build(settings, name)
    task = settings.task
    print(
        f"1 to {task.max_length} of {task.alphabet_size} letters; {settings.steps:,} steps of {task.batch_size} "
        f"sequences, {settings.steps * task.tokens_per_step:,} tokens to predict"
    )
    rows = []
    for name in settings.names:
        run = folder / f"{name}-seed{settings.seed}"
        result = training.load_result(run) or train_one(run, settings, name)
        rows.append({"model": name, "run": run.name, **result})
    reverse_report.write(folder, rows)
    return rows


@one_sentence("experiments.reverse")
def main(arguments=None):
    """The command line."""
    with begin(Reverse, "reverse", __doc__, arguments, tiny) as (settings, folder):
        rows = compare(settings, folder)
        print(reverse_report.closing(folder, rows))
        if not all(row["passed"] for row in rows):
            sys.exit(1)


if __name__ == "__main__":
    main()
