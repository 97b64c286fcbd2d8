"""How much of its past does a model use? Loss by position of LSTMs and Transformers, on windows of 64 to 512.

    python -m experiments.loss_by_position                             # Python's docstrings, offline
    python -m experiments.loss_by_position --corpus shakespeare
    python -m experiments.loss_by_position --sequence-lengths 64 1024
    python -m experiments.loss_by_position --smoke                     # tiny sizes, takes seconds

Time: 23 minutes on 2 cores, more than half of it for windows of 512.

Kaplan et al. (2020, https://arxiv.org/abs/2001.08361, figure 7) found that the loss of LSTMs stops falling after some
hundred tokens of context, while that of Transformers keeps falling. Expected at 0.35 million parameters, on tiny
Shakespeare: both are flat, within 0.006 nats from 32-64 characters of past to 256-512 (docs/experiments.md).
"""

import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.ticker import NullLocator

from experiments.common.command import experiment_main
from experiments.common.random_windows import train_on_random_windows
from keras_seq import training
from keras_seq.commands.options import (
    CorpusName,
    LogDir,
    Resume,
    Seed,
    Smoke,
    check_filled_in,
    check_multiple,
    check_options,
    check_unique,
    num_steps,
)
from keras_seq.evaluation import Evaluator
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.reports import plots
from keras_seq.reports.tables import Report, Table, compare_sizes
from keras_seq.runs.texts import smoke_corpus, split_corpus

FAMILIES = ("lstm", "transformer")


@dataclasses.dataclass(frozen=True)
class LossByPositionConfig:
    """Train two families at growing sequence lengths, and compare their losses by position."""

    corpus: CorpusName = "docstrings"
    sequence_lengths: tuple[int, ...] = (64, 128, 256, 512)
    """Sequence lengths T of the training windows, in tokens: the smallest one times powers of 2."""
    tokens: int = 1_228_800
    """Characters that each model is trained on, over all epochs."""
    batch_tokens: int = 2048
    """Characters in a batch, at every sequence length."""
    seed: Seed = 0
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = training.TrainConfig(checkpoint_every=250)
    lstm: LSTMConfig = LSTMConfig(embedding_dim=64, units=256)
    transformer: TransformerConfig = TransformerConfig(
        embedding_dim=96, num_layers=3, num_heads=3, feed_forward_dim=384, kernel_size=None, use_output_gate=False
    )

    def __post_init__(self):
        check_options(self, tokens=1, batch_tokens=1)
        check_unique("--sequence-lengths", self.sequence_lengths)
        option = f"--sequence-lengths {' '.join(map(str, self.sequence_lengths))}"
        if len(self.sequence_lengths) < 2:
            raise ValueError(f"{option}: expected two or more lengths.")
        smallest = min(self.sequence_lengths)
        doubled = {smallest * 2**k for k in range(32)}
        if smallest < 2 or smallest % 2 or not doubled.issuperset(self.sequence_lengths):
            raise ValueError(f"{option}: expected an even number and that number times powers of 2, e.g. 64 128 256.")
        check_multiple("--batch-tokens", self.batch_tokens, self.max_length)
        context_length = self.transformer.context_length
        check_filled_in("--transformer.context-length", context_length, "each of the --sequence-lengths")

    @property
    def max_length(self) -> int:
        """The longest sequence length."""
        return max(self.sequence_lengths)

    @property
    def steps(self) -> int:
        """Number of batches that contain `tokens`."""
        return num_steps(self.tokens, self.batch_tokens)

    def model_config(self, family: str, sequence_length: int) -> LSTMConfig | TransformerConfig:
        """Return the config of a model that is trained on windows of this length."""
        return self.lstm if family == "lstm" else dataclasses.replace(self.transformer, context_length=sequence_length)


SMOKE = {
    "corpus": smoke_corpus,
    **{"sequence_lengths": (8, 16), "tokens": 8 * 64, "batch_tokens": 64},
    "train": {"warmup_steps": 2, "log_every": 2, "validate_every": 4, "checkpoint_every": 8},
    "lstm": {"embedding_dim": 8, "units": 16},
    "transformer": {"embedding_dim": 16, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 32},
}


# Window m has the T tokens from m S on; a token at position p of it has p + 1 tokens of past. Octave k has
# the positions from 2^k S/2 up to 2^k S, where S is the smallest sequence length and T = 2^k S. The windows overlap: a
# character is in several of them, after pasts of different lengths, and its loss in an octave is the mean over those
# that have it there. Octaves are compared on the tokens with a loss in every octave, since the loss varies far more
# between parts of the text than between lengths of the past.
# Standard errors treat blocks of text as independent: sqrt(B / (B - 1) sum_b (s_b - mean n_b)^2) / n, with the sum s_b
# and the count n_b of each of B blocks (a ratio estimator; Cochran, 1977, section 6).


class Estimate(NamedTuple):
    """A mean and its standard error, in nats."""

    mean: float
    error: float

    @classmethod
    def of(cls, sums: np.ndarray, counts: np.ndarray) -> "Estimate":
        """Return the mean of all values, with the sum and the number of those in each block, `[B]`."""
        total, num_blocks = counts.sum(), len(counts)
        mean = sums.sum() / total
        error = np.sqrt(num_blocks / (num_blocks - 1) * np.square(sums - mean * counts).sum()) / total
        return cls(float(mean), float(error))

    def __str__(self):
        return f"{round(self.mean, 4) + 0.0:.4f} ± {self.error:.4f}"  # no -0.0000

    @property
    def marked(self) -> str:
        """The estimate, with a note if it is less than two standard errors."""
        return str(self) if abs(self.mean) >= 2 * self.error else f"{self} (not significant)"


def position_scores(evaluator: Evaluator, ids: np.ndarray, lengths: Sequence[int]) -> dict:
    """Score a model on windows of a text `[N]`: losses in bins of positions, and sums and counts of octaves by block.

    The first S positions are scored in windows that start every S / 8, to have more tokens at each position.
    """
    stride, max_length, block = min(lengths), max(lengths), 2 * max(lengths)
    starts, near_starts = window_starts(ids, stride, max_length), window_starts(ids, max(1, stride // 8), stride)
    # a recurrent state has no maximum length, so the LSTM is also scored beyond its training length
    losses = window_losses(evaluator, ids, starts, evaluator.model.context_length or max_length)
    near_losses = window_losses(evaluator, ids, near_starts, stride)
    near_edges, far_edges = [0, *bin_edges(1, stride)], bin_edges(stride, losses.shape[1])
    bins = [*by_bin(near_losses, near_starts, near_edges, block), *by_bin(losses, starts, far_edges, block)]
    sums, counts = block_sums(*octaves(losses, starts, stride, max_length), block)
    means, errors = map(list, zip(*bins, strict=True))
    return {
        "by_position": {"edges": [*near_edges, *far_edges[1:]], "losses": means, "standard_errors": errors},
        "octaves": {"first": stride // 2, "sums": sums.tolist(), "counts": counts.tolist()},
    }


def window_starts(ids: np.ndarray, stride: int, length: int) -> np.ndarray:
    """Return the starts, every `stride` tokens, of windows of this length that a token follows."""
    return np.arange(0, len(ids) - length, stride)


def window_losses(evaluator: Evaluator, ids: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """Return the token losses `[windows, T]` of windows that each start from the zero state."""
    windows = ids[starts[:, None] + np.arange(length + 1)]
    return evaluator.independent_token_losses(windows[:, :-1], windows[:, 1:])


def bin_edges(low: int, high: int) -> list[int]:
    """Return edges of bins of positions from `low` to `high`, each about half an octave wide: 1, 2, 3, 4, 6, 8, ..."""
    bins = np.round(low * 2 ** np.arange(0, np.log2(high / low) - 0.25, 0.5)).astype(int)
    return sorted({*(int(edge) for edge in bins), high})


def by_bin(losses: np.ndarray, starts: np.ndarray, edges: list[int], block: int) -> list[Estimate]:
    """Return the mean loss in every bin of positions, from losses `[windows, T]`."""
    estimates = []
    for low, high in itertools.pairwise(edges):
        sums, counts = block_sums(losses[:, low:high].sum(axis=1, dtype="float64"), starts, block)
        estimates.append(Estimate.of(sums, counts * (high - low)))
    return estimates


def octaves(losses: np.ndarray, starts: np.ndarray, stride: int, max_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the losses `[C, octaves up to T]` of the scored tokens and their indices `[C]`.

    Scored are those that the windows of `max_length` have in every octave, also where `losses [windows, T]` end before.
    """
    lows = [stride // 2 * 2**k for k in range(int(np.log2(max_length // stride)) + 1)]
    indices = starts[:, None] + np.arange(max_length)
    size = int(indices.max()) + 1
    in_every_octave, columns = np.ones(size, bool), []
    for low in lows:
        octave_indices = indices[:, low : 2 * low].ravel()
        counts = np.bincount(octave_indices, minlength=size)
        in_every_octave &= counts == max(1, low // stride)
        if 2 * low <= losses.shape[1]:
            sums = np.bincount(octave_indices, losses[:, low : 2 * low].ravel().astype("float64"), minlength=size)
            columns.append(sums / np.maximum(counts, 1))
    (scored,) = np.nonzero(in_every_octave)
    return np.stack(columns, axis=1)[scored], scored


def block_sums(values: np.ndarray, indices: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Return sums `[B, ...]` and counts `[B]` of values `[C, ...]` at `indices [C]`, for the blocks that have any."""
    block_ids = indices // block
    counts = np.bincount(block_ids)
    sums = np.zeros((len(counts), *values.shape[1:]))
    np.add.at(sums, block_ids, values)
    return sums[counts > 0], counts[counts > 0]


class RunResult:
    """The losses of one run in octaves, from its row."""

    def __init__(self, row: dict):
        self.row, self.model, self.length = row, row["model"], row["val_sequence_length"]
        self.sums, self.counts = np.array(row["octaves"]["sums"]), np.array(row["octaves"]["counts"])
        lows = row["octaves"]["first"] * 2 ** np.arange(self.sums.shape[1])
        self.ranges = [f"{low}-{2 * low}" for low in lows]  # 32-64, ...
        self.num_trained = int((2 * lows <= self.length).sum())  # within T; the others have more past than training
        octave = np.eye(len(lows))
        self.losses = [self.estimate(weights).mean for weights in octave]
        self.changes = [self.estimate(weights - octave[0]) for weights in octave]  # relative to the first octave
        self.falls = {name: self.estimate(weights) for name, weights in contrasts(self.num_trained).items()}

    def estimate(self, weights: np.ndarray, other: "RunResult | None" = None) -> Estimate:
        """Return a weighted sum of the losses in the first octaves, minus that of another run, paired by token."""
        sums = self.sums[:, : len(weights)] - (0 if other is None else other.sums[:, : len(weights)])
        return Estimate.of(sums @ weights, self.counts)


def contrasts(num_octaves: int) -> dict[str, np.ndarray]:
    """Return the weights of the octaves in falls of the loss; per doubling: the slope of a least-squares line."""
    if num_octaves < 2:
        return {}
    octave, centered = np.eye(num_octaves), np.arange(num_octaves) - (num_octaves - 1) / 2
    return {
        "falls by": octave[0] - octave[-1],
        "per doubling": -centered / np.square(centered).sum(),
        "last doubling": octave[-2] - octave[-1],
    }


def verdict(results: Sequence[RunResult]) -> str:
    """Say by how much the loss falls in the longest windows, those of the last two runs, and what may be chance."""
    *_, lstm, transformer = results
    weights = contrasts(lstm.num_trained)
    total, last = (
        f"{lstm.falls[name].marked} for the lstm, {transformer.falls[name].marked} for the transformer, a difference "
        f"of {transformer.estimate(weights[name], lstm).marked}"
        for name in ("falls by", "last doubling")
    )
    return (
        f"In windows of {lstm.length} tokens, from {lstm.ranges[0]} to {lstm.ranges[-1]} tokens of past, the "
        f"loss falls by {total}; in the last doubling by {last}. In nats, one seed; ± is a standard error over "
        "blocks of text."
    )


NOTES = (
    "Losses are in nats per token of the validation split; a token is a character, unless the corpus is a folder of "
    "token ids. T: the length of the training windows. val_loss@T: over disjoint windows of T tokens, each from the "
    "zero state or the empty cache. Columns of ranges: the loss after that many tokens of past, from overlapping "
    "windows; all columns and all models are scored on the same tokens. *: more past than in training; a Transformer "
    "has no such value, since its context length is T. falls by: the loss in the first range minus that in the last "
    "one within T; per doubling: the slope of a least-squares line through these ranges. ±: a standard error over "
    "blocks of text; the variance between seeds is not in it. Not significant: less than two standard errors. "
)


def table(results: Sequence[RunResult]) -> Table:
    """Return a line for each run."""
    ranges = max((result.ranges for result in results), key=len)

    def octave(result, k):  # with a star where the model had no such past in training
        return "-" if k >= len(result.losses) else f"{result.losses[k]:.3f}{'' if k < result.num_trained else '*'}"

    columns = {
        **{"model": "{0.model}".format, "T": "{0.length}".format, "parameters": "{0.row[parameters]:,}".format},
        **{"train seconds": "{0.row[train_seconds]:.0f}".format, "val_loss@T": "{0.row[val_loss]:.3f}".format},
        **{name: functools.partial(octave, k=k) for k, name in enumerate(ranges)},
        **{name: lambda result, name=name: str(result.falls.get(name, "-")) for name in ("falls by", "per doubling")},
    }
    return Table.of(results, columns)


def plot(folder: pathlib.Path, results: Sequence[RunResult]):
    """Write loss_by_position.png: loss by position on the left, loss relative to the first octave on the right."""
    figure, (curves, changes) = plots.subplots(1, 2, figsize=(12, 5.2), width_ratios=(6, 5))
    lengths, colors = sorted({result.length for result in results}), plots.colors([r.model for r in results])
    alphas = dict(zip(lengths, np.linspace(0.35, 1, len(lengths)), strict=True))
    for result in results:
        style = {"color": colors[result.model], "alpha": alphas[result.length]}
        bins = result.row["by_position"]
        low, high = np.array(bins["edges"][:-1]) + 1, np.array(bins["edges"][1:])
        x, y, error = np.sqrt(low * high), np.array(bins["losses"]), np.array(bins["standard_errors"])
        draw(curves.plot, (x, y), int((high <= result.length).sum()), style)
        if result.length == lengths[-1]:  # a band of one standard error for the longest windows
            curves.fill_between(x, y - error, y + error, color=style["color"], alpha=0.15, linewidth=0)
        style |= {"marker": "o", "markersize": 4, "capsize": 2.5, "elinewidth": 1}
        values = (np.arange(len(result.changes)), *np.array(result.changes).T)
        draw(changes.errorbar, values, result.num_trained, style)
    curves.set_xscale("log", base=2)
    curves.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    curves.xaxis.set_minor_locator(NullLocator())
    curves.set_ylabel("loss (nats per token)")
    ranges = max((result.ranges for result in results), key=len)
    changes.set_xticks(range(len(ranges)), ranges)
    changes.set_ylabel(f"loss minus that at {ranges[0]}, same tokens (nats)")
    changes.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    for axes in (curves, changes):
        axes.set_xlabel("position: tokens of past")
    styles = {f"T = {length}": {"alpha": alpha} for length, alpha in alphas.items()}
    styles |= {"lstm, beyond T": {"linestyle": "--"}}
    plots.legend(figure, colors, styles, loc="outside lower center", ncols=len(colors) + len(styles))
    plots.save(figure, folder / "loss_by_position.png")


def draw(method: Callable, values: Sequence[np.ndarray], num_trained: int, style: dict):
    """Draw a line by a method of axes, dashed beyond the training length."""
    for part, linestyle in ((slice(num_trained), "-"), (slice(num_trained - 1, None), "--")):
        if len(values[0][part]) > 1:
            method(*(each[part] for each in values), **style, linestyle=linestyle)


def sweep(config: LossByPositionConfig, folder: pathlib.Path) -> Report:
    """Train both families on windows of every length, where they are not finished in `folder`, and report them."""
    data = split_corpus(config.corpus, folder, min_length=4 * config.max_length + 1)  # two blocks of scores
    configs = {family: config.model_config(family, config.max_length) for family in FAMILIES}
    counts = {name: c.build_model(data.tokenizer.vocabulary_size).count_params() for name, c in configs.items()}
    sizes = " and ".join(f"{name} of {count:,} parameters" for name, count in counts.items())
    plan = f"{sizes}, {config.steps:,} steps of {config.batch_tokens:,} tokens a run"
    data.introduce(config.train, config.max_length + 1, plan)
    finish, rows = functools.partial(position_scores, ids=data.validation, lengths=config.sequence_lengths), []
    for length, family in itertools.product(sorted(config.sequence_lengths), FAMILIES):
        run, model_config = folder / f"{family}-{length}-seed{config.seed}", config.model_config(family, length)
        sizes = (config.batch_tokens // length, length, config.steps)
        rows.append(train_on_random_windows(run, config, family, model_config, data, *sizes, config.train, finish))
    results = [RunResult(row) for row in rows]
    plot(folder, results)
    return Report(
        f"{data.corpus.name}: loss by position",
        verdict(results),
        table(results),
        ("model", "T", "val_loss@T", "falls by", "per doubling"),
        rows,
        NOTES + compare_sizes([row["parameters"] for row in rows]),
        ["![Left: loss by position. Right: loss relative to the first range](loss_by_position.png)"],
    )


main = experiment_main("loss_by_position", LossByPositionConfig, SMOKE, sweep, __doc__)

if __name__ == "__main__":
    main()
