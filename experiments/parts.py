"""Which parts that are said to help a Transformer or an LSTM lower its loss on held-out text, each by itself?

    python -m experiments.parts                                # every part of the Transformer, three seeds
    python -m experiments.parts --model lstm                   # every part of the LSTM
    python -m experiments.parts --parts sinks batch-6          # some of them, beside the baseline
    python -m experiments.parts --smoke                        # seconds, tiny sizes: test that it works

Time: 2.5 hours for the Transformer, 1.3 for the LSTM, on 2 cores.

A part is a change of the baseline (PARTS), which is today's default. It is trained with the same seeds, on the training
split without its last tenth, and scored on that tenth. Differences to the baseline are paired by seed; a part helps if
the 95 % interval of its difference is below zero. The validation split is not read.
"""

import dataclasses
import math
import pathlib
import statistics
from collections.abc import Callable, Sequence
from typing import Literal

import keras

from experiments.common.command import experiment_main
from experiments.common.jobs import run_all
from keras_seq import layers, training
from keras_seq.commands import options
from keras_seq.commands.options import SMOKE_TRAIN, check_options
from keras_seq.data import RandomWindows
from keras_seq.evaluation import Difference, Evaluator
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.models.config import match_parameter_count, shapes_only
from keras_seq.reports import plots
from keras_seq.reports.tables import Report, Table, plus_minus
from keras_seq.runs.folders import is_run, run_config
from keras_seq.runs.texts import SplitCorpus, split_corpus
from keras_seq.runs.train import DEFAULT_TRAIN, TOKENS, recurrent_windows, training_windows
from keras_seq.tracking import Summaries
from keras_seq.training.run_config import read_config


@keras.saving.register_keras_serializable("experiments")
def relu_squared(x):
    """Compute relu(x)^2 (So et al., 2021, arXiv:2109.08668)."""
    return keras.ops.square(keras.ops.relu(x))


@dataclasses.dataclass(frozen=True)
class TransformerVariantConfig(TransformerConfig):
    """Configure a variant of the Transformer."""

    activation: Literal["gelu", "relu_squared"] = "gelu"
    """Activation of the feed-forward networks."""

    def block(self, n: int, dtype=None) -> layers.TransformerBlock:
        """Return block n."""
        activation = relu_squared if self.activation == "relu_squared" else self.activation
        return layers.TransformerBlock.from_config({**super().block(n, dtype).get_config(), "activation": activation})


@dataclasses.dataclass(frozen=True)
class LSTMVariantConfig(LSTMConfig):
    """Configure a variant of the LSTM."""

    use_normalization: bool = False
    """Whether the output of each LSTM is normalized by its root mean square."""

    def blocks(self, dtype=None) -> list:
        """Return the layers between embedding and head."""
        return [each for block in super().blocks(dtype) for each in (block, *self._normalization(block, dtype))]

    def _normalization(self, block, dtype):
        after = self.use_normalization and isinstance(block, layers.LSTM)
        return [layers.RMSNormalization(dtype=dtype, name=f"normalization_{block.name}")] if after else []


class NextTwo(keras.layers.Layer):
    """The logits of a language model; in training a second head, thrown away later, predicts the token after the next.

    Its loss is added with a weight (Gloeckle et al., 2024, arXiv:2404.19737).
    """

    def __init__(self, model: keras.Model, weight: float):
        super().__init__()
        self.model, self.weight = model, weight
        self.head = layers.Dense(model.embedding.input_dim, use_bias=False)

    def call(self, ids, training=None):
        """Compute logits `[B, T, V]` of ids `[B, T]`."""
        x, _ = self.model.hidden_states(ids, training=training)
        logits = keras.ops.cast(self.head(x[:, :-2]), "float32")  # [B, T - 2, V]
        loss = keras.losses.sparse_categorical_crossentropy(ids[:, 2:], logits, from_logits=True)
        self.add_loss(self.weight * keras.ops.mean(loss))
        return self.model.logits(x)


def next_two(model: keras.Model, windows: RandomWindows) -> tuple[keras.Model, Callable]:
    """Return what `fit` trains to predict two tokens, and its batches."""
    ids = keras.Input((windows.sequence_length,), batch_size=windows.batch_size, dtype="int32")
    return keras.Model(ids, NextTwo(model, weight=0.3)(ids)), windows.dataset


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Hold what differs from the baseline: fields of the model's config, and how it is trained."""

    fields: dict = dataclasses.field(default_factory=dict)
    batch_size: int | None = None
    windows: str | None = None
    use_ema: bool = True
    fit_inputs: Callable = training.fit_inputs
    matched: bool = False  # whether its widths are changed, to the baseline's number of parameters


PARTS = {
    "transformer": {
        "stateful-windows": Recipe(windows="stateful"),  # each token once in an epoch; no state is carried
        "no-convolution": Recipe({"kernel_size": None}),
        "relu-squared": Recipe({"activation": "relu_squared"}),
        "tied": Recipe({"tie_embeddings": True}),
        "deeper": Recipe({"num_layers": 6}, matched=True),
        "dropout": Recipe({"dropout": 0.1}),
        "no-output-gate": Recipe({"use_output_gate": False}, matched=True),
        "sinks": Recipe({"use_sinks": True}),
        "forget-gate": Recipe({"use_forget_gate": True}),
        **{f"batch-{rows}": Recipe(batch_size=rows) for rows in (6, 24)},
        "last-weights": Recipe(use_ema=False),
        "next-two": Recipe(fit_inputs=next_two),
    },
    "lstm": {
        "random-windows": Recipe(windows="random"),  # left out where the baseline reads them
        "two-layers": Recipe({"num_layers": 2}, matched=True),
        "tied": Recipe({"tie_embeddings": True}, matched=True),
        "normalization": Recipe({"use_normalization": True}),
        "dropout": Recipe({"dropout": 0.1}),
        "recurrent-dropout": Recipe({"recurrent_dropout": 0.1}),
        **{f"batch-{rows}": Recipe(batch_size=rows) for rows in (6, 24)},
        "last-weights": Recipe(use_ema=False),
    },
}
VARIANTS = {"transformer": TransformerVariantConfig, "lstm": LSTMVariantConfig}
BASELINE = "baseline"


@dataclasses.dataclass(frozen=True)
class PartsConfig:
    """Train a model and variants of it, and compare their losses on held-out text."""

    model: Literal[tuple(PARTS)] = "transformer"
    """The model whose parts are compared."""
    parts: tuple[Literal[tuple(dict.fromkeys(name for parts in PARTS.values() for name in parts))], ...] = ()
    """Variants to train beside the baseline. Default: all of the model."""
    corpus: options.CorpusName = "shakespeare"
    num_seeds: int = 3
    """Number of runs of each variant, with the random seeds 0, 1, ..."""
    tokens: int = TOKENS
    """Training tokens of every run."""
    batch_size: options.BatchSize = 12
    sequence_length: options.SequenceLength = 64
    log_dir: options.LogDir = "logs"
    resume: options.Resume = None
    smoke: options.Smoke = False
    train: training.TrainConfig = DEFAULT_TRAIN
    transformer: TransformerConfig = TransformerConfig()
    lstm: LSTMConfig = LSTMConfig()

    def __post_init__(self):
        check_options(self, num_seeds=1, tokens=1, batch_size=1, sequence_length=4)
        options.check_unique("--parts", self.parts or [BASELINE])
        if others := [name for name in self.parts if name not in PARTS[self.model]]:
            expected = f"parts of the {self.model}: {', '.join(PARTS[self.model])}"
            raise ValueError(f"--parts {' '.join(others)}: expected {expected}.")
        context_length = self.transformer.context_length
        options.check_filled_in("--transformer.context-length", context_length, "the --sequence-length")
        if equal := [name for name in self.parts if self._is_baseline(PARTS[self.model][name])]:
            raise ValueError(f"--parts {' '.join(equal)}: the baseline has that by the other options; expected others.")

    def check_resumed(self, saved: "PartsConfig"):
        """Refuse to leave out parts of a training of all."""
        if self.parts and not saved.parts:
            raise ValueError(f"--parts {' '.join(self.parts)}: expected none, as all parts are in this folder.")

    @property
    def variants(self) -> dict[str, Recipe]:
        """The baseline and what is trained beside it."""
        parts = PARTS[self.model]
        names = [name for name, recipe in parts.items() if not self._is_baseline(recipe)]
        names = self.parts or names[-1 if self.smoke else 0 :]
        return {BASELINE: Recipe(), **{name: parts[name] for name in names}}

    def _is_baseline(self, recipe):
        """Return whether other options give a part to the baseline already; windows are those of its training."""
        baseline = getattr(self, self.model)
        has_fields = all(getattr(baseline, name, None) == value for name, value in recipe.fields.items())
        has_batch = recipe.batch_size in (None, self.batch_size)
        has_training = recipe.windows is None and recipe.fit_inputs is training.fit_inputs
        return has_fields and has_batch and has_training and (recipe.use_ema or not self.train.use_ema)

    def model_config(self, recipe: Recipe, vocabulary_size: int) -> TransformerConfig | LSTMConfig:
        """Return the config of a variant, with the baseline's number of parameters where it is `matched`."""
        baseline = getattr(self, self.model)
        if self.model == "transformer":
            baseline = dataclasses.replace(baseline, context_length=self.sequence_length)
        model_config = VARIANTS[self.model](**{**vars(baseline), **recipe.fields})
        if recipe.matched:
            with shapes_only():
                target = baseline.build_model(vocabulary_size).count_params()
            model_config = match_parameter_count(model_config, vocabulary_size, target)
        return model_config


SMOKE = {
    **{"corpus": "pydoc", "tokens": 10 * 4 * 16, "batch_size": 4, "sequence_length": 16, "num_seeds": 2},
    "train": SMOKE_TRAIN,
    "transformer": {"embedding_dim": 8, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 16},
    "lstm": {"embedding_dim": 8, "units": 8},
}


@dataclasses.dataclass(frozen=True)
class Variant:
    """Hold the runs of a variant, one for each seed, and how their losses differ from the baseline's."""

    name: str
    runs: list[dict]
    difference: Difference | None  # None for the baseline

    @property
    def losses(self) -> list[float]:
        """Return the held-out loss of each seed, in nats per token."""
        return [run["held_out_loss"] for run in self.runs]


def seed_difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Return the mean of `second` minus `first`, in pairs, with Student's 95 % interval: infinite for one pair."""
    from scipy import stats

    differences = [b - a for a, b in zip(first, second, strict=True)]
    mean, half = statistics.mean(differences), float("inf")
    if len(differences) > 1:
        half = stats.t.ppf(0.975, len(differences) - 1) * statistics.stdev(differences) / len(differences) ** 0.5
    return Difference(mean, mean - half, mean + half)


def by_variant(rows: Sequence[dict]) -> list[Variant]:
    """Group runs by variant: the baseline, then the others by their difference to it, the lowest first."""
    runs = {name: [row for row in rows if row["variant"] == name] for name in dict.fromkeys(r["variant"] for r in rows)}
    baseline = Variant(BASELINE, runs.pop(BASELINE), None)
    others = [Variant(name, group, None) for name, group in runs.items()]
    others = [dataclasses.replace(v, difference=seed_difference(baseline.losses, v.losses)) for v in others]
    return [baseline, *sorted(others, key=lambda variant: variant.difference.mean)]


def verdict(variants: Sequence[Variant]) -> str:
    """Say which parts help, which harm, and of which that is not known."""
    baseline, *others = variants
    kinds = {"lower": [], "higher": [], "not certainly different": []}
    for each in others:
        change = f"{each.name} {each.difference.mean:+.4f}"
        kind = ("lower" if each.difference.mean < 0 else "higher") if each.difference.significant else [*kinds][-1]
        kinds[kind].append(change)
    effects = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names) or "no other variant"
    count = len(baseline.runs)
    seeds = "one seed, so no interval" if count == 1 else f"{count} seeds, 95 % intervals"
    loss = plus_minus(baseline.losses, 4)
    return f"The baseline has a held-out loss of {loss} nats per token. Beside it, {effects} ({seeds})."


NOTES = (
    "Losses in nats per token, which is a character, unless the corpus is a folder of token ids, on disjoint windows "
    "of {length} tokens from the zero state or the empty cache, of the last tenth of the training split, without which "
    "all were trained; ±: standard deviation over the seeds. difference: to the baseline, paired by seed, with the 95 "
    "% interval of Student's t. speed: training tokens per second, relative to the baseline, without what surrounds "
    "the steps."
)


def table(variants: Sequence[Variant]) -> Table:
    """Return a line for each variant."""

    def interval(variant):
        d = variant.difference
        bounds = f" ({d.low:+.4f} to {d.high:+.4f})" if d and math.isfinite(d.low) else ""
        return "" if d is None else f"{d.mean:+.4f}{bounds}"

    def speed(variant):
        return statistics.median(run["train_tokens"] / run["train_seconds"] for run in variant.runs)

    columns = {
        "variant": lambda variant: variant.name,
        "parameters": lambda variant: f"{variant.runs[0]['parameters']:,}",
        "held-out loss": lambda variant: plus_minus(variant.losses, 4),
        "difference": interval,
        "speed": lambda variant: f"{speed(variant) / speed(variants[0]):.2f}",
    }
    return Table.of(variants, columns)


def plot(folder: pathlib.Path, variants: Sequence[Variant]):
    """Write parts.png: the difference of each variant with its interval, and the points of the seeds."""
    baseline, others = variants[0], variants[:0:-1]
    figure, axes = plots.subplots(figsize=(8, max(2.8, 1.6 + 0.4 * len(others))))
    for y, variant in enumerate(others):
        points = [b - a for a, b in zip(baseline.losses, variant.losses, strict=True)]
        if len(points) > 1:
            axes.plot([variant.difference.low, variant.difference.high], [y, y], color="C0", linewidth=2)
        axes.plot(points, [y] * len(points), "o", color="0.4", markersize=4)
        axes.plot(variant.difference.mean, y, "|", color="C0", markersize=14)
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.set_yticks(range(len(others)), [variant.name for variant in others])
    axes.set_xlabel("held-out loss minus the baseline's of the same seed (nats per token)")
    axes.grid(visible=False, axis="y")
    plots.save(figure, folder / "parts.png")


def baseline_windows(config: PartsConfig, data: SplitCorpus, folder: pathlib.Path) -> str:
    """Return the windows of the baseline; a ValueError names a part that is to differ from it by them, and does not."""
    first = folder / f"{BASELINE}-seed0"
    kind = "random" if config.model == "transformer" else recurrent_windows(data.train, config.tokens)
    kind = read_config(first)["windows"] if is_run(first) else kind  # trained further, it keeps them
    for name in config.parts:
        if config.variants[name].windows == kind:
            why = f"{config.tokens:,} of {len(data.train):,} tokens are read"
            raise ValueError(f"--parts {name}: the baseline has {kind} windows too, as {why}; expected more --tokens.")
    return kind


def train_one(
    run: pathlib.Path, config: PartsConfig, name: str, recipe: Recipe, model_config, data: SplitCorpus, seed: int
) -> dict:
    """Train a variant and score it on the held-out text."""
    train = dataclasses.replace(config.train, use_ema=config.train.use_ema and recipe.use_ema)
    model = model_config.build_model(data.tokenizer.vocabulary_size, dtype=train.dtype_policy)
    batch_size, length = recipe.batch_size or config.batch_size, config.sequence_length
    steps = options.num_steps(config.tokens, batch_size * length)
    kind = recipe.windows or baseline_windows(config, data, run.parent)
    windows = training_windows(kind, data.train, batch_size, length, seed)
    training_model, dataset_fn = recipe.fit_inputs(model, windows)
    evaluator = Evaluator(model)

    def validate(sample):
        return Summaries({"val_loss": evaluator.chunked_loss(data.held_out, length, sample).mean})

    extra = {"seed": seed, "batch_size": batch_size, "steps": steps, "windows": kind}
    return training.train_model(
        run,
        model,
        dataset_fn,
        windows.tokens_per_step,
        steps,
        train,
        config=run_config(config, name, model_config, train, model, data.corpus, **extra),
        training_model=training_model,
        tokenizer=data.tokenizer,
        characters_per_token=data.characters_per_token,
        finish=lambda summaries: {"held_out_loss": summaries.scalars["val_loss"]},
        **training.sampled_validation(validate, data.held_out, length, train),
    )


def train_parts(config: PartsConfig, folder: pathlib.Path) -> Report:
    """Train all runs that are not finished in `folder`, and report the comparison."""
    data = split_corpus(config.corpus, folder, config.sequence_length + 1, held_out=True)
    kind = baseline_windows(config, data, folder)
    variants = {
        name: (recipe, config.model_config(recipe, data.tokenizer.vocabulary_size))
        for name, recipe in config.variants.items()
        if recipe.windows != kind
    }
    plan = f"{len(variants)} variants x {config.num_seeds} seeds of {config.tokens:,} tokens"
    data.introduce(config.train, config.sequence_length + 1, plan, data.held_out)

    def run(name, seed):
        path = folder / f"{name}-seed{seed}"
        return path, seed, lambda: train_one(path, config, name, *variants[name], data, seed)

    planned = [(name, seed) for seed in range(config.num_seeds) for name in variants]
    runs = [run(*each) for each in planned]
    rows = [
        {"run": path.name, "variant": name, **result, "seed": seed}
        for (name, seed), (path, *_), result in zip(planned, runs, run_all(runs), strict=True)
    ]
    results = by_variant(rows)
    plot(folder, results)
    return Report(
        f"Parts of the {config.model} on {data.corpus.name}",
        verdict(results),
        table(results),
        ("variant", "held-out loss", "difference", "speed"),
        rows,
        NOTES.format(length=config.sequence_length),
        ["![Held-out loss minus the baseline's, a line for each variant with its interval](parts.png)"],
    )


main = experiment_main("parts", PartsConfig, SMOKE, train_parts, __doc__)

if __name__ == "__main__":
    main()
