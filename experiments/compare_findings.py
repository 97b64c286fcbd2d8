"""What a comparison found, all of it read from the files of its runs: figures, curves, differences between models.

difference to the first model, by its 95 % interval: experiments/statistics.py over losses.npy of all runs
"""

import dataclasses
import pathlib
import statistics

import numpy as np

from experiments.compare_budgets import Budget
from experiments.compare_settings import Compare
from experiments.compare_sweep import Tried
from experiments.statistics import Difference, paired_difference
from keras_seq.baselines import Baseline
from keras_seq.data import Corpus
from keras_seq.training import read_metrics

CURVES = {  # by what they are called: the split and the key of their points in metrics.jsonl
    "training": ("train", "loss"),
    "cold validation": ("validation", "val_loss"),
    "warm validation": ("validation", "val_loss_streaming"),
}


@dataclasses.dataclass(frozen=True)
class Findings:
    """Everything that the reports are made of.

    Attributes:
        folder: where the runs are.
        settings: of the comparison.
        corpus: the whole text.
        rows: the final figures, one dict for each model and seed.
        budgets: what each model was trained with, by its name.
        references: losses that need no training.
        tried: the runs of the sweep.
        note: what is to be said of the text, if anything.
    """

    folder: pathlib.Path
    settings: Compare
    corpus: Corpus
    rows: list[dict]
    budgets: dict[str, Budget]
    references: tuple[Baseline, ...]
    tried: list[Tried] = dataclasses.field(default_factory=list)
    note: str | None = None

    @property
    def models(self) -> list[str]:
        """Their names, in the order of the comparison."""
        return list(dict.fromkeys(row["model"] for row in self.rows))

    @property
    def seeds(self) -> int:
        """How many times each model was trained."""
        return len({row["seed"] for row in self.rows})

    def of(self, model) -> list[dict]:
        """The rows of one model."""
        return [row for row in self.rows if row["model"] == model]

    def mean(self, model, key) -> float:
        """The mean of a figure over the seeds of a model."""
        return statistics.mean(row[key] for row in self.of(model))

    def run(self, row) -> pathlib.Path:
        """The folder of a row's run."""
        return self.folder / f"{row['model']}-seed{row['seed']}"

    def differences(self) -> dict[str, Difference]:
        """Of each later model, the cold nats per character less those of the first one."""
        first, *others = (np.stack([self._by_window(row) for row in self.of(model)]) for model in self.models)
        return {m: paired_difference(first, losses) for m, losses in zip(self.models[1:], others, strict=True)}

    def _by_window(self, row):
        return (
            np.load(self.run(row) / "val_token_losses.npy").mean(axis=1, dtype="float64") / row["characters_per_token"]
        )

    def curve(self, model, name) -> dict[str, list[float]]:
        """A curve of `CURVES` of one model, over its seeds: tokens, seconds, mean, low and high."""
        split, key = CURVES[name]
        points = [self._points(row, split, key) for row in self.of(model)]
        tokens, seconds, values = (np.array(part) for part in zip(*map(np.transpose, points), strict=True))
        return {
            "tokens": tokens[0].tolist(),
            "seconds": seconds.mean(axis=0).tolist(),
            "mean": values.mean(axis=0).tolist(),
            "low": values.min(axis=0).tolist(),
            "high": values.max(axis=0).tolist(),
        }

    def _points(self, row, split, key):
        """`[points, 3]`: tokens, seconds of training, nats per character."""
        lines = read_metrics(self.run(row) / "metrics.jsonl")
        clock = [(line["tokens"], line["seconds"]) for line in lines if line["split"] == "train"]
        mine = [(line["tokens"], line[key] / row["characters_per_token"]) for line in lines if line["split"] == split]
        at = np.interp([tokens for tokens, _ in mine], *zip(*clock, strict=True))
        return [(tokens, seconds, nats) for (tokens, nats), seconds in zip(mine, at, strict=True)]

    def by_position(self, model) -> list[float]:
        """The cold nats per character at each position of a window, over the seeds of a model."""
        losses = [np.divide(row["val_loss_by_position"], row["characters_per_token"]) for row in self.of(model)]
        return np.mean(losses, axis=0).tolist()
