"""How does the loss fall with size? Five sizes of an LSTM and of a Transformer, with equal tokens and equal compute.

    python -m experiments.scaling                                  # Python's docstrings, offline
    python -m experiments.scaling --corpus shakespeare --tokens 2000000 --compute 1e12
    python -m experiments.scaling --smoke                          # tiny sizes, takes seconds

Time: 8 minutes on 2 cores.

Sizes are from 12,000 to 790,000 parameters without embedding and head. With equal tokens, each family gets a power law,
with equal compute a parabola in ln N, as a model too large for its compute has seen too few tokens. Expected on tiny
Shakespeare: twice the size lowers the loss by 2.3 % (LSTM) and 2.6 % (Transformer); the best sizes for 3e11 FLOPs are
near 50,000 and 40,000 parameters.
"""

import collections
import dataclasses
import functools
import itertools
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.common.command import experiment_main
from experiments.common.jobs import run_all
from experiments.common.random_windows import random_windows_run
from keras_seq import training
from keras_seq.commands import options
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.models.counts import flops_per_token
from keras_seq.reports import plots
from keras_seq.reports.tables import Report, Table, thousands
from keras_seq.runs.texts import smoke_corpus, split_corpus

SIZES = {
    "lstm": ((16, 48), (24, 86), (32, 140), (64, 256), (64, 412)),  # embedding_dim, units
    "transformer": ((32, 1, 1), (40, 2, 2), (64, 2, 2), (96, 3, 3), (128, 4, 4)),  # width, num_layers, num_heads
}
SMOKE_SIZES = {
    "lstm": ((4, 4), (4, 8), (8, 16), (8, 24)),
    "transformer": ((8, 1, 1), (12, 1, 1), (16, 1, 2), (24, 1, 2)),
}


@dataclasses.dataclass(frozen=True)
class ScalingConfig:
    """Train five sizes of two model families, and fit power laws to their losses."""

    corpus: options.CorpusName = "docstrings"
    families: tuple[Literal["lstm", "transformer"], ...] = ("lstm", "transformer")
    """Model families to train."""
    tokens: int = 460_800
    """Token budget: number of tokens that each size is trained on, repetitions included."""
    compute: float = 3e11
    """Compute budget: floating-point operations (FLOPs) of the training of each size."""
    batch_size: options.BatchSize = 12
    sequence_length: options.SequenceLength = 64
    seed: options.Seed = 0
    log_dir: options.LogDir = "logs"
    resume: options.Resume = None
    smoke: options.Smoke = False
    train: training.TrainConfig = training.TrainConfig(log_every=25, validate_every=1000)

    def __post_init__(self):
        options.check_options(self, tokens=1, batch_size=1, sequence_length=1)
        options.check_unique("--families", self.families)
        if self.compute <= 0:
            raise ValueError(f"--compute {self.compute}: expected a number of FLOPs above zero, e.g. 4e11.")

    @property
    def models(self) -> list[tuple[str, LSTMConfig | TransformerConfig]]:
        """The family and the config of every model, the smallest of each family first."""

        def model_config(family, width, *size):
            if family == "lstm":
                return LSTMConfig(width, *size)
            sizes = {"feed_forward_dim": 4 * width, "context_length": self.sequence_length}
            return TransformerConfig(width, *size, **sizes, kernel_size=None, use_output_gate=False)

        sizes = SMOKE_SIZES if self.smoke else SIZES
        return [(family, model_config(family, *size)) for family in self.families for size in sizes[family]]


SMOKE = {
    "corpus": smoke_corpus,
    "families": lambda families: families[:1],
    **{"tokens": 8 * 4 * 8, "compute": 6e6, "batch_size": 4, "sequence_length": 8},
    "train": {"log_every": 1, "validate_every": 8, "checkpoint_every": 8},
}


# Units for which training/config.py has the rates of recurrent layers. Narrow LSTMs need a higher one (0.06 instead of
# 0.03, measured on held-out text with Muon of five Newton-Schulz steps), narrow Transformers do not.
DEFAULT_RATE_UNITS = 408


PlannedRun = (
    collections.namedtuple(  # its size N is that of Kaplan et al. (2020, arXiv:2001.08361); FLOPs have the head
        "PlannedRun", "family budget model_config non_embedding_parameters flops_per_token num_steps train"
    )
)


def plan(config: ScalingConfig, vocabulary_size: int) -> list[PlannedRun]:
    """Return the runs of all sizes with both budgets; a ValueError names a budget of less than one batch."""
    runs, tokens_per_step = [], config.batch_size * config.sequence_length
    for family, model_config in config.models:
        model = model_config.build_model(vocabulary_size)
        size = model.count_params() - model.embedding.count_params() - model.head.count_params()
        flops = flops_per_token(model, config.sequence_length, training=True)
        rate = config.train.peak_learning_rate(model)
        if family == "lstm" and config.train.learning_rate is None:
            rate *= (DEFAULT_RATE_UNITS / model_config.units) ** 0.5
        for budget, tokens in (("tokens", config.tokens), ("compute", config.compute / flops)):
            if (num_steps := round(tokens / tokens_per_step)) < 1:
                cost = f"{model.count_params():,} parameters, which takes {flops * tokens_per_step:.1g} FLOPs"
                option = f"--{budget} {getattr(config, budget):g}"
                raise ValueError(f"{option}: less than a batch for the {family} of {cost}; give more.")
            warmup_steps = min(config.train.warmup_steps, num_steps // 10)
            train = dataclasses.replace(config.train, learning_rate=float(f"{rate:.3g}"), warmup_steps=warmup_steps)
            runs.append(PlannedRun(family, budget, model_config, size, flops, num_steps, train))
    return runs


# Scaling laws are fitted to the losses of a few sizes N:
#     power law         L(N) = L_inf + a (N / M)^-b,   L_inf >= 0, M the geometric mean of the sizes
#     pure power law    the same with L_inf = 0
#     parabola          L(N) = c + k ln(N / N*)^2      for fixed compute (Hoffmann et al., 2022, arXiv:2203.15556)
# For a given b the power law is linear, so the fit searches b alone (Golub & Pereyra, 1973). Errors are jackknife
# estimates (Efron & Tibshirani, 1993, chapter 11), rough with five points and three unknowns.
EXPONENT_BOUNDS = (0.01, 3.0)  # of the search for b
UNKNOWN = "not identified"


class PowerLaw(NamedTuple):
    """A power law `asymptote + scale (N / reference_size)^-exponent`, in nats."""

    asymptote: float
    scale: float
    exponent: float
    reference_size: float

    def __call__(self, sizes: np.ndarray) -> np.ndarray:
        return self.asymptote + self.scale * (np.asarray(sizes) / self.reference_size) ** -self.exponent

    @property
    def is_at_bound(self) -> bool:
        """Return whether the search ended at a bound of the exponent or at an asymptote of zero."""
        low, high = EXPONENT_BOUNDS
        return self.asymptote < 1e-6 or not 1.01 * low < self.exponent < 0.99 * high


class Parabola(NamedTuple):
    """A parabola `level + slope u + curvature u^2` with u = ln(N / reference_size), in nats."""

    level: float
    slope: float
    curvature: float
    reference_size: float

    def __call__(self, sizes: np.ndarray) -> np.ndarray:
        u = np.log(np.asarray(sizes) / self.reference_size)
        return self.level + self.slope * u + self.curvature * u**2

    @property
    def best_size(self) -> float:
        """N*, the size of the lowest loss; NaN for a parabola that opens downwards or is almost a line."""
        if self.curvature <= 0 or abs(self.slope) > 40 * self.curvature:  # |ln(N* / M)| is above 20
            return math.nan
        return float(self.reference_size * np.exp(-self.slope / (2 * self.curvature)))


def fit_power_law(sizes: np.ndarray, losses: np.ndarray, with_asymptote: bool = True) -> PowerLaw:
    """Fit a power law, pure unless `with_asymptote`, to losses `[n]` of sizes `[n]` by least squares."""
    reference_size = np.exp(np.log(sizes).mean())

    def solve(exponent):
        x = (sizes / reference_size) ** -exponent
        centered = x - x.mean()
        slope = centered @ losses / (centered @ centered)
        asymptote = max(0.0, losses.mean() - slope * x.mean()) if with_asymptote else 0.0
        scale = x @ (losses - asymptote) / (x @ x)
        law = PowerLaw(float(asymptote), float(scale), exponent, float(reference_size))
        return np.square(asymptote + scale * x - losses).sum(), law

    low, high = EXPONENT_BOUNDS
    for _ in range(5):
        grid = np.geomspace(low, high, 100)
        best = int(np.argmin([solve(exponent)[0] for exponent in grid]))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    return solve(float((low + high) / 2))[1]


def fit_parabola(sizes: np.ndarray, losses: np.ndarray) -> Parabola:
    """Fit a parabola in ln N to losses `[n]` of sizes `[n]` by least squares."""
    u = np.log(sizes)
    curvature, slope, level = np.polyfit(u - u.mean(), losses, 2)
    return Parabola(float(level), float(slope), float(curvature), float(np.exp(u.mean())))


class Fit:
    """A `curve` fitted to all points, the `others` fitted to all but one of them, and the `residuals [n]`."""

    def __init__(self, fit: Callable, sizes: np.ndarray, losses: np.ndarray):
        self.curve = fit(sizes, losses)
        self.others = [fit(np.delete(sizes, n), np.delete(losses, n)) for n in range(len(sizes))]
        self.losses, self.residuals = losses, losses - self.curve(sizes)

    def error(self, name: str, function: Callable = float) -> float:
        """Return the jackknife error of a function of a parameter of the curve."""
        values = [function(getattr(curve, name)) for curve in self.others]
        return float(np.sqrt((len(values) - 1) * np.var(values)))

    def estimate(self, name: str) -> str:
        return f"{getattr(self.curve, name):.3f} ± {self.error(name):.3f}"

    @property
    def has_asymptote(self) -> bool:
        """Return whether no search ended at a bound, and L_inf is over two standard errors below the lowest loss."""
        is_at_bound = any(curve.is_at_bound for curve in (self.curve, *self.others))
        return not is_at_bound and bool(2 * self.error("asymptote") < min(self.losses) - self.curve.asymptote)


class Group:
    """The runs of one family with one budget, by size, and what their points determine."""

    def __init__(self, rows: Sequence[dict]):
        self.rows = sorted(rows, key=lambda row: row["non_embedding_parameters"])
        self.sizes = np.array([row["non_embedding_parameters"] for row in self.rows], "float64")
        self.losses = np.array([row["val_loss"] for row in self.rows])
        self.family, self.budget = rows[0]["model"], rows[0]["budget"]
        self.has_asymptote = self.has_best_size = False
        if self.budget == "tokens":  # the curve that is used is the power law, where its asymptote is identified
            fits = (functools.partial(fit_power_law, with_asymptote=has_asymptote) for has_asymptote in (True, False))
            law, pure = (Fit(fit, self.sizes, self.losses) for fit in fits)
            self.has_asymptote = law.has_asymptote
            self.fit = law if self.has_asymptote else pure
            known = [law.estimate(name) if self.has_asymptote else UNKNOWN for name in ("asymptote", "exponent")]
            self.answer = known[0]  # L_inf
            self.estimates = [("power law", law, *known, "-")]  # curve, fit, L_inf, b, N*
            self.estimates += [("pure power law", pure, "0", pure.estimate("exponent"), "-")]
        else:
            self.fit, (low, *_, high) = Fit(fit_parabola, self.sizes, self.losses), self.sizes
            self.has_best_size = all(low < curve.best_size < high for curve in (self.fit.curve, *self.fit.others))
            self.answer = UNKNOWN  # N*
            if self.has_best_size:
                factor = np.exp(self.fit.error("best_size", np.log))
                self.answer = f"{rounded(self.fit.curve.best_size):,.0f}, within a factor of {factor:.2f}"
            self.estimates = [("parabola", self.fit, "-", "-", self.answer)]
        self.rows = [{**row, "residual": each} for row, each in zip(self.rows, self.fit.residuals, strict=True)]

    @property
    def gain(self) -> float:
        """Percentage by which twice the middle size lowers the loss, by the curve."""
        middle = self.sizes[len(self.sizes) // 2]
        return 100 * (1 - self.fit.curve(2 * middle) / self.fit.curve(middle))


def rounded(value: float) -> float:
    """Round to two significant digits."""
    return float(f"{value:.2g}")


def group_runs(rows: Sequence[dict]) -> dict[str, list[Group]]:
    """Return the groups of runs by budget."""
    groups = {"tokens": {}, "compute": {}}
    for row in rows:
        groups[row["budget"]].setdefault(row["model"], []).append(row)
    return {budget: [Group(runs) for runs in families.values()] for budget, families in groups.items()}


def verdict(groups: dict[str, list[Group]]) -> str:
    """Say what twice the size is worth with equal tokens, and which size is best with equal compute."""
    gains = [f"{group.gain:.1f} % ({group.family}; L_inf {group.answer})" for group in groups["tokens"]]
    sizes = [f"{group.answer} ({group.family})" for group in groups["compute"]]
    return (
        f"With equal tokens, twice the size lowers the loss by {' and '.join(gains)}. With equal compute, the best "
        f"size by the parabola is {' and '.join(sizes)}. One training a point, so errors are rough."
    )


def best_trained(group: Group) -> str:
    """Describe the run of the lowest loss."""
    row = group.rows[int(group.losses.argmin())]
    size, tokens = row["non_embedding_parameters"], row["train_tokens"]
    return f"N = {size:,} with {tokens:,} tokens, {tokens / size:.0f} per parameter ({group.family})"


IMAGE = "![Loss over size with equal tokens and with equal compute; below, the residuals](scaling.png)"
NOTES = (
    "Losses are in nats per token of the whole validation split; a token is a character, unless the corpus is a folder "
    "of token ids (at most 2^20 of them, spread over it). val_loss: every disjoint window, from the zero state or the "
    "empty cache. N: parameters without those of embedding and head. train FLOP: floating-point operations of the "
    "training, the head included. fit: value of the fitted curve; residual: val_loss minus fit. M: geometric mean of "
    "the sizes. ±: rough jackknife standard errors, one training a point. With equal tokens the curve is a power law; "
    "its asymptote L_inf is the loss of a very large model after these tokens, not the entropy of the text; where the "
    "sizes do not determine it, the pure power law is used. Twice the size: twice the middle one. With equal compute "
    "the curve is a parabola in ln N: small models are limited by their size, large ones by their few tokens."
)


def plot(folder: pathlib.Path, groups: dict[str, list[Group]]):
    """Write scaling.png: equal tokens on the left, equal compute on the right; losses above, residuals below."""
    figure, axes = plots.subplots(2, 2, figsize=(11, 6.6), height_ratios=(3, 1), sharex=True, sharey="row")
    for (budget, members), (losses, residuals) in zip(groups.items(), axes.T, strict=True):
        colors = plots.colors([group.family for group in members])
        for group in members:
            color, curve = colors[group.family], group.fit.curve
            x = np.geomspace(group.sizes[0] / 1.15, group.sizes[-1] * 1.15, 100)
            losses.plot(group.sizes, group.losses, "o", color=color)
            losses.plot(x, curve(x), color=color, linewidth=1.5, label=f"{group.family}: {formula(group)}")
            residuals.plot(group.sizes, group.fit.residuals, "o-", color=color, linewidth=1)
            if group.has_best_size:
                lowest = curve(curve.best_size)
                losses.plot(curve.best_size, lowest, "v", color=color, markersize=9, fillstyle="none")
        losses.set(xscale="log", xticks=[rounded(size) for size in members[0].sizes])
        losses.xaxis.set_minor_locator(NullLocator())
        residuals.xaxis.set_major_formatter(FuncFormatter(thousands))
        residuals.axhline(0, color="0.6", linewidth=0.8, zorder=0)
        residuals.set_xlabel("parameters without embedding and head")
        mean = np.mean([row["train_tokens" if budget == "tokens" else "train_flops"] for row in members[0].rows])
        amount = f"{mean:,.0f} tokens" if budget == "tokens" else f"{mean:.2g} FLOPs"
        losses.set_title(f"equal {budget}: {amount} each", fontsize=11)
        losses.legend(loc="upper center")
    axes[0, 0].set_ylabel("val_loss, nats per token")
    axes[1, 0].set_ylabel("residual")
    plots.save(figure, folder / "scaling.png")


def formula(group: Group) -> str:
    """Format the curve for the legend."""
    curve = group.fit.curve
    if group.budget == "compute":
        return f"minimum at {thousands(rounded(curve.best_size))}" if group.has_best_size else "minimum not identified"
    asymptote = f"{curve.asymptote:.2f} + " if group.has_asymptote else ""
    size = thousands(rounded(curve.reference_size))
    return f"{asymptote}{curve.scale:.2f} (N / {size})$^{{-{curve.exponent:.3f}}}$"


def scaling_report(corpus: str, folder: pathlib.Path, rows: Sequence[dict]) -> Report:
    """Fit the curves, plot them and return the report."""
    groups, loss_name = group_runs(rows), f"val_loss@{rows[0]['val_sequence_length']}"
    plot(folder, groups)
    columns = {
        **{"model": "{model}".format_map, "budget": "{budget}".format_map},
        "non-embedding parameters": "{non_embedding_parameters:,}".format_map,
        **{"parameters": "{parameters:,}".format_map, "learning rate": "{learning_rate:g}".format_map},
        **{"train tokens": "{train_tokens:,}".format_map, "train FLOP": "{train_flops:.2g}".format_map},
        **{"train seconds": "{train_seconds:.0f}".format_map, loss_name: "{val_loss:.3f}".format_map},
        "fit": lambda row: f"{row['val_loss'] - row['residual']:.3f}",
        "residual": "{residual:+.3f}".format_map,
    }
    lines = [
        [group.family, group.budget, name, *estimates, f"{np.abs(fit.residuals).max():.3f}"]
        for group in itertools.chain(*groups.values())
        for name, fit, *estimates in group.estimates
    ]
    fits = Table(["model", "budget", "curve", "L_inf", "b", "best N", "largest residual"], lines)
    return Report(
        f"{corpus}: how the loss falls with size",
        verdict(groups),
        Table.of([row for group in itertools.chain(*groups.values()) for row in group.rows], columns),
        ("model", "budget", "non-embedding parameters", loss_name, "residual"),
        rows,
        NOTES,
        [fits, f"Best size trained with equal compute: {' and '.join(map(best_trained, groups['compute']))}.", IMAGE],
    )


def train_sizes(config: ScalingConfig, folder: pathlib.Path) -> Report:
    """Train all runs that are not finished in `folder`, and report them."""
    data = split_corpus(config.corpus, folder, config.sequence_length + 1)
    runs = plan(config, data.tokenizer.vocabulary_size)
    amount = f"{len(runs)} runs of {config.tokens:,} tokens or {config.compute:.2g} FLOPs"
    data.introduce(config.train, config.sequence_length + 1, amount)
    names = [f"{each.family}-{each.non_embedding_parameters}-{each.budget}-seed{config.seed}" for each in runs]
    trainings = [
        random_windows_run(
            *(folder / name, config, each.family, each.model_config),
            *(data, config.batch_size, config.sequence_length, each.num_steps, each.train),
        )
        for name, each in zip(names, runs, strict=True)
    ]
    rows = []
    for planned, (run, *_), row in zip(runs, trainings, run_all(trainings), strict=True):
        row |= {"budget": planned.budget, "non_embedding_parameters": planned.non_embedding_parameters}
        rows.append({"run": run.name, **row, "train_flops": planned.flops_per_token * row["train_tokens"]})
    return scaling_report(data.corpus.name, folder, rows)


main = experiment_main("scaling", ScalingConfig, SMOKE, train_sizes, __doc__)

if __name__ == "__main__":
    main()
