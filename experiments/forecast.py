"""How close do sequence models come to the best possible forecast of series whose law is known?

    seasonal     a pattern of 24 values with autocorrelated noise
    switching    three levels in turn, each for a random time, with noise: the level is not observed
    volatility   values without a predictable mean, whose variance is predictable (GARCH)

    python -m experiments.forecast
    python -m experiments.forecast --series switching --models lstm transformer --heads student_t
    python -m experiments.forecast --smoke                    # tiny sizes, takes seconds

Time: 15 minutes on 2 cores.

After every position a Student t head predicts each of the next 24 values by a distribution, a quantile head by 19
quantiles. Free running draws the next value, reads it as if it were measured, and so on. The scores are proper: no
expected one is below the source's own. Of a model whose loss is, by more than 4 standard errors, the exit status is 1.
Expected over the source: the LSTM 1.3 % on seasonal, the Transformer 0.1 % on switching, the GRU 0.1 % on volatility.
"""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from keras import ops
from matplotlib.axes import Axes

from experiments.common.command import experiment_main
from experiments.common.tasks import run_task
from keras_seq import training
from keras_seq.commands.options import BatchSize, LogDir, Resume, Smoke, check_multiple, check_options, check_unique
from keras_seq.data import ArrayBatches
from keras_seq.data.synthetic import SERIES
from keras_seq.evaluation import QuantileLoss, StudentTLoss, quantile_score
from keras_seq.generation import sample_paths
from keras_seq.models import LANGUAGE_MODELS, MODELS, Forecaster
from keras_seq.models.config import sized
from keras_seq.ops.compiled import compiled
from keras_seq.reports import plots
from keras_seq.reports.tables import Report, Table, without_texts
from keras_seq.tracking import Summaries

HEADS = ("student_t", "quantiles")
LEVELS = tuple((np.arange(1, 20) / 20).round(2).tolist())  # of the scores, and of the quantile head
OUTER = slice(0, 19, 18)  # the levels 0.05 and 0.95, between which are 90 %
STRIDE = 5  # values from the start of one training window to the next one's
SOURCE_PATHS = 2_000
MAX_STANDARD_ERRORS = 4  # below the source, by chance
NUM_SERIES, VALIDATION_SEED, TEST_SEED = 3, 1, 2  # seeds of training series are multiples of 3: never one of these


@dataclasses.dataclass(frozen=True)
class ForecastConfig:
    """Forecast series whose law is known."""

    series: tuple[Literal[tuple(SERIES)], ...] = tuple(SERIES)
    """Series to forecast, in this order."""
    models: tuple[Literal[LANGUAGE_MODELS], ...] = ("lstm", "gru", "mingru", "mamba2", "transformer", "hybrid")
    """Models whose blocks are trained, in this order."""
    heads: tuple[Literal[HEADS], ...] = HEADS
    """Distributions that they predict, in this order."""
    values: int = 150_000
    """Length of the training series."""
    steps: int = 400
    """Number of training steps."""
    batch_size: BatchSize = 32
    sequence_length: int = 96
    """Values that a forecast is made from, T."""
    horizon: int = 24
    """Values that are forecast at once, H."""
    forecasts: int = 200
    """Number of forecasts to score, after stretches of the test series that do not overlap."""
    num_paths: int = 100
    """Paths of each free-running forecast."""
    width: int = 32
    """D of models of 2 residual blocks, a multiple of 8. LSTM, GRU and RNN have one layer of 2 D units."""
    seed: int = 0
    """Random seed of the series, the weights and the batches."""
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = training.TrainConfig(validate_every=200)

    def __post_init__(self):
        check_options(self, steps=1, batch_size=1, sequence_length=2, horizon=1, forecasts=2, num_paths=2)
        check_options(self, values=STRIDE * self.batch_size + self.sequence_length + self.horizon)
        check_multiple("--width", self.width, 8)
        for option in ("series", "models", "heads"):
            check_unique(f"--{option}", getattr(self, option))
        check_options(self, sequence_length=max(SERIES[name].season for name in self.series))  # is repeated

    def options_without_effect(self) -> dict[str, str]:
        return {} if "student_t" in self.heads else {"num_paths": "student_t among --heads"}

    def model_config(self, name: str) -> Any:
        """Return the config of the blocks at this width."""
        if name in ("rnn", "gru", "lstm"):
            return MODELS[name](embedding_dim=self.width, units=2 * self.width)
        sizes = {"embedding_dim": self.width, "units": 2 * self.width, "feed_forward_dim": 4 * self.width}
        sizes |= {"num_layers": 2, "num_heads": 4, "context_length": self.sequence_length + self.horizon}
        return sized(name, **sizes)

    def loss(self, head: str) -> QuantileLoss | StudentTLoss:
        """Return the loss of a head."""
        return StudentTLoss(self.horizon) if head == "student_t" else QuantileLoss(LEVELS, self.horizon)


SMOKE = {
    **{"models": lambda models: models[:1], "values": 400, "steps": 12, "batch_size": 8, "sequence_length": 24},
    **{"horizon": 4, "forecasts": 6, "num_paths": 5, "width": 8},
    "train": {"warmup_steps": 2, "log_every": 3, "validate_every": 6, "checkpoint_every": 6},
}


def windows(values: np.ndarray, length: int, stride: int) -> np.ndarray:
    """Cut a series `[N]` into windows `[n, length]`, one after each `stride` values."""
    return np.lib.stride_tricks.sliding_window_view(values, length)[::stride]


class Series:
    """A source, its training windows, and test stretches `[forecasts, T + H]`, with what the source says of them."""

    def __init__(self, config: ForecastConfig, name: str):
        self.name, self.source, self.config = name, SERIES[name], config
        length, horizon = config.sequence_length, config.horizon
        self.train = self.source.sample(config.values, NUM_SERIES * config.seed)
        self.mean, self.deviation = self.train.mean(), self.train.std()  # every model reads (y - mean) / deviation
        stretch = length + horizon
        self.validation = windows(self.source.sample(20 * stretch, VALIDATION_SEED), stretch, length)
        values = self.source.sample(config.forecasts * stretch, TEST_SEED)
        states, log_densities = self.source.follow(values)
        self.test = values.reshape(config.forecasts, -1)
        self.truth = self.test[:, length:]  # [forecasts, H]
        self.log_densities = log_densities.reshape(config.forecasts, -1)[:, length // 2 + 1 : length + 1]
        last = states.reshape(config.forecasts, stretch, -1)[:, length - 1]
        paths = self.source.paths(last, horizon, SOURCE_PATHS, config.seed)
        self.quantiles = np.moveaxis(np.quantile(paths, LEVELS, axis=1), 0, -1)  # [forecasts, H, levels]

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Return what a model reads, float32."""
        return ((values - self.mean) / self.deviation).astype("float32")

    def examples(self, stretches: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return values `[n, T, 1]` of stretches `[n, T + H]` and, at each position, the H values after it."""
        scaled = self.scaled(stretches)
        following = np.lib.stride_tricks.sliding_window_view(scaled[:, 1:], self.config.horizon, axis=1)
        return scaled[:, : self.config.sequence_length, None], following

    def batches(self) -> ArrayBatches:
        """Return the training batches."""
        length = self.config.sequence_length + self.config.horizon
        return ArrayBatches(
            self.examples(windows(self.train, length, STRIDE)), self.config.batch_size, self.config.seed
        )

    def naive_quantiles(self) -> np.ndarray:
        """Forecast the last season again, with the quantiles of that forecast's errors on the training series."""
        period, horizon = self.source.season, self.config.horizon
        lags = period * -(-np.arange(1, horizon + 1) // period)  # of the value that is repeated
        errors = [np.quantile(self.train[lag:] - self.train[:-lag], LEVELS) for lag in lags]
        repeated = self.test[:, self.config.sequence_length + np.arange(horizon) - lags]
        return repeated[..., None] + np.array(errors)


class ForecastTask:
    """Train one model with one head on one series, and score its forecasts."""

    diagnostics = ()

    def __init__(self, config: ForecastConfig, series: Series, model_name: str, head: str):
        self.config, self.series, self.head, self.loss = config, series, head, config.loss(head)
        self.names = {"series": series.name, "model": model_name, "head": head}
        model_config = config.model_config(model_name)
        context = getattr(model_config, "context_length", None)
        policy = config.train.dtype_policy
        blocks = model_config.blocks(policy)
        self.model = Forecaster(config.width, blocks, self.loss.num_outputs, context, dtype=policy, name=model_name)
        self.model.build((None, None))
        self.dataset = series.batches().dataset
        self.tokens_per_step = config.batch_size * config.sequence_length
        self.forward = compiled(functools.partial(self.model, training=False), self.model)

    def validate(self) -> Summaries:
        """Score the validation windows, at every position."""
        x, y = self.series.examples(self.series.validation)
        return Summaries({"val_loss": float(self.loss(y, self.forward(x)))}, {})

    def test(self) -> dict:
        """Score the forecasts after the test stretches."""
        x, y = self.series.examples(self.series.test)
        outputs = ops.convert_to_numpy(self.forward(x))
        result = {**self.names, **scores(self.series, self.quantiles(outputs[:, -1]))}
        if self.head == "student_t":
            losses = ops.convert_to_numpy(self.loss.call(y, outputs))[..., 0] + math.log(self.series.deviation)
            losses = losses[:, self.config.sequence_length // 2 :]  # of the next value, after half a window or more
            excess = (losses + self.series.log_densities).mean(axis=1)
            result |= {"loss": float(losses.mean()), **mean_and_error("excess_loss", excess)}
            result |= scores(self.series, self.free_running(x), "free_")
        return result

    def quantiles(self, outputs: np.ndarray) -> np.ndarray:
        """Return the quantiles `[n, H, levels]` of the H values after each stretch."""
        given = (LEVELS,) if self.head == "student_t" else ()
        quantiles = ops.convert_to_numpy(self.loss.quantiles(outputs, *given))
        return quantiles * self.series.deviation + self.series.mean

    def free_running(self, x: np.ndarray) -> np.ndarray:
        """Return the quantiles `[n, H, levels]` of paths."""
        horizon, num_paths = self.config.horizon, self.config.num_paths
        paths = sample_paths(self.model, self.loss.sample, x, horizon, num_paths, self.config.seed)
        quantiles = np.quantile(paths, LEVELS, axis=1)
        return np.moveaxis(quantiles, 0, -1) * self.series.deviation + self.series.mean


def mean_and_error(name: str, values: np.ndarray) -> dict[str, float]:
    """Return the mean of values `[n]` and its standard error."""
    return {name: float(values.mean()), f"{name}_error": float(values.std() / math.sqrt(len(values)))}


def coverage(truth: np.ndarray, quantiles: np.ndarray) -> float:
    """Return the fraction of values between the outer quantiles; 0.9 if these are the true ones."""
    low, high = np.moveaxis(quantiles[..., OUTER], -1, 0)
    return float(((low <= truth) & (truth <= high)).mean())


def scores(series: Series, quantiles: np.ndarray, prefix: str = "") -> dict:
    """Return the score of quantiles, by horizon too, its excess over the source's, and what a picture shows."""
    score = quantile_score(series.truth, quantiles, LEVELS)  # [n, H]
    excess = (score - quantile_score(series.truth, series.quantiles, LEVELS)).mean(axis=1)
    return {
        f"{prefix}score": float(score.mean()),
        **mean_and_error(f"{prefix}excess_score", excess),
        f"{prefix}coverage": coverage(series.truth, quantiles),
        f"{prefix}score_by_horizon": score.mean(axis=0).tolist(),
        f"{prefix}fan": quantiles[0].tolist(),
    }


def baseline(series: Series, name: str, quantiles: np.ndarray) -> dict:
    """Return the row of a forecast that is not trained."""
    return {"series": series.name, "model": name, "head": "", "run": None, **scores(series, quantiles)}


def plot(folder: pathlib.Path, rows: Sequence[dict], all_series: Sequence[Series]):
    """Write forecast.png: a row for each series, a fan of forecasts at the left, scores by horizon at the right."""
    figure, axes = plots.subplots(len(all_series), 2, figsize=(11, 3.3 * len(all_series)), squeeze=False)
    trained = [row for row in rows if row["run"]]
    colors = plots.colors([row["model"] for row in trained])
    for (fan, scores), series in zip(axes, all_series, strict=True):
        own = [row for row in rows if row["series"] == series.name]
        plot_fan(fan, series, min((row for row in own if row["run"]), key=lambda row: row["score"]))
        plot_scores(scores, own, colors)
    plots.legend(axes[0, 1], colors, STYLES, loc="best", fontsize=8, ncols=2)
    plots.save(figure, folder / "forecast.png")


BANDS = ((0, 18, 0.2), (4, 14, 0.35))  # indices of levels and how opaque: 90 and 50 %
STYLES = {
    "Student t": {},
    "quantiles": {"linestyle": "--"},
    "free running": {"linestyle": ":"},
    "source": {"color": "black", "linewidth": 2.5, "alpha": 0.5},
    "seasonal naive": {"color": "0.6", "linestyle": "-."},
}


def plot_fan(axes: Axes, series: Series, best: dict):
    """Plot the first forecast of a model, that of the source, and what came."""
    config, quantiles = series.config, np.array(best["fan"])
    x = np.arange(1, config.horizon + 1)
    for low, high, alpha in BANDS:
        axes.fill_between(x, quantiles[:, low], quantiles[:, high], color="C0", alpha=alpha, linewidth=0)
    axes.plot(x, quantiles[:, 9], color="C0", label=f"{best['model']}: median, 50 %, 90 %")
    for index, label in ((0, "source: 90 %"), (18, None)):
        axes.plot(x, series.quantiles[0, :, index], color="black", linestyle="--", linewidth=1, label=label)
    before = min(config.sequence_length, 2 * config.horizon)
    values = series.test[0, config.sequence_length - before :]
    axes.plot(np.arange(1 - before, config.horizon + 1), values, color="0.35", linewidth=1, label="values")
    axes.axvline(0.5, color="0.8", linewidth=1)
    axes.set_title(series.name)
    axes.set_xlabel("values ahead")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.35 * (high - low))  # room for the legend
    axes.legend(loc="upper left", fontsize=8)


def plot_scores(axes: Axes, rows: Sequence[dict], colors: dict[str, str]):
    """Plot the score at each horizon, relative to that of the source at the same one."""
    best = np.array(next(row["score_by_horizon"] for row in rows if row["model"] == "source"))
    x = np.arange(1, len(best) + 1)
    for row in rows:
        if not row["run"]:
            axes.plot(x, row["score_by_horizon"] / best, **STYLES[row["model"]])
            continue
        style = STYLES["Student t" if row["head"] == "student_t" else row["head"]]
        axes.plot(x, row["score_by_horizon"] / best, color=colors[row["model"]], **style)
        if "free_score_by_horizon" in row:
            axes.plot(x, row["free_score_by_horizon"] / best, color=colors[row["model"]], **STYLES["free running"])
    axes.set_title(f"{rows[0]['series']}: score by that of the source")
    axes.set_xlabel("values ahead")


def relative(row: dict, prefix: str = "") -> str:
    """Return the excess score by the source's score, and half the width of its 95 % interval."""
    if f"{prefix}score" not in row:
        return "-"
    source = row["score"] - row["excess_score"]
    return f"{row[f'{prefix}excess_score'] / source:+.1%} ± {1.96 * row[f'{prefix}excess_score_error'] / source:.1%}"


COLUMNS = {
    **{"series": "{series}".format_map, "model": "{model}".format_map, "head": "{head}".format_map},
    "parameters": lambda row: f"{row['parameters']:,}" if row["run"] else "-",
    "excess loss": lambda row: (
        f"{row['excess_loss']:.4f} ± {1.96 * row['excess_loss_error']:.4f}" if "loss" in row else "-"
    ),
    "score": "{score:.4f}".format_map,
    "over the source": relative,
    "free running": lambda row: relative(row, "free_"),
    "in 90 %": lambda row: f"{row['coverage']:.1%}",
}
NOTES = (
    "score: twice the mean quantile loss at the levels 0.05, 0.10, ..., 0.95, near the CRPS, over the next {horizon} "
    "values of {forecasts} forecasts; over the source: relative to the forecast of the source, which knows the law and "
    f"the whole past ({SOURCE_PATHS:,} paths), with a 95 % interval over the forecasts. free running: the same of "
    "{num_paths} paths, whose quantiles are uncertain themselves, about 1 %. excess loss: of the next value, after the "
    "true ones (teacher forcing), in nats above the source's, whose density is known. in 90 %: of the values, those "
    "between the quantiles 0.05 and 0.95. seasonal naive: the last season again (24 values, or the last value), with "
    "the quantiles of this forecast's errors on the training series. Test series are not those of training."
)


def is_leak(row: dict) -> bool:
    """Return whether the loss is below the source's by more than chance."""
    return "loss" in row and row["excess_loss"] < -MAX_STANDARD_ERRORS * row["excess_loss_error"]


def leaks(rows: Sequence[dict]) -> list[str]:
    """Return a sentence for each model that is below the source by more than chance."""
    return [
        f"{row['model']} on {row['series']} is {-row['excess_loss']:.4f} nats per value below the source, more than "
        f"{MAX_STANDARD_ERRORS} standard errors: it reads values that it has to predict."
        for row in filter(is_leak, rows)
    ]


def verdict(rows: Sequence[dict]) -> str:
    """Name the closest forecast of each series, and what free running and the baseline have."""
    sentences = leaks(rows) or [f"No model is below the source by more than {MAX_STANDARD_ERRORS} standard errors."]
    for name in dict.fromkeys(row["series"] for row in rows):
        own = [row for row in rows if row["series"] == name]
        best = min((row for row in own if row["run"] and not is_leak(row)), key=lambda row: row["score"], default=None)
        if best is not None:
            free = f", {relative(best, 'free_')} free running" if "free_score" in best else ""
            naive = next(relative(row) for row in own if row["model"] == "seasonal naive")
            sentences.append(
                f"Closest on {name}: {best['model']} with {best['head']}, {relative(best)} over the source{free}; "
                f"seasonal naive {naive}."
            )
    return " ".join([*sentences, "± is half a 95 % interval over the forecasts; one seed each."])


def train_one(folder: pathlib.Path, config: ForecastConfig, series: Series, name: str, head: str) -> dict:
    """Return the row of a model, which is trained and scored if it is not finished."""

    def new_task(_):
        return ForecastTask(config, series, name, head)

    return run_task(folder, config, f"{series.name}-{name}-{head}", config.model_config(name), new_task)


def compare(config: ForecastConfig, folder: pathlib.Path) -> Report:
    """Train the models that are not finished in `folder`, and report how far all are above the source."""
    rows, all_series = [], [Series(config, name) for name in config.series]
    for series in all_series:
        rows.append(baseline(series, "source", series.quantiles))
        rows.append(baseline(series, "seasonal naive", series.naive_quantiles()))
        for name in config.models:
            for head in config.heads:
                rows.append(train_one(folder, config, series, name, head))
    plot(folder, rows, all_series)
    table_rows = [{key: value for key, value in row.items() if not key.endswith("fan")} for row in rows]
    return Report(
        "Forecasts and the best possible ones",
        verdict(rows),
        Table.of(rows, COLUMNS),
        ("series", "model", "head", "score", "over the source"),
        without_texts(table_rows),
        NOTES.format(**dataclasses.asdict(config)),
        ["![Forecasts of each series, and their scores by horizon](forecast.png)"],
        failures=leaks(rows),
    )


main = experiment_main("forecast", ForecastConfig, SMOKE, compare, __doc__)

if __name__ == "__main__":
    main()
