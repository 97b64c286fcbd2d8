"""Compare runs of the same validation text: scores, loss curves, differences, and a verdict in words.

`keras_seq.evaluation.paired_difference` gives the 95 % interval of a difference from val_token_losses.npy of all runs.
"""

import dataclasses
import functools
import pathlib
import statistics

import numpy as np

from keras_seq.baselines import Baseline
from keras_seq.evaluation.score import Difference, paired_difference
from keras_seq.reports.learning_rates import RateCurve
from keras_seq.reports.tables import Table
from keras_seq.tracking import scored_key
from keras_seq.training import read_metrics

CURVES = {  # label: split and key in metrics.jsonl
    "train loss": ("train", "loss"),
    "val_loss": ("validation", "val_loss"),
    "val_loss_streaming": ("validation", "val_loss_streaming"),
}

NUM_BEST = 3  # baselines beside the final losses
LEARNED, MARGIN = 0.95, 0.05  # accuracy of a model that has learned a task, and what tells two models apart


@dataclasses.dataclass(frozen=True)
class Recall:
    """Hold what small models of the same kinds recall, after a training on nothing else.

    A row is of a run: `model`, `seed` and, unless it diverged, `parameters` and the accuracies at that length and at
    twice the length, `accuracy` and `twice_as_long`.
    """

    items: int  # pairs of a key and a value in a row, as many as the longest rows of training have
    length: int  # positions of these rows before each key is asked for
    steps: int
    chance: float  # accuracy of a guess among the values of a row
    rows: list[dict]

    def accuracies(self, model: str, key: str = "accuracy") -> list[float]:
        """Return the accuracy of each run of a model that did not diverge."""
        return [row[key] for row in self.rows if row["model"] == model and key in row]

    @functools.cached_property
    def means(self) -> dict[str, float]:
        """Mean accuracy of each model, the best one first; without those that diverged."""
        means = {row["model"]: self.accuracies(row["model"]) for row in self.rows}
        means = {model: statistics.mean(values) for model, values in means.items() if values}
        return dict(sorted(means.items(), key=lambda item: -item[1]))

    def beside_loss(self, best: str, equal: str | None = None) -> str:
        """Say whether the model with the best loss recalls most, too; `equal` is one whose loss differs by chance."""
        shares = [f"{model} {mean:.1%}" for model, mean in self.means.items()]
        shares += [
            f"{model} diverged" for model in dict.fromkeys(r["model"] for r in self.rows) if model not in self.means
        ]
        return (
            f"{self._finding(best, equal)} Of {self.items} pairs, small models of the same kinds recall, after "
            f"{self.steps:,} steps on nothing else: {', '.join(shares)}; a guess {self.chance:.1%}."
        )

    def _finding(self, best, equal):
        own = self.means.get(best, 0.0)
        if equal is not None and abs(self.means.get(equal, 0.0) - own) > MARGIN:
            return f"The losses do not tell {best} and {equal} apart, but recall does."
        more = [model for model, mean in self.means.items() if mean > own + MARGIN]
        if more:
            return f"Loss and recall differ: {best} has the lowest loss, and {more[0]} recalls more."
        if max(self.means.values(), default=0.0) < LEARNED:
            return "No model has learned to recall in these steps."
        if len(self.means) > 1 and max(mean for model, mean in self.means.items() if model != best) < own - MARGIN:
            return f"{best} recalls most, too."
        return f"{best} recalls no less than the others." if len(self.means) > 1 else f"{best} has learned to recall."


@dataclasses.dataclass(frozen=True, eq=False)  # hashed by identity, for the caches
class ComparisonResults:
    """Hold what the reports of a comparison are made from.

    A row is the result of a run, with `run`, its folder, `model`, `seed`, `flops_per_token` and `train_flops`.
    """

    folder: pathlib.Path  # of the report
    corpus: str
    introduction: str  # what was trained on what, in sentences
    rows: list[dict]
    baselines: tuple[Baseline, ...] = ()  # none if the text is not at hand
    note: str | None = None  # a further sentence on the losses
    scored: str | None = None  # the sample of the validation text that the curves are of, in words; None for all of it
    tables: dict[str, tuple[Table, str]] = dataclasses.field(default_factory=dict)  # by title, with a sentence below
    rates: dict[str, RateCurve] = dataclasses.field(default_factory=dict)  # by model; none where none was chosen
    options: dict = dataclasses.field(default_factory=dict)  # what decides the results, for the end of the page
    recall: Recall | None = None  # None if no small models were trained

    @property
    def models(self) -> list[str]:
        """Names of the models, in the order of the comparison."""
        return list(dict.fromkeys(row["model"] for row in self.rows))

    @property
    def num_seeds(self) -> int:
        """Number of seeds that a model was trained with, at most."""
        return max(len(self.for_model(model)) for model in self.models)

    @property
    def by_loss(self) -> list[str]:
        """Names of the models, that with the lowest val_loss first."""
        return sorted(self.models, key=lambda model: self.mean(model, "val_loss_per_character"))

    def for_model(self, model: str) -> list[dict]:
        """Return the rows of one model."""
        return [row for row in self.rows if row["model"] == model]

    def mean(self, model: str, key: str) -> float:
        """Compute the mean of a result over the seeds of a model."""
        return statistics.mean(row[key] for row in self.for_model(model))

    @functools.cached_property
    def differences(self) -> dict[str, Difference]:
        """The val_loss per character of each later model minus that of the first model, by name."""
        return {model: self.difference(self.models[0], model) for model in self.models[1:]}

    @functools.cache  # noqa: B019 (one comparison a process)
    def difference(self, first: str, second: str) -> Difference:
        """Return the val_loss per character of the second model minus that of the first, with its interval."""
        losses = ([self._loss_by_window(row) for row in self.for_model(model)] for model in (first, second))
        return paired_difference(*map(np.stack, losses))

    def _loss_by_window(self, row):
        token_losses = np.load(row["run"] / "val_token_losses.npy")  # [windows, T]
        return token_losses.mean(axis=1, dtype="float64") / row["characters_per_token"]

    @functools.cached_property
    def verdict(self) -> str:
        """Which model has the lowest val_loss, whether that is more than chance, what needs no training; and recall."""
        order = self.by_loss
        first, *others = (self.mean(model, "val_loss_per_character") for model in order)
        gap = self.difference(*order[:2]) if others else None
        equal = None if gap is None or gap.significant else order[1]
        beside = "" if self.recall is None else f" {self.recall.beside_loss(order[0], equal)}"
        if gap is None:
            loss = f"{order[0]} has a val_loss of {first:.3f} nats per character."
            return f"{loss}{self._against_baselines('It')}{beside}"
        certainty = "more than chance" if gap.significant else "within chance"
        one_each = all(len(self.for_model(model)) == 1 for model in order[:2])
        scope = "on this text; with one seed each, other seeds may differ by more"
        return (
            f"{order[0]} has the lowest val_loss, {first:.3f} nats per character. {order[1]} has {others[0]:.3f}, "
            f"{gap.mean:.4f} more (95 % interval {gap.low:+.4f} to {gap.high:+.4f}): {certainty} "
            f"{scope if one_each else 'for text and seeds like these'}."
            f"{self._against_baselines('The best model')}{self._unequal_tokens()}{beside}"
        )

    def _unequal_tokens(self):
        """Say so if models were trained on unequal numbers of tokens."""
        tokens = {model: self.mean(model, "train_tokens") for model in self.models}
        if max(tokens.values()) < 1.01 * min(tokens.values()):
            return ""
        counts = ", ".join(f"{model} on {count:,.0f}" for model, count in tokens.items())
        return f" They were trained on unequal numbers of tokens: {counts}."

    def _against_baselines(self, subject):
        """Compare with what also has all the text before a character to predict it from."""
        if not self.baselines:
            return ""
        key = "val_loss_per_character_streaming"
        model, loss = min(((model, self.mean(model, key)) for model in self.models), key=lambda item: item[1])
        best = self.best_baselines[0]
        relation = "is below" if loss < best.loss_per_character else "does not reach"
        return (
            f" {subject} {relation} the best baseline: reading the text from start to end, {model} has "
            f"{loss:.3f} (val_loss_streaming), {best.name} {best.loss_per_character:.3f}."
        )

    @property
    def curve_baselines(self) -> list[tuple[str, float]]:
        """Name and loss of each baseline of the same text as the curves: a compressor has none of a sample."""
        key = "loss_per_character" if self.scored is None else "sample_loss_per_character"
        return [(b.name, getattr(b, key)) for b in self.baselines if getattr(b, key) is not None]

    @property
    def best_baselines(self) -> list[Baseline]:
        """The best baselines of the whole text, the best one first."""
        return sorted(self.baselines, key=lambda baseline: baseline.loss_per_character)[:NUM_BEST]

    @functools.cache  # noqa: B019
    def curve(self, model: str, name: str) -> dict[str, list[float]]:
        """Return the points of a curve of `CURVES`: tokens, seconds, and mean, minimum and maximum over the seeds.

        The points are those that all seeds have: one may have ended earlier, or have been trained further.
        """
        split, key = CURVES[name]
        points = [{point[0]: point[1:] for point in self._points(row, split, key)} for row in self.for_model(model)]
        tokens = sorted(set.intersection(*map(set, points)))
        seconds, losses = np.array([[each[n] for n in tokens] for each in points]).reshape(len(points), -1, 2).T
        seconds, losses = seconds.T, losses.T  # [seeds, points]
        return {
            "tokens": tokens,
            "seconds": seconds.mean(axis=0).tolist(),
            "mean": losses.mean(axis=0).tolist(),
            "low": losses.min(axis=0).tolist(),
            "high": losses.max(axis=0).tolist(),
        }

    def _points(self, row, split, key):
        """Return `[points, 3]`: tokens, seconds of training, loss per character."""
        lines = read_metrics(row["run"] / "metrics.jsonl")
        clock = [(0, 0.0), *((line["tokens"], line["seconds"]) for line in lines if line["split"] == "train")]
        points = [
            (line["tokens"], line[scored_key(key, line)] / row["characters_per_token"])
            for line in lines
            if line["split"] == split
        ]
        times = np.interp([tokens for tokens, _ in points], *zip(*clock, strict=True))
        return [(tokens, seconds, loss) for (tokens, loss), seconds in zip(points, times, strict=True)]

    def by_position(self, model: str) -> list[float]:
        """Return the val_loss per character at each position of a window, the mean over the seeds of a model."""
        losses = [np.divide(row["val_loss_by_position"], row["characters_per_token"]) for row in self.for_model(model)]
        return np.mean(losses, axis=0).tolist()
