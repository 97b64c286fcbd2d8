"""Can a model reverse a random sequence, and does the causal mask hide all future tokens from it?

    python -m experiments.sequence_reversal
    python -m experiments.sequence_reversal --broken-mask --steps 300    # no causal mask: the check has to fail
    python -m experiments.sequence_reversal --smoke                      # tiny sizes, takes seconds

Time: 7 minutes on 2 cores.

A causal model cannot have a first half loss below log 26 = 3.258 on average; if one has, the exit status is 1. Expected
for new sequences: the Transformer reverses 100 % of them with a first half loss of 3.259, the LSTM 91.4 % with 3.268.
"""

import dataclasses
import math
import pathlib
import string
from collections.abc import Sequence
from typing import Annotated, Literal

import keras
import numpy as np
import tyro
from keras import ops

from experiments.common.command import experiment_main
from experiments.common.tasks import run_task
from keras_seq import training
from keras_seq.callbacks import AttentionMaps
from keras_seq.commands.options import LogDir, Resume, Smoke, check_options, check_unique
from keras_seq.data.synthetic import Reversal
from keras_seq.evaluation import TokenCrossEntropy
from keras_seq.evaluation.losses import token_losses
from keras_seq.layers import TransformerBlock
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.ops.compiled import compiled
from keras_seq.reports import plots
from keras_seq.reports.tables import Report, Table, percent_interval, without_texts
from keras_seq.tracking import Summaries

LETTERS = string.ascii_lowercase + string.ascii_uppercase
NON_CAUSAL = "non_causal"  # a Transformer without a causal mask


@dataclasses.dataclass(frozen=True)
class SequenceReversalConfig:
    """Train models to output the reverse of a random sequence."""

    models: tuple[Literal["transformer", "lstm"], ...] = ("transformer", "lstm")
    """Models to train, in this order."""
    alphabet_size: int = 26
    """Number of different letters."""
    max_length: int = 20
    """Letters in the longest training sequence; the shortest has one. Tests go up to twice this length."""
    steps: int = 1500
    """Training steps of each model."""
    batch_size: int = 64
    """Sequences in a batch."""
    validation_sequences: int = 100
    """Sequences of each training length in a validation."""
    test_sequences: int = 1000
    """Sequences of each length in the final test, different from those of the validations."""
    broken_mask: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Train a Transformer without a causal mask instead of the models; the causality check has to fail."""
    seed: int = 0
    """Random seed of the weights and sequences."""
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = training.TrainConfig(validate_every=100)
    transformer: TransformerConfig = TransformerConfig(
        64, num_layers=2, num_heads=2, feed_forward_dim=256, kernel_size=None, use_output_gate=False
    )
    lstm: LSTMConfig = LSTMConfig(units=256)

    def __post_init__(self):
        check_options(self, max_length=1, steps=1, batch_size=1, validation_sequences=1, test_sequences=1)
        check_unique("--models", self.models)
        if not 2 <= self.alphabet_size <= len(LETTERS):
            raise ValueError(f"--alphabet-size {self.alphabet_size}: expected 2 to {len(LETTERS)} letters.")
        length = self.transformer.context_length
        if length is not None and length < self.longest_sequence:
            longest = f"{self.longest_sequence}, the length of the longest test sequences"
            raise ValueError(f"--transformer.context-length {length}: expected at least {longest}.")

    def options_without_effect(self) -> dict[str, str]:
        return dict.fromkeys(("models", "lstm"), "no --broken-mask") if self.broken_mask else {}

    @property
    def reversal(self) -> Reversal:
        """The training sequences."""
        return Reversal(self.alphabet_size, 1, self.max_length, self.batch_size, self.seed)

    @property
    def longest_sequence(self) -> int:
        """Positions of the longest test sequences."""
        return self.reversal.with_length(2 * self.max_length).sequence_length

    @property
    def model_names(self) -> tuple[str, ...]:
        """Names of the models to train."""
        return (NON_CAUSAL,) if self.broken_mask else self.models

    def model_config(self, name: str) -> TransformerConfig | LSTMConfig:
        """Return the config of a model, with a context length that fits the longest test sequences."""
        if name == "lstm":
            return self.lstm
        length = self.transformer.context_length or self.longest_sequence
        return dataclasses.replace(self.transformer, context_length=length)


SMOKE = {
    **{"alphabet_size": 4, "max_length": 3, "steps": 300, "batch_size": 64},
    **{"validation_sequences": 20, "test_sequences": 200},
    "train": {"warmup_steps": 4, "log_every": 25, "validate_every": 150, "checkpoint_every": 150},
    "transformer": {"embedding_dim": 16, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 32},
    "lstm": {"embedding_dim": 16, "units": 32},
}


# The second half of a sequence is the ids after the separator, correct where argmax(logits) is the target; the first
# half the letters before it, given that a letter comes: loss = logsumexp(z_a over all letters a) - z_y. The inputs are
# the true ids (teacher forcing). Greedy generation of a causal model gets a sequence right exactly if teacher forcing
# has all its ids right: up to the first mistake both have the same inputs.
VALIDATION, TEST = 2**40, 2**41  # added to the training seed, so that no sequence is shared
BATCH_SIZE = 250  # sequences scored at a time
MAX_LETTERS_IN_IMAGE = 7
SCORES = ("val_loss", "second_half_accuracy", "sequence_accuracy", "first_half_loss")


def build_model(settings: SequenceReversalConfig, name: str) -> keras.Model:
    """Build the model: a Transformer, an LSTM, or `NON_CAUSAL`."""
    dtype = settings.train.dtype_policy
    model = settings.model_config(name).build_model(settings.reversal.vocabulary_size, dtype=dtype)
    return remove_causal_mask(model) if name == NON_CAUSAL else model


def remove_causal_mask(model: keras.Model) -> keras.Model:
    """Rebuild a language model with attention to all positions as a functional one: `LanguageModel` refuses that."""
    ids = keras.Input((None,), dtype="int32")
    x = model.embedding(ids)
    for block in model.blocks:
        if isinstance(block, TransformerBlock):
            block = TransformerBlock.from_config({**block.get_config(), "causal": False})
        x = block(x)
    logits = model.embedding(x, reverse=True) if model.head is None else model.head(x)
    return keras.Model(ids, logits, name=NON_CAUSAL)


def batch_sums(logits, x, y, reversal: Reversal) -> np.ndarray:
    """Sum numerators and denominators of the scores, `[4, 2]`, of logits `[B, T, V]` for ids and targets `[B, T]`."""

    def losses(logits, targets):  # -log p, 0 where a target is -1
        return ops.convert_to_numpy(token_losses(logits, targets))

    logits, has_target = ops.convert_to_numpy(ops.cast(logits, "float32")), y >= 0
    second_half = (np.cumsum(x == reversal.separator, axis=1) > 0) & has_target
    first_half = has_target & ~second_half & (y < reversal.alphabet_size)
    correct = logits.argmax(-1) == y
    ratios = (
        (losses(logits, y), has_target),
        (correct & second_half, second_half),
        (np.all(correct | ~second_half, axis=1), np.ones(len(x))),
        (losses(logits[..., : reversal.alphabet_size], np.where(first_half, y, -1)), first_half),
    )
    return np.array([[values.sum(dtype="float64") for values in ratio] for ratio in ratios])


def means(sums: np.ndarray) -> dict[str, float]:
    """Return the scores by name from sums `[4, 2]`."""
    return dict(zip(SCORES, (sums[:, 0] / sums[:, 1]).tolist(), strict=True))


def to_letters(row, reversal: Reversal) -> str:
    """Decode ids `[T]` as text, such as `<abc|cba>`."""
    symbols = LETTERS[: reversal.alphabet_size] + "|><"
    return "".join(symbols[i] for i in row)


class ReversalTask:
    """Sequence reversal for one model (`experiments.common.tasks.Task`), whose logits are compiled once."""

    def __init__(self, model: keras.Model, settings: SequenceReversalConfig):
        self.model, self.settings, self.reversal = model, settings, settings.reversal
        self.loss, self.diagnostics = TokenCrossEntropy(), [self.attention]
        self.dataset, self.tokens_per_step = self.reversal.dataset, self.reversal.tokens_per_step
        self.logits = compiled(lambda ids: model(ids, training=False), model, reduce_retracing=True)

    def validate(self) -> Summaries:
        """Score sequences of the training lengths, and complete some of these and of other lengths."""
        max_length = self.reversal.max_length
        counts = (self.settings.validation_sequences, self.settings.seed + VALIDATION)
        sums = [self.sums(length, *counts) for length in range(1, max_length + 1)]
        sample = "\n".join(self.sample(length) for length in (max_length, max_length + 1, 2 * max_length))
        return Summaries(means(sum(sums)), {"sample": sample})

    def test(self) -> dict:
        """Score sequences of all training lengths together, and of each length up to twice the longest."""
        max_length, count = self.reversal.max_length, self.settings.test_sequences
        sums = [self.sums(length, count, self.settings.seed + TEST) for length in range(1, 2 * max_length + 1)]
        groups = [
            {"group": length, "trained": length <= max_length, "examples": count, **means(part)}
            for length, part in enumerate(sums, start=1)
        ]
        return {**means(sum(sums[:max_length])), "entropy": math.log(self.reversal.alphabet_size), "groups": groups}

    def attention(self) -> Summaries:
        """Return an image of each attention layer on a short sequence; none for a model without such a layer."""
        (row,) = self.rows(min(self.reversal.max_length, MAX_LETTERS_IN_IMAGE), 1)
        maps = AttentionMaps(row[None, :-1], to_letters(row[:-1], self.reversal))
        return dataclasses.replace(maps.compute_summaries(self.model), scalars={}, histograms={})

    def sums(self, length: int, count: int, seed: int) -> np.ndarray:
        """Sum numerators and denominators of the scores, `[4, 2]`, over this many sequences of one length."""
        batching = {"batch_size": min(BATCH_SIZE, count), "seed": seed + length}  # a different seed for each length
        reversal = dataclasses.replace(self.reversal.with_length(length), **batching)
        total = np.zeros((len(SCORES), 2))
        for step, remaining in enumerate(range(count, 0, -reversal.batch_size)):
            x, y = (ids[:remaining] for ids in reversal.batch(step))
            total += batch_sums(self.logits(x), x, y, reversal)
        return total

    def rows(self, length: int, count: int) -> np.ndarray:
        """Draw sequences of validation with this number of letters, from start to end: ids `[count, 2 length + 3]`."""
        seed = self.settings.seed + VALIDATION + length
        x, y = dataclasses.replace(self.reversal.with_length(length), batch_size=count, seed=seed).batch(0)
        return np.concatenate([x, y[:, -1:]], axis=1)

    def complete(self, prompts: np.ndarray) -> np.ndarray:
        """Complete `start a_1 ... a_L |`, ids `[B, L + 2]`, by greedy generation to ids `[B, 2 L + 3]`."""
        # Each step runs the model on the whole row, padded with end ids, which a causal model ignores.
        rows = np.pad(prompts, ((0, 0), (0, prompts.shape[1] - 1)), constant_values=self.reversal.end)
        for t in range(prompts.shape[1], rows.shape[1]):
            rows[:, t] = ops.convert_to_numpy(self.logits(rows[:, :-1])[:, t - 1]).argmax(-1)
        return rows

    def sample(self, length: int) -> str:
        """Return three sequences of one length, as the model completes them after the separator."""
        lines = [f"{length} letters{'' if length <= self.reversal.max_length else ', a length not trained on'}:"]
        rows = self.rows(length, 3)
        for target, generated in zip(rows, self.complete(rows[:, : length + 2]), strict=True):
            text, num_correct = to_letters(generated, self.reversal), (target == generated)[length + 2 :].sum()
            lines.append(f"    {text[: length + 2]} {text[length + 2 :]}   {num_correct} of {length + 1} correct")
        return "\n".join(lines)


TOLERANCE = 0.02  # relative, of the first half loss around log A, the least of a causal model with A letters
COLUMNS = {
    **{"model": "{model}".format_map, "parameters": "{parameters:,}".format_map},
    **{"train tokens": "{train_tokens:,}".format_map, "train seconds": "{train_seconds:.0f}".format_map},
    "second half accuracy": "{second_half_accuracy:.2%}".format_map,
    "sequence accuracy": "{sequence_accuracy:.2%}".format_map,
    "first half loss": "{first_half_loss:.3f}".format_map,
}
NOTES = (
    "The test sequences are new, with equally many of each training length. second half accuracy: of the ids after the "
    "separator. sequence accuracy: the fraction of sequences with a correct second half; greedy generation of a causal "
    "model has the same. first half loss: nats per letter before the separator, given that a letter comes."
)
STYLES = {"second_half_accuracy": {"linestyle": "-"}, "sequence_accuracy": {"linestyle": (0, (3, 1.5))}}


def causality(row: dict) -> tuple[bool, str]:
    """Return whether the first half loss is that of a causal model, as low as it can be, and a sentence about it."""
    entropy, loss = row["entropy"], row["first_half_loss"]
    measured = f"its first half loss is {loss:.3f} nats per letter"
    bound = f"log {round(math.exp(entropy))} = {entropy:.3f}"
    if loss < (1 - TOLERANCE) * entropy:
        return False, f"The {row['model']} is not causal, it sees future tokens: {measured}; the minimum is {bound}."
    if loss > (1 + TOLERANCE) * entropy:
        return False, f"The {row['model']} has not learned that letters are equally likely: {measured}, above {bound}."
    return True, f"The {row['model']} is causal: {measured}; the minimum without seeing future tokens is {bound}."


def failures(rows: Sequence[dict]) -> list[str]:
    """Return the sentences about the models that do not pass the check."""
    return [sentence for is_passed, sentence in map(causality, rows) if not is_passed]


def verdict(rows: Sequence[dict]) -> str:
    """Say of each model whether it is causal, and how many whole sequences it reverses."""
    count = sum(part["examples"] for part in rows[0]["groups"] if part["trained"])
    correct = [f"{row['model']} {percent_interval(row['sequence_accuracy'], count)}" for row in rows]
    ends = f"Whole sequences reversed, of {count:,} of the training lengths: {', '.join(correct)}; one seed each."
    return " ".join([*(causality(row)[1] for row in rows), ends])


def lengths(rows: Sequence[dict]) -> Table:
    """Return the accuracies at each length, with a star at training lengths."""
    header = ["length", *(f"{row['model']}, {name}" for row in rows for name in ("ids", "sequences"))]
    lines = []
    for parts in zip(*(row["groups"] for row in rows), strict=True):
        shares = [f"{part[key]:.2%}" for part in parts for key in STYLES]
        lines.append([f"{parts[0]['group']}{' *' if parts[0]['trained'] else '  '}", *shares])
    return Table(header, lines)


def plot(folder: pathlib.Path, rows: Sequence[dict]):
    """Write sequence_reversal.png: accuracies and first half loss during training, and accuracies by length."""
    figure, axes = plots.subplot_mosaic([["accuracy", "lengths"], ["loss", "lengths"]], figsize=(11, 5.4))
    plots.task_curves(axes["accuracy"], folder, rows, STYLES)
    plots.task_curves(axes["loss"], folder, rows, {"first_half_loss": {}})
    plots.by_group(axes["lengths"], rows, STYLES, "letters in the sequence")
    for name in ("accuracy", "lengths"):
        plots.accuracy_axis(axes[name])
        axes[name].set_ylabel("accuracy")
    axes["accuracy"].set_xlabel("")
    styles = dict(zip(("ids of the second half", "whole sequences"), STYLES.values(), strict=True))
    plots.legend(axes["accuracy"], plots.model_colors(rows), styles, loc="lower right", ncols=2)
    entropy, text = rows[0]["entropy"], f"± {TOLERANCE:.0%};\nless means seeing future tokens"
    axes["loss"].axhspan((1 - TOLERANCE) * entropy, (1 + TOLERANCE) * entropy, color="0.93", zorder=0)
    line = axes["loss"].axhline(entropy, color="0.3", linestyle=":", label=f"entropy of a letter {entropy:.3f} {text}")
    axes["loss"].legend(handles=[line])
    axes["loss"].set_ylabel("first half loss (nats per letter)")
    plots.save(figure, folder / "sequence_reversal.png")


def compare(settings: SequenceReversalConfig, folder: pathlib.Path) -> Report:
    """Train all models that are not finished in `folder`, and report whether they are causal."""
    for name in settings.model_names:  # raises before anything is written
        build_model(settings, name)
    reversal, steps = settings.reversal, settings.steps
    print(
        f"Sequences of 1 to {reversal.max_length} letters, {reversal.alphabet_size} different ones; {steps:,} steps of "
        f"{reversal.batch_size} sequences, {steps * reversal.tokens_per_step:,} target tokens"
    )

    def new_task(name):
        return ReversalTask(build_model(settings, name), settings)

    configs = {name: settings.model_config(name) for name in settings.model_names}
    rows = [run_task(folder, settings, *model, new_task) for model in configs.items()]
    plot(folder, rows)
    image = "![Accuracy during training and by length, and the first half loss](sequence_reversal.png)"
    return Report(
        "Sequence reversal",
        verdict(rows),
        Table.of(rows, COLUMNS),
        ("model", "second half accuracy", "sequence accuracy", "first half loss"),
        without_texts(rows),
        NOTES,
        [image, "## By length (* training length)", lengths(rows)],
        {f"Samples of {row['model']}": row["sample"] for row in rows},
        failures(rows),
    )


main = experiment_main("sequence_reversal", SequenceReversalConfig, SMOKE, compare, __doc__)

if __name__ == "__main__":
    main()
