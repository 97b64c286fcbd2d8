"""Results of a comparison, read from the files of its runs: scores, loss curves, differences between the models.

`keras_seq.evaluation.difference` computes the 95 % interval of a difference from the val_token_losses.npy of all runs.
"""

import dataclasses
import pathlib
import statistics

import numpy as np

from experiments.compare.budgets import Budget
from experiments.compare.settings import CompareConfig
from experiments.compare.sweep import SweepRun
from keras_seq.baselines import Baseline
from keras_seq.data import Corpus
from keras_seq.evaluation.difference import Difference, paired_difference
from keras_seq.training import read_metrics

CURVES = {  # label: split and key in metrics.jsonl
    "train loss": ("train", "loss"),
    "val_loss": ("validation", "val_loss"),
    "val_loss_streaming": ("validation", "val_loss_streaming"),
}


@dataclasses.dataclass(frozen=True)
class ComparisonResults:
    """Everything that the reports of a comparison are made from.

    Attributes:
        folder: Folder of the runs.
        config: Config of the comparison.
        corpus: The whole text.
        rows: Final results, one dict for each model and seed.
        budgets: Budget of each model, by its name.
        baselines: Losses of models that need no training.
        sweep_runs: Runs of the learning-rate sweep.
        note: Note on the text (`corpora.overlap_note`), or None.
    """

    folder: pathlib.Path
    config: CompareConfig
    corpus: Corpus
    rows: list[dict]
    budgets: dict[str, Budget]
    baselines: tuple[Baseline, ...]
    sweep_runs: list[SweepRun] = dataclasses.field(default_factory=list)
    note: str | None = None

    @property
    def models(self) -> list[str]:
        """Names of the models, in the order of the comparison."""
        return list(dict.fromkeys(row["model"] for row in self.rows))

    @property
    def num_seeds(self) -> int:
        """Number of seeds that each model was trained with."""
        return len({row["seed"] for row in self.rows})

    def for_model(self, model: str) -> list[dict]:
        """Return the rows of one model."""
        return [row for row in self.rows if row["model"] == model]

    def mean(self, model: str, key: str) -> float:
        """Compute the mean of a result over the seeds of a model.

        Args:
            model: Name of the model.
            key: Key of the rows.
        """
        return statistics.mean(row[key] for row in self.for_model(model))

    def run(self, row: dict) -> pathlib.Path:
        """Return the run folder of a row."""
        return self.folder / f"{row['model']}-seed{row['seed']}"

    def differences(self) -> dict[str, Difference]:
        """Compute the val_loss per character of each later model minus that of the first model, by name."""
        first, *others = (
            np.stack([self._loss_by_window(row) for row in self.for_model(model)]) for model in self.models
        )
        return {m: paired_difference(first, losses) for m, losses in zip(self.models[1:], others, strict=True)}

    def _loss_by_window(self, row):
        token_losses = np.load(self.run(row) / "val_token_losses.npy")  # [windows, T]
        return token_losses.mean(axis=1, dtype="float64") / row["characters_per_token"]

    def curve(self, model: str, name: str) -> dict[str, list[float]]:
        """Return a loss curve of one model: its mean, minimum and maximum over the seeds.

        Args:
            model: Name of the model.
            name: Key of `CURVES`.

        Returns:
            Lists `tokens`, `seconds`, `mean`, `low` and `high`, one value for each point.
        """
        split, key = CURVES[name]
        points = [self._points(row, split, key) for row in self.for_model(model)]
        tokens, seconds, losses = (np.array(part) for part in zip(*map(np.transpose, points), strict=True))
        return {
            "tokens": tokens[0].tolist(),
            "seconds": seconds.mean(axis=0).tolist(),
            "mean": losses.mean(axis=0).tolist(),
            "low": losses.min(axis=0).tolist(),
            "high": losses.max(axis=0).tolist(),
        }

    def _points(self, row, split, key):
        """Return `[points, 3]`: tokens, seconds of training, loss per character."""
        lines = read_metrics(self.run(row) / "metrics.jsonl")
        clock = [(line["tokens"], line["seconds"]) for line in lines if line["split"] == "train"]
        points = [(line["tokens"], line[key] / row["characters_per_token"]) for line in lines if line["split"] == split]
        times = np.interp([tokens for tokens, _ in points], *zip(*clock, strict=True))
        return [(tokens, seconds, loss) for (tokens, loss), seconds in zip(points, times, strict=True)]

    def by_position(self, model: str) -> list[float]:
        """Return the val_loss per character at each position of a window, the mean over the seeds of a model."""
        losses = [np.divide(row["val_loss_by_position"], row["characters_per_token"]) for row in self.for_model(model)]
        return np.mean(losses, axis=0).tolist()


def verdict(results: ComparisonResults) -> str:
    """Return which model has the lowest val_loss, and whether the interval of the difference excludes chance."""
    best = min(results.models, key=lambda model: results.mean(model, "val_loss_per_character"))
    loss = f"{best} has a val_loss of {results.mean(best, 'val_loss_per_character'):.3f} nats per character"
    differences, first = results.differences(), results.models[0]
    if not differences:
        return f"{loss}."
    other = min(differences, key=lambda model: differences[model].mean)
    d = differences[other]
    clear = "" if d.significant else ": the order may be chance"
    return (
        f"{loss}, the lowest. {other} minus {first}: {d.mean:+.4f}, 95 % interval {d.low:+.4f} to {d.high:+.4f}{clear}."
    )
