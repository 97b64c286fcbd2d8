"""Train each model at several learning rates and choose the best one by held-out loss: `--sweep learning-rate`.

    training   the training text without its last tenth
    scoring    that tenth: val_loss, disjoint windows

The validation text, whose losses are reported, has no part in the choice.
"""

import dataclasses
from collections.abc import Callable, Sequence

from experiments.compare.settings import CompareConfig
from experiments.frame.tables import Table
from keras_seq import training
from keras_seq.data import Corpus

SWEEP_TRAIN_FRACTION = 0.9  # of the training text


@dataclasses.dataclass(frozen=True)
class SweepRun:
    """One run of the sweep.

    Attributes:
        model: Name of the model.
        learning_rate: Peak learning rate.
        loss: Loss of the held-out text in nats per character; None where training diverged.
    """

    model: str
    learning_rate: float
    loss: float | None


def split_for_sweep(corpus: Corpus, train_text: str, sequence_length: int) -> tuple[str, str]:
    """Split the training text into the part that the sweep trains on and the part that it scores.

    Args:
        corpus: The corpus.
        train_text: Its training text.
        sequence_length: T of the windows.

    Raises:
        CorpusError: A part is too short for one window.
    """
    return dataclasses.replace(corpus, text=train_text).split(SWEEP_TRAIN_FRACTION, min_length=sequence_length + 1)


def sweep(config: CompareConfig, budgets: dict, texts: tuple[str, str], train_one: Callable) -> list[SweepRun]:
    """Train every model at every learning rate; results of finished runs are read from their folders.

    Args:
        config: Config of the comparison; `sweep_tokens` limits the length of the runs.
        budgets: `Budget` of each model by its name; its learning rate is multiplied by the `sweep_factors`.
        texts: Text to train on and text to score, from `split_for_sweep`.
        train_one: Function `(run, budget, train, train_text, scored_text) -> result` that trains one model.
    """
    sweep_runs = []
    fraction = 1 if config.sweep_tokens is None else min(1, config.sweep_tokens / config.tokens)
    for budget in budgets.values():
        sweep_budget = dataclasses.replace(budget, steps=max(1, round(budget.steps * fraction)))
        for factor in sorted(set(config.sweep_factors)):
            rate = float(f"{budget.learning_rate * factor:.6g}")
            # an interval longer than the run, so that it is scored once, at the end
            interval = config.train.validate_every * (sweep_budget.steps + 1)
            train = dataclasses.replace(config.train, learning_rate=rate, validate_every=interval)
            try:
                result = train_one(f"sweep-{budget.name}-{rate:g}", sweep_budget, train, *texts)
                loss = result["val_loss_per_character"]
            except training.TrainingDiverged:
                loss = None
            sweep_runs.append(SweepRun(budget.name, rate, loss))
    return sweep_runs


def with_best_lr(budget, sweep_runs: Sequence[SweepRun]):
    """Return the budget with the best learning rate of its model.

    Args:
        budget: `Budget` of a model.
        sweep_runs: Runs of the sweep.

    Raises:
        ValueError: The model diverged at every learning rate.
    """
    return dataclasses.replace(budget, learning_rate=best_learning_rate(sweep_runs, budget.name))


def best_learning_rate(sweep_runs: Sequence[SweepRun], model: str) -> float:
    """Return the learning rate at which a model has the lowest held-out loss.

    Args:
        sweep_runs: Runs of the sweep.
        model: Name of the model.

    Raises:
        ValueError: The model diverged at every learning rate.
    """
    finished = [run for run in sweep_runs if run.model == model and run.loss is not None]
    if not finished:
        raise ValueError(f"{model} diverged at every learning rate of --sweep-factors: expected smaller ones.")
    return min(finished, key=lambda run: run.loss).learning_rate


def table(sweep_runs: Sequence[SweepRun]) -> Table:
    """Return a table of the held-out loss of each model at each learning rate, with the best one marked."""
    lines = [["model", "learning rate", "held-out loss", "best"]]
    for run in sweep_runs:
        best = "yes" if run.learning_rate == best_learning_rate(sweep_runs, run.model) else ""
        lines.append([run.model, f"{run.learning_rate:g}", "diverged" if run.loss is None else f"{run.loss:.4f}", best])
    return Table(lines[0], lines[1:])


def warnings(sweep_runs: Sequence[SweepRun]) -> list[str]:
    """Return a warning for each model whose best learning rate is the smallest or the largest of the sweep."""
    messages = []
    for model in dict.fromkeys(run.model for run in sweep_runs):
        rates = sorted(run.learning_rate for run in sweep_runs if run.model == model)
        rate = best_learning_rate(sweep_runs, model)
        if rate in (rates[0], rates[-1]):
            end = "smallest" if rate == rates[0] else "largest"
            messages.append(
                f"{model} is best at {rate:g}, the {end} learning rate of the sweep: widen --sweep-factors."
            )
    return messages
