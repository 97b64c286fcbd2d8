"""Where do they cross? Losses of four models over the tokens that they are trained on, at two sizes, with intervals.

    python -m experiments.crossover                                # the source code of Python's library, offline
    python -m experiments.crossover --models lstm transformer --sizes 800k --budgets 500k 2M 8M --num-seeds 3
    python -m experiments.crossover --learning-rates 0.02 0.02 0.01 0.01 --jobs 2
    python -m experiments.crossover --smoke                        # tiny sizes, takes seconds

Time: 6 hours a seed on one core, by the speed of single steps.

Every run is a training by itself, whose learning rate falls to its end. Widths are scaled until a model has each number
of parameters. All models read random windows: stateful ones of less than an epoch are a few stretches of the text. A
model overtakes another between two budgets if its loss is higher at the first and lower at the second one, both by more
than chance.
"""

import dataclasses
import itertools
import math
import pathlib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from experiments.common.command import experiment_main
from experiments.common.jobs import run_all
from keras_seq import training
from keras_seq.commands import options
from keras_seq.evaluation import Difference
from keras_seq.models import LANGUAGE_MODELS, MODELS
from keras_seq.models.config import match_parameter_count, shapes_only, tiny_config
from keras_seq.reports import plots
from keras_seq.reports.comparison import ComparisonResults
from keras_seq.reports.tables import MAX_PARAMETER_RATIO, Report, Table, plus_minus, thousands
from keras_seq.runs.folders import run_config
from keras_seq.runs.texts import SplitCorpus, split_corpus
from keras_seq.runs.train import DEFAULT_TRAIN, train_run, training_windows


@dataclasses.dataclass(frozen=True)
class CrossoverConfig:
    """Train models of several sizes on several numbers of tokens, and find where their losses cross."""

    corpus: options.CorpusName = "source"
    models: tuple[Literal[LANGUAGE_MODELS], ...] = ("lstm", "transformer", "mamba2", "hybrid")
    """Models to train, in this order."""
    sizes: tuple[int, ...] = (200_000, 800_000)
    """Numbers of parameters, embedding and head included, to which the widths of each model are scaled."""
    budgets: tuple[int, ...] = (1_000_000, 4_000_000, 16_000_000)
    """Numbers of training tokens (characters), over one or more epochs; each is a training by itself."""
    learning_rates: tuple[float, ...] = ()
    """Peak learning rates, one for each of the models. Default: the optimizer's for each."""
    num_seeds: int = 1
    """Number of runs of each model, size and budget, with the random seeds 0, 1, ..."""
    batch_size: options.BatchSize = 12
    sequence_length: options.SequenceLength = 64
    log_dir: options.LogDir = "logs"
    resume: options.Resume = None
    smoke: options.Smoke = False
    train: training.TrainConfig = dataclasses.field(default_factory=lambda: DEFAULT_TRAIN)

    def __post_init__(self):
        options.check_options(self, num_seeds=1, batch_size=1, sequence_length=1)
        for option in ("models", "sizes", "budgets"):
            options.check_unique(f"--{option}", getattr(self, option))
        for option in ("sizes", "budgets", "learning_rates"):
            if not all(0 < value < math.inf for value in getattr(self, option)):
                words = " ".join(map(str, getattr(self, option)))
                raise ValueError(f"--{option.replace('_', '-')} {words}: expected positive numbers.")
        if self.learning_rates and len(self.learning_rates) != len(self.models):
            words = " ".join(f"{rate:g}" for rate in self.learning_rates)
            raise ValueError(f"--learning-rates {words}: expected one for each of {', '.join(self.models)}.")
        if self.learning_rates and self.train.learning_rate is not None:
            raise ValueError("--train.learning-rate: expected it without --learning-rates, which are of each model.")

    def model(self, name: str) -> Any:
        """Return the config of a model before its widths are scaled."""
        model_config = tiny_config(name) if self.smoke else MODELS[name]()
        has_limit = hasattr(model_config, "context_length")
        return dataclasses.replace(model_config, context_length=self.sequence_length) if has_limit else model_config

    def learning_rate(self, name: str, model: Any) -> float:
        """Return the peak learning rate of a built model."""
        if self.learning_rates:
            return self.learning_rates[self.models.index(name)]
        return self.train.peak_learning_rate(model)


SMOKE = {
    "corpus": lambda name: "pydoc" if name == "source" else name,
    "models": lambda names: names[:2],
    **{"sizes": (8_000,), "budgets": (8 * 4 * 16, 16 * 4 * 16), "batch_size": 4, "sequence_length": 16},
    "train": {**options.SMOKE_TRAIN, "sample_length": 20},
}


class PlannedRun(NamedTuple):
    """A model at a size with a budget."""

    model: str
    size: int
    budget: int
    model_config: Any
    parameters: int
    learning_rate: float
    steps: int


def plan(config: CrossoverConfig, vocabulary_size: int) -> list[PlannedRun]:
    """Return the runs of one seed, the shortest first; a ValueError names a size that a model does not have."""
    sized = {}
    for size, name in itertools.product(config.sizes, config.models):
        model_config = match_parameter_count(config.model(name), vocabulary_size, size)
        with shapes_only():
            model = model_config.build_model(vocabulary_size)
        parameters = model.count_params()
        if not size / MAX_PARAMETER_RATIO <= parameters <= size * MAX_PARAMETER_RATIO:
            raise ValueError(
                f"--sizes {size}: the {name} of the closest width has {parameters:,} parameters; give more."
            )
        sized[size, name] = model_config, parameters, config.learning_rate(name, model)
    tokens_per_step = config.batch_size * config.sequence_length
    return [
        PlannedRun(name, size, budget, *model, options.num_steps(budget, tokens_per_step))
        for budget in sorted(config.budgets)
        for (size, name), model in sized.items()
    ]


def train_one(run: pathlib.Path, config: CrossoverConfig, planned: PlannedRun, seed: int, data: SplitCorpus) -> dict:
    """Train one model and score it on the whole validation text."""
    train = dataclasses.replace(config.train, learning_rate=planned.learning_rate)
    model = planned.model_config.build_model(data.tokenizer.vocabulary_size, dtype=train.dtype_policy)
    windows = training_windows("random", data.train, config.batch_size, config.sequence_length, seed)
    extra = {"windows": "random", "seed": seed, "size": planned.size, "budget": planned.budget}
    settings = run_config(config, planned.model, planned.model_config, train, model, data.corpus, **extra)
    return train_run(run, model, data.tokenizer, windows, data.scored, planned.steps, train, settings)


class Crossing(NamedTuple):
    """Where a model overtakes another: the budgets around it, and the tokens at which the difference is zero.

    `tokens` is where the line between the mean differences is zero, over the logarithm of the tokens, `low` and `high`
    where the lines between the bounds of their 95 % intervals are: outside of these, the difference is not chance.
    """

    first: str
    second: str
    before: int
    after: int
    tokens: float
    low: float
    high: float


def crossings(first: str, second: str, differences: dict[int, Difference]) -> list[Crossing]:
    """Return where one of two models overtakes the other; differences by tokens are second minus first."""
    certain = [budget for budget in sorted(differences) if differences[budget].significant]
    overtakings = []
    for before, after in itertools.pairwise(certain):
        falls = differences[before].mean > 0
        if falls != (differences[after].mean > 0):
            part = {budget: differences[budget] for budget in sorted(differences) if before <= budget <= after}
            zeros = [zero([*part], [getattr(each, of) for each in part.values()]) for of in ("mean", "low", "high")]
            pair = (first, second) if not falls else (second, first)
            overtakings.append(Crossing(*pair, before, after, zeros[0], min(zeros[1:]), max(zeros[1:])))
    return overtakings


def zero(tokens: Sequence[int], values: Sequence[float]) -> float:
    """Return where the line through the points over the logarithm of the tokens first crosses zero."""
    for (x, y), (next_x, next_y) in itertools.pairwise(zip(np.log(tokens), values, strict=True)):
        if y * next_y <= 0 and y != next_y:
            return float(np.exp(x - y * (next_x - x) / (next_y - y)))
    raise ValueError(f"values={values}; expected one below and one above zero.")


class Study:
    """The runs of all models, compared at each size and budget."""

    def __init__(self, folder: pathlib.Path, rows: Sequence[dict]):
        self.rows = rows
        self.models, self.sizes, self.budgets = (
            list(dict.fromkeys(row[key] for row in rows)) for key in ("model", "size", "budget")
        )
        self.compared = {
            (size, budget): ComparisonResults(folder, corpus="", introduction="", rows=self._at(folder, size, budget))
            for size, budget in itertools.product(self.sizes, self.budgets)
        }
        self.crossings = {size: [] for size in self.sizes}
        for size, first, second in self.pairs:
            self.crossings[size] += crossings(first, second, self.differences(size, first, second))

    def _at(self, folder, size, budget):
        chosen = (row for row in self.rows if (row["size"], row["budget"]) == (size, budget))
        return [{**row, "run": folder / row["run"]} for row in chosen]

    @property
    def pairs(self) -> list[tuple[int, str, str]]:
        """The pairs of models at each size."""
        return [(size, *pair) for size in self.sizes for pair in itertools.combinations(self.models, 2)]

    def differences(self, size: int, first: str, second: str) -> dict[int, Difference]:
        """Return val_loss per character of the second model minus that of the first, by budget."""
        if self.models.index(first) > self.models.index(second):  # the same intervals, the other way round
            reverse = self.differences(size, second, first).items()
            return {budget: Difference(-each.mean, -each.high, -each.low) for budget, each in reverse}
        return {budget: self.compared[size, budget].difference(first, second) for budget in self.budgets}

    def loss(self, size: int, budget: int, model: str) -> float:
        """Return the mean val_loss per character of a model over its seeds."""
        return self.compared[size, budget].mean(model, "val_loss_per_character")

    @property
    def verdict(self) -> str:
        """Which model has the lowest loss at each size and budget, and which overtakes which."""
        sentences = []
        for size in self.sizes:
            best = {}
            for budget in self.budgets:
                model = min(self.models, key=lambda model: self.loss(size, budget, model))
                best.setdefault(model, []).append(thousands(budget))
            lowest = [f"{model} at {', '.join(budgets)}" for model, budgets in best.items()]
            overtaken = [
                f"{c.first} overtakes {c.second} between {thousands(c.before)} and {thousands(c.after)} tokens, at "
                f"about {rounded(c.tokens)} ({rounded(c.low)} to {rounded(c.high)})"
                for c in self.crossings[size]
            ]
            sentences.append(
                f"With {thousands(size)} parameters, the lowest loss is that of {' and '.join(lowest)} tokens; "
                f"{'; '.join(overtaken) or 'no model overtakes another by more than chance'}."
            )
        seeds = min(each.num_seeds for each in self.compared.values())
        return " ".join([*sentences, *(["One seed each: other seeds may differ by more."] if seeds == 1 else [])])

    @property
    def differences_table(self) -> Table:
        """A line for each pair of models and size."""
        lines = []
        for size, first, second in self.pairs:
            differences = self.differences(size, first, second).values()
            overtakes = [
                f"{c.first} at {rounded(c.tokens)}"
                for c in self.crossings[size]
                if {c.first, c.second} == {first, second}
            ]
            cells = [f"{each.mean:+.4f} ({each.low:+.4f} to {each.high:+.4f})" for each in differences]
            lines.append([thousands(size), f"{second} - {first}", *cells, ", ".join(overtakes) or "-"])
        return Table(["parameters", "difference", *map(thousands, self.budgets), "overtakes"], lines)


def rounded(tokens: float) -> str:
    """Format a number of tokens with two significant digits, such as 2.3 M."""
    return thousands(float(f"{tokens:.2g}"))


NOTES = (
    "Losses are in nats per character of the whole validation text. val_loss: disjoint windows, each from the zero "
    "state or the empty cache; streaming: val_loss_streaming, the text from start to end. ±: standard deviation over "
    "the seeds. Differences are of val_loss, with their 95 % intervals: a bootstrap over blocks of adjacent windows, "
    "paired between the models, and Student's t for seeds. A model overtakes another where the sign of a difference "
    "that is more than chance changes from one budget to another; the tokens at which it does are read from straight "
    "lines between the budgets, over the logarithm of the tokens, those in parentheses from the intervals' bounds."
)
IMAGE = "![Above, the loss over training tokens; below, the differences with their 95 % intervals](crossover.png)"


def plot(folder: pathlib.Path, study: Study):
    """Write crossover.png: for each size the losses over tokens, below them the differences with intervals."""
    reference = "transformer" if "transformer" in study.models else study.models[0]
    colors, count = plots.colors(study.models), len(study.sizes)
    figure, axes = plots.subplots(
        2, count, figsize=(1.5 + 4.6 * count, 6.8), sharex=True, sharey="row", height_ratios=(3, 2), squeeze=False
    )
    for size, (losses, differences) in zip(study.sizes, axes.T, strict=True):
        for n, model in enumerate(study.models):
            means = [study.loss(size, budget, model) for budget in study.budgets]
            losses.plot(study.budgets, means, "o-", color=colors[model])
            if model != reference:
                each = [*study.differences(size, reference, model).values()]
                means, low, high = np.transpose([(d.mean, d.mean - d.low, d.high - d.mean) for d in each])
                places = np.array(study.budgets) * 1.02 ** (n - len(study.models) / 2)
                differences.errorbar(places, means, (low, high), fmt="o-", capsize=3, linewidth=1, color=colors[model])
        differences.axhline(0, color=colors[reference], linewidth=1.2)
        for crossing in study.crossings[size]:
            if reference in (crossing.first, crossing.second):
                differences.plot(crossing.tokens, 0, "v", color="0.2", fillstyle="none", markersize=8)
        losses.set(xscale="log", title=f"{thousands(size)} parameters", xticks=study.budgets)
        plots.token_axis(differences)
        differences.minorticks_off()
    plots.legend(axes[0, 0], colors)
    axes[0, 0].set_ylabel("val_loss, nats per character")
    axes[1, 0].set_ylabel(f"difference from {reference}")
    plots.save(figure, folder / "crossover.png")


def crossover_report(corpus: str, folder: pathlib.Path, rows: Sequence[dict]) -> Report:
    """Compare the runs, plot them and return the report."""
    study, loss_name = Study(folder, rows), f"val_loss@{rows[0]['val_sequence_length']}"
    plot(folder, study)
    groups = {}
    for row in rows:
        groups.setdefault((row["size"], row["model"], row["budget"]), []).append(row)
    columns = {
        **{"model": lambda runs: runs[0]["model"], "parameters": lambda runs: f"{runs[0]['parameters']:,}"},
        **{"tokens": lambda runs: thousands(runs[0]["budget"]), "rate": lambda runs: f"{runs[0]['learning_rate']:g}"},
        loss_name: lambda runs: plus_minus([run["val_loss_per_character"] for run in runs], 3),
        "streaming": lambda runs: plus_minus([run["val_loss_per_character_streaming"] for run in runs], 3),
        "train seconds": lambda runs: f"{np.mean([run['train_seconds'] for run in runs]):.0f}",
    }
    order = [(s, m, b) for s in study.sizes for m in study.models for b in study.budgets]
    return Report(
        f"{corpus}: where models overtake each other",
        study.verdict,
        Table.of([groups[key] for key in order], columns),
        ("model", "parameters", "tokens", loss_name, "streaming"),
        rows,
        NOTES,
        [study.differences_table, IMAGE],
        runs=[folder / rows[-1]["run"]],
    )


def train_all(config: CrossoverConfig, folder: pathlib.Path) -> Report:
    """Train all runs that are not finished in `folder`, and report them."""
    data = split_corpus(config.corpus, folder, config.sequence_length + 1)
    runs = plan(config, data.tokenizer.vocabulary_size)
    amount = f"{len(runs) * config.num_seeds} runs of {' or '.join(map(thousands, sorted(config.budgets)))} tokens"
    data.introduce(config.train, config.sequence_length + 1, amount)
    planned = [(seed, each) for seed in range(config.num_seeds) for each in runs]
    names = [f"{each.model}-{each.size}-{each.budget}-seed{seed}" for seed, each in planned]

    def run(name, seed, each):
        path = folder / name
        return path, seed, lambda: train_one(path, config, each, seed, data)

    results = run_all([run(name, *each) for name, each in zip(names, planned, strict=True)])
    rows = []
    for name, (seed, each), result in zip(names, planned, results, strict=True):
        fields = {**each._asdict(), "run": name, "seed": seed}
        del fields["model_config"]
        rows.append({**fields, **result})
    return crossover_report(data.corpus.name, folder, rows)


main = experiment_main("crossover", CrossoverConfig, SMOKE, train_all, __doc__)

if __name__ == "__main__":
    main()
