"""Train each model at several learning rates and choose the best one by held-out loss: `--sweep learning-rate`.

    training   the training text without its last tenth
    scoring    that tenth: val_loss, disjoint windows

The validation text, whose losses are reported, has no part in the choice.
"""

import dataclasses
from collections.abc import Callable, Sequence

from experiments.common.reports import Table
from experiments.compare.settings import CompareConfig
from keras_seq import training


@dataclasses.dataclass(frozen=True)
class SweepRun:
    """One run of the sweep: its loss is of the held-out text in nats per character, None where training diverged."""

    model: str
    learning_rate: float
    loss: float | None


def sweep(config: CompareConfig, budgets: dict, plan_run: Callable, run_all: Callable) -> list[SweepRun]:
    """Train every model at every learning rate; results of finished runs are read from their folders.

    Args:
        config: Config of the comparison; `sweep_tokens` limits the length of the runs.
        budgets: `Budget` of each model by its name; its learning rate is multiplied by the `sweep_factors`.
        plan_run: Function `(run, budget, train)` that returns what `run_all` takes: the folder of the run, its seed,
            and a function that trains one model and scores the held-out text.
        run_all: `experiments.common.experiment.run_all`.
    """
    names, runs = [], []
    fraction = 1 if config.sweep_tokens is None else min(1, config.sweep_tokens / config.tokens)
    for budget in budgets.values():
        sweep_budget = dataclasses.replace(budget, steps=max(1, round(budget.steps * fraction)))
        for factor in sorted(set(config.sweep_factors)):
            rate = float(f"{budget.learning_rate * factor:.6g}")
            # an interval longer than the run, so that it is scored once, at the end
            interval = config.train.validate_every * (sweep_budget.steps + 1)
            train = dataclasses.replace(config.train, learning_rate=rate, validate_every=interval)
            names.append((budget.name, rate))
            runs.append(_diverging(*plan_run(f"sweep-{budget.name}-{rate:g}", sweep_budget, train)))
    losses = [result["val_loss_per_character"] for result in run_all(runs)]
    return [SweepRun(*name, loss) for name, loss in zip(names, losses, strict=True)]


def _diverging(path, seed, train_one):
    """Return the run, whose result has no loss if it diverges."""

    def train():
        try:
            return train_one()
        except training.TrainingDiverged as error:
            result = {"val_loss_per_character": None, "diverged": str(error)}
            training.write_result(path, result)
            return result

    return path, seed, train


def with_best_lr(budget, sweep_runs: Sequence[SweepRun]):
    """Return the budget with the best learning rate of its model."""
    return dataclasses.replace(budget, learning_rate=best_learning_rate(sweep_runs, budget.name))


def best_learning_rate(sweep_runs: Sequence[SweepRun], model: str) -> float:
    """Return the learning rate at which a model has the lowest held-out loss.

    Raises:
        ValueError: The model diverged at every learning rate.
    """
    finished = [run for run in sweep_runs if run.model == model and run.loss is not None]
    if not finished:
        raise ValueError(f"{model} diverged at every learning rate of --sweep-factors: expected smaller ones.")
    return min(finished, key=lambda run: run.loss).learning_rate


def table(sweep_runs: Sequence[SweepRun]) -> Table:
    """Return a table of the held-out loss of each model at each learning rate, with the best one marked."""
    columns = {
        "model": lambda run: run.model,
        "learning rate": lambda run: f"{run.learning_rate:g}",
        "held-out loss": lambda run: "diverged" if run.loss is None else f"{run.loss:.4f}",
        "best": lambda run: "yes" if run.learning_rate == best_learning_rate(sweep_runs, run.model) else "",
    }
    return Table.of(sweep_runs, columns)


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
