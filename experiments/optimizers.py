"""Which optimizer is best for the same small model, each at learning rates below and above its default?

    python -m experiments.optimizers                               # a Transformer, on Python's help topics
    python -m experiments.optimizers --model lstm --corpus shakespeare
    python -m experiments.optimizers --optimizers adam lion --factors 0.1 0.3 1 3 10
    python -m experiments.optimizers --smoke                       # seconds, tiny sizes: test that everything works

Time: 7 to 9 minutes for 24 runs on 2 cores.

Learning rates are chosen by the loss of text held out from the training split; the validation split is only scored at
the end of every run. Schedule, clipping, batches and initial weights are the same for all. Expected val_loss of the
Transformer: muon 1.46, adam 1.55, others 1.61 to 1.81 nats per character (docs/experiments.md).
"""

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import Literal

import numpy as np

from experiments.common.command import experiment_main
from experiments.common.random_windows import train_on_random_windows
from keras_seq import training
from keras_seq.commands import options
from keras_seq.commands.options import check_options
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.reports import plots
from keras_seq.reports.tables import Report, Table
from keras_seq.runs.texts import SplitCorpus, split_corpus


@dataclasses.dataclass(frozen=True)
class OptimizersConfig:
    """Train one model with every optimizer, at several learning rates."""

    model: Literal["transformer", "lstm"] = "transformer"
    """A Transformer of 2 blocks, or an LSTM of one layer."""
    width: int = 64
    """Width D of the Transformer, a multiple of 4; the LSTM has 2 D units."""
    optimizers: tuple[Literal[tuple(training.OPTIMIZERS)], ...] = tuple(training.OPTIMIZERS)
    """Optimizers to compare."""
    factors: tuple[float, ...] = (0.3, 1.0, 3.0)
    """Learning rates, as factors of each optimizer's default."""
    corpus: options.CorpusName = "pydoc"
    tokens: int = 460_800
    """Training tokens of every run, over one or more epochs."""
    batch_size: options.BatchSize = 12
    sequence_length: options.SequenceLength = 64
    seed: options.Seed = 0
    log_dir: options.LogDir = "logs"
    resume: options.Resume = None
    smoke: options.Smoke = False
    train: training.TrainConfig = training.TrainConfig(validate_every=100, checkpoint_every=300)

    def __post_init__(self):
        check_options(self, tokens=1, batch_size=1, sequence_length=1)
        options.check_multiple("--width", self.width, 4)
        options.check_unique("--optimizers", self.optimizers)
        options.check_unique("--factors", self.factors)
        if not all(factor > 0 for factor in self.factors):
            raise ValueError(f"--factors {' '.join(map(str, self.factors))}: expected positive numbers.")
        for field, option in (("optimizer", "--optimizers"), ("learning_rate", "--factors")):
            if getattr(self.train, field) != getattr(training.TrainConfig(), field):
                raise ValueError(f"{field}={getattr(self.train, field)}: expected the default; choose by {option}.")
        for name in self.optimizers:
            dataclasses.replace(self.train, optimizer=name)  # raises if an option is not for this one

    @property
    def steps(self) -> int:
        """Number of batches that contain `tokens`."""
        return options.num_steps(self.tokens, self.batch_size * self.sequence_length)

    @property
    def model_config(self) -> TransformerConfig | LSTMConfig:
        """The config that the model is built from."""
        if self.model == "lstm":
            return LSTMConfig(embedding_dim=self.width // 2, units=2 * self.width)
        sizes = {"feed_forward_dim": 4 * self.width, "context_length": self.sequence_length}
        return TransformerConfig(
            self.width, num_layers=2, num_heads=2, **sizes, kernel_size=None, use_output_gate=False
        )


SMOKE = {
    **{"width": 8, "tokens": 8 * 4 * 16, "batch_size": 4, "sequence_length": 16},
    **{"optimizers": lambda names: names[-2:], "factors": lambda factors: factors[-1:]},
    "train": {"warmup_steps": 2, "log_every": 2, "validate_every": 4, "checkpoint_every": 8},
}


def train_one(run: pathlib.Path, config: OptimizersConfig, train: training.TrainConfig, data: SplitCorpus) -> dict:
    """Train the model with one optimizer at one learning rate; a run that diverges is a result too."""
    sizes = (config.batch_size, config.sequence_length, config.steps)
    try:
        return train_on_random_windows(run, config, config.model, config.model_config, data, *sizes, train)
    except training.TrainingDiverged as error:
        print(error)
        result = {"learning_rate": train.learning_rate, "held_out_loss": None, "val_loss": None, "diverged": str(error)}
        result["train_tokens"] = error.step * config.batch_size * config.sequence_length
        training.write_result(run, result)
        return {"run": run.name, **result}


@dataclasses.dataclass(frozen=True)
class OptimizerResult:
    """The runs of one optimizer by increasing learning rate, and the best of them, None if all diverged."""

    name: str
    runs: list[dict]
    best: dict | None

    @property
    def loss(self) -> float:
        """Held-out loss at the best learning rate, in nats per token."""
        return math.inf if self.best is None else self.best["held_out_loss"]

    @property
    def grid_edge(self) -> str:
        """Return "lowest" or "highest" if the best learning rate is at that edge of the grid, else ""."""
        if self.best is None or len(self.runs) == 1 or self.best not in (self.runs[0], self.runs[-1]):
            return ""
        return "lowest" if self.best is self.runs[0] else "highest"


def by_optimizer(rows: Sequence[dict]) -> list[OptimizerResult]:
    """Group runs by optimizer, the best optimizer first."""
    results = []
    for name in dict.fromkeys(row["optimizer"] for row in rows):
        runs = sorted((row for row in rows if row["optimizer"] == name), key=lambda row: row["learning_rate"])
        finite = [run for run in runs if run["diverged"] is None]
        results.append(OptimizerResult(name, runs, min(finite, key=lambda run: run["held_out_loss"], default=None)))
    return sorted(results, key=lambda result: result.loss)


def verdict(results: Sequence[OptimizerResult]) -> str:
    """Say which optimizer is best, by how much, and how certain that is."""
    first, *others = [result for result in results if result.best is not None] or [None]
    if first is None:
        return "Training diverged with every optimizer at every learning rate: try smaller --factors."
    below = f", {others[0].loss - first.loss:.3f} below {others[0].name}" if others else ""
    edges = [result.name for result in results if result.grid_edge]
    edge = f" At the edge of their grid, so perhaps better elsewhere: {', '.join(edges)} (--factors)." if edges else ""
    best = f"{first.name} has the lowest held-out loss, {first.loss:.3f} nats per token{below}"
    return f"{best}. One seed each: differences below 0.01 may be chance.{edge}"


NOTES = (
    "Losses in nats per token, which is a character, unless the corpus is a folder of token ids, on disjoint windows "
    "from the zero state or the empty cache. Columns of factors and curves: loss of text held out from the training "
    "split, by which the learning rate is chosen. val_loss: loss of the validation split at the best rate. diverged: a "
    "loss or a gradient was not finite. The learning rate of muon is that of its hidden matrices; adamw has no weight "
    "decay here, so it equals adam."
)


def table(results: Sequence[OptimizerResult]) -> Table:
    """Return a line for each optimizer."""
    factors = sorted({run["factor"] for result in results for run in result.runs})
    header = ["optimizer", "default rate", *(f"x {factor:g}" for factor in factors), "best rate", "grid edge"]
    lines = []
    for result in results:
        first, best = result.runs[0], result.best
        losses = ["diverged" if run["diverged"] else f"{run['held_out_loss']:.3f}" for run in result.runs]  # by factor
        last = ["-", "", "-"]
        if best is not None:
            last = [f"{best['learning_rate']:g}", result.grid_edge, f"{best['val_loss']:.3f}"]
        lines.append([result.name, f"{first['learning_rate'] / first['factor']:.3g}", *losses, *last])
    return Table([*header, "val_loss"], lines)


def plot(folder: pathlib.Path, results: Sequence[OptimizerResult]):
    """Write optimizers.png: on the left the curve of each optimizer's best rate, on the right final losses by rate."""
    figure, (curves, rates) = plots.subplots(1, 2, figsize=(12, 5), width_ratios=(6, 5))
    colors, ends = plots.colors([result.name for result in results]), {}
    at_top = {"transform": rates.get_xaxis_transform(), "clip_on": False}
    for result in results:
        # without weight decay the curve of adamw covers that of adam
        style = {"color": colors[result.name], "marker": "o", "linestyle": "--" if result.name == "adamw" else "-"}
        if result.best is not None:
            tokens, losses = plots.curve(folder / result.best["run"])
            curves.plot(tokens, losses, **style)
            ends[f"{result.name} {result.best['learning_rate']:g}"] = (tokens[-1], losses[-1], style["color"])
        finite = [(run["learning_rate"], run["held_out_loss"]) for run in result.runs if not run["diverged"]]
        rates.plot(*np.reshape(finite, (-1, 2)).T, label=result.name, **style)
        diverged = [run["learning_rate"] for run in result.runs if run["diverged"]]
        rates.plot(diverged, np.ones(len(diverged)), "x", color=style["color"], markersize=8, **at_top)
    plots.label_ends(curves, ends)
    plots.token_axis(curves, "training tokens, each optimizer at its best learning rate")
    note = next((plots.sample_note(folder / result.best["run"]) for result in results if result.best), "")
    curves.set_ylabel(f"held-out loss{note} (nats per token)")
    rates.set(xscale="log", xlabel="learning rate (x: diverged)", ylabel="final held-out loss (nats per token)")
    rates.legend(loc="best")
    plots.save(figure, folder / "optimizers.png")


def sweep(config: OptimizersConfig, folder: pathlib.Path) -> Report:
    """Train all runs that are not finished in `folder`, and report the comparison."""
    data = split_corpus(config.corpus, folder, config.sequence_length + 1, held_out=True)
    model = config.model_config.build_model(data.tokenizer.vocabulary_size)
    plan = f"{config.model} of {model.count_params():,} parameters, {config.steps:,} steps a run"
    data.introduce(config.train, config.sequence_length + 1, plan, data.held_out)
    rows = []
    for optimizer in config.optimizers:
        default = dataclasses.replace(config.train, optimizer=optimizer).peak_learning_rate(model)
        for factor in sorted(config.factors):
            rate = float(f"{factor * default:.3g}")
            train = dataclasses.replace(config.train, optimizer=optimizer, learning_rate=rate)
            run = folder / f"{optimizer}-{rate:g}-seed{config.seed}"
            result = train_one(run, config, train, data)
            rows.append({"optimizer": optimizer, "factor": factor, "diverged": None, **result})
    results = by_optimizer(rows)
    plot(folder, results)
    return Report(
        f"Optimizers: {config.model} on {data.corpus.name}",
        verdict(results),
        table(results),
        ("optimizer", "best rate", "grid edge", "val_loss"),
        rows,
        NOTES,
        ["![Left: loss over tokens at the best rate. Right: final loss over learning rate](optimizers.png)"],
    )


main = experiment_main("optimizers", OptimizersConfig, SMOKE, sweep, __doc__)

if __name__ == "__main__":
    main()
