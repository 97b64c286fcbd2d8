"""Which parts that are said to help a Transformer lower its loss on held-out text, each by itself?

    python -m experiments.transformer_parts                                # every part, three seeds
    python -m experiments.transformer_parts --parts sinks batch-6          # some of them, beside the baseline
    python -m experiments.transformer_parts --parts sinks --train.learning-rate 0.03
    python -m experiments.transformer_parts --smoke                        # seconds, tiny sizes: test that it works

Time: 2 hours for 24 runs on 2 cores.

A part is a change of the baseline (PARTS), which is today's default. It is trained with the same seeds, on the training
split without its last tenth, and scored on that tenth. Differences to the baseline are paired by seed; a part helps if
the 95 % interval of its difference is below zero. The validation split is scored once, at the end, and decides nothing.
"""

import dataclasses
import pathlib
import statistics
from collections.abc import Sequence
from typing import Literal

import keras

from experiments.common.command import experiment_main
from experiments.common.jobs import run_all
from experiments.common.random_windows import random_windows_run
from keras_seq import training
from keras_seq.commands import options
from keras_seq.commands.options import SMOKE_TRAIN, check_options
from keras_seq.evaluation import Difference
from keras_seq.layers import TransformerBlock
from keras_seq.models import TransformerConfig
from keras_seq.models.config import match_parameter_count, shapes_only
from keras_seq.reports import plots
from keras_seq.reports.tables import Report, Table, plus_minus
from keras_seq.runs.texts import split_corpus
from keras_seq.runs.train import DEFAULT_TRAIN, TOKENS


@keras.saving.register_keras_serializable("experiments")
def relu_squared(x):
    """Compute relu(x)^2 (So et al., 2021, arXiv:2109.08668)."""
    return keras.ops.square(keras.ops.relu(x))


@dataclasses.dataclass(frozen=True)
class VariantConfig(TransformerConfig):
    """Configure a variant of the Transformer."""

    activation: Literal["gelu", "relu_squared"] = "gelu"
    """Activation of the feed-forward networks."""

    def block(self, n: int, dtype=None) -> TransformerBlock:
        """Return block n."""
        activation = relu_squared if self.activation == "relu_squared" else self.activation
        return TransformerBlock.from_config({**super().block(n, dtype).get_config(), "activation": activation})


PARTS = {  # fields of the model's config that differ, or of the experiment's
    "no-convolution": {"kernel_size": None},
    "relu-squared": {"activation": "relu_squared"},
    "tied": {"tie_embeddings": True},
    "deeper": {"num_layers": 6},
    "batch-6": {"batch_size": 6},
    "batch-24": {"batch_size": 24},
    "no-output-gate": {"use_output_gate": False},
    "sinks": {"use_sinks": True},
    "forget-gate": {"use_forget_gate": True},
}
MATCHED = ("deeper", "no-output-gate")  # variants whose widths are changed, to the baseline's number of parameters
BASELINE = "baseline"


@dataclasses.dataclass(frozen=True)
class TransformerPartsConfig:
    """Train a Transformer and variants of it, and compare their losses on held-out text."""

    parts: tuple[Literal[tuple(PARTS)], ...] = tuple(PARTS)
    """Variants to train beside the baseline."""
    corpus: options.CorpusName = "shakespeare"
    num_seeds: int = 3
    """Number of runs of each variant, with the random seeds 0, 1, ..."""
    tokens: int = TOKENS
    """Training tokens (characters) of every run."""
    batch_size: options.BatchSize = 12
    sequence_length: options.SequenceLength = 64
    log_dir: options.LogDir = "logs"
    resume: options.Resume = None
    smoke: options.Smoke = False
    train: training.TrainConfig = DEFAULT_TRAIN
    transformer: TransformerConfig = TransformerConfig()

    def __post_init__(self):
        check_options(self, num_seeds=1, tokens=1, batch_size=1, sequence_length=1)
        options.check_unique("--parts", self.parts)

    def variant(self, name: str, vocabulary_size: int) -> tuple[VariantConfig, int]:
        """Return the config and the batch size of a variant, of the baseline's parameters where it is in MATCHED."""
        changes = dict(PARTS.get(name, {}))
        batch_size = changes.pop("batch_size", self.batch_size)
        baseline = dataclasses.replace(self.transformer, context_length=self.sequence_length)
        model_config = VariantConfig(**{**vars(baseline), **changes})
        if name in MATCHED:
            with shapes_only():
                target = baseline.build_model(vocabulary_size).count_params()
            model_config = match_parameter_count(model_config, vocabulary_size, target)
        return model_config, batch_size


SMOKE = {
    **{"corpus": "pydoc", "tokens": 10 * 4 * 16, "batch_size": 4, "sequence_length": 16, "num_seeds": 2},
    **{"parts": ("no-convolution",)},
    "train": SMOKE_TRAIN,
    "transformer": {"embedding_dim": 8, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 16},
}


@dataclasses.dataclass(frozen=True)
class Variant:
    """Hold the runs of a variant, one for each seed, and how their losses differ from the baseline's."""

    name: str
    runs: list[dict]
    difference: Difference | None  # None for the baseline

    @property
    def losses(self) -> list[float]:
        """Return the held-out loss of each seed, in nats per character."""
        return [run["held_out_loss"] for run in self.runs]


def seed_difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Return the mean of `second` minus `first`, paired by seed, with the 95 % interval of Student's t.

    One pair has no interval: its bounds are infinite.
    """
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
    others = []
    for name, group in runs.items():
        variant = Variant(name, group, None)
        others.append(dataclasses.replace(variant, difference=seed_difference(baseline.losses, variant.losses)))
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
    return f"The baseline has a held-out loss of {loss} nats per character. Beside it, {effects} ({seeds})."


NOTES = (
    "Losses in nats per character, on disjoint windows of {length} characters from the empty cache. held-out loss: of "
    "the last tenth of the training split, without which all were trained; mean ± standard deviation over the seeds. "
    "difference: to the baseline, paired by seed, with the 95 % interval of Student's t. val_loss: of the validation "
    "split; models that were trained on all of the training split, whose end is most like it, have less. speed: "
    "training tokens per second, relative to the baseline, without what surrounds the steps."
)


def table(variants: Sequence[Variant]) -> Table:
    """Return a line for each variant."""

    def interval(variant):
        d = variant.difference
        return "" if d is None else f"{d.mean:+.4f} ({d.low:+.4f} to {d.high:+.4f})"

    def speed(variant):
        return statistics.median(run["train_tokens"] / run["train_seconds"] for run in variant.runs)

    columns = {
        "variant": lambda variant: variant.name,
        "parameters": lambda variant: f"{variant.runs[0]['parameters']:,}",
        "held-out loss": lambda variant: plus_minus(variant.losses, 4),
        "difference": interval,
        "val_loss": lambda variant: plus_minus([run["val_loss"] for run in variant.runs], 4),
        "speed": lambda variant: f"{speed(variant) / speed(variants[0]):.2f}",
    }
    return Table.of(variants, columns)


def plot(folder: pathlib.Path, variants: Sequence[Variant]):
    """Write transformer_parts.png: the difference of each variant with its interval, and the points of the seeds."""
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
    axes.set_xlabel("held-out loss minus the baseline's of the same seed (nats per character)")
    axes.grid(visible=False, axis="y")
    plots.save(figure, folder / "transformer_parts.png")


def train_parts(config: TransformerPartsConfig, folder: pathlib.Path) -> Report:
    """Train all runs that are not finished in `folder`, and report the comparison."""
    data = split_corpus(config.corpus, folder, config.sequence_length + 1, held_out=True)
    variants = {name: config.variant(name, data.tokenizer.vocabulary_size) for name in (BASELINE, *config.parts)}
    plan = f"{len(variants)} variants x {config.num_seeds} seeds of {config.tokens:,} characters"
    data.introduce(config.train, config.sequence_length + 1, plan, data.held_out)
    planned = [(seed, name) for seed in range(config.num_seeds) for name in variants]
    runs = []
    for seed, name in planned:
        model_config, batch_size = variants[name]
        steps = options.num_steps(config.tokens, batch_size * config.sequence_length)
        sizes = batch_size, config.sequence_length, steps
        run = folder / f"{name}-seed{seed}"
        runs.append(random_windows_run(run, config, name, model_config, data, *sizes, config.train, seed=seed))
    rows = [
        {"run": run.name, "variant": name, "seed": seed, **result}
        for (seed, name), (run, *_), result in zip(planned, runs, run_all(runs), strict=True)
    ]
    results = by_variant(rows)
    plot(folder, results)
    return Report(
        f"Parts of a Transformer on {data.corpus.name}",
        verdict(results),
        table(results),
        ("variant", "held-out loss", "difference", "speed"),
        rows,
        NOTES.format(length=config.sequence_length),
        ["![Held-out loss minus the baseline's, a line for each variant with its interval](transformer_parts.png)"],
    )


main = experiment_main("transformer_parts", TransformerPartsConfig, SMOKE, train_parts, __doc__)

if __name__ == "__main__":
    main()
