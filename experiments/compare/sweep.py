"""Give each model its best learning rate: train it at several on the training text without its last tenth.

The loss of that tenth decides; the validation text has no part in the choice. A parabola over the logarithm of the rate
(`keras_seq.reports.learning_rates`) has the optimum. A model whose lowest loss is at the end of the tried rates is
trained at further ones, beyond that end, as long as it gains.
"""

import dataclasses
from collections.abc import Callable, Sequence

from experiments.compare.budgets import Budget
from experiments.compare.settings import CompareConfig
from keras_seq import training
from keras_seq.reports.learning_rates import RateCurve, SweepRun, fit_rates

MAX_EXTENSIONS = 4  # further rates of a model
HELD_OUT = "By the loss of text held out from the training split, in nats per character. "
CURVES = (
    "The best rate is that of a parabola over the logarithm of the rate, through the rates next to the lowest loss: "
    "five at most, and none whose loss is 0.1 above it, which the picture leaves out, too. Its interval, and that of "
    "what another rate costs, come from the distances of all models' losses from their parabolas. One run a rate."
)


def sweep(config: CompareConfig, budgets: dict[str, Budget], plan_run: Callable, run_all: Callable) -> list[SweepRun]:
    """Train every model at every learning rate; results of finished runs are read from their folders.

    `plan_run` is a function `(run, budget, train)` that returns what `jobs.run_all` takes: the folder of the run, its
    seed, and a function that trains one model and scores the held-out text.

    Raises:
        ValueError: A model diverged at every rate.
    """
    factors = sorted(config.sweep_factors)
    planned = {name: [_rounded(b.learning_rate * factor) for factor in factors] for name, b in budgets.items()}
    finished: list[SweepRun] = []
    for _ in range(1 + MAX_EXTENSIONS):
        jobs = [(name, rate) for name, rates in planned.items() for rate in rates]
        runs = [_plan(config, budgets[name], rate, plan_run) for name, rate in jobs]
        results = [result["val_loss_per_character"] for result in run_all(runs)]
        finished += [SweepRun(*job, loss) for job, loss in zip(jobs, results, strict=True)]
        curves = fit_rates(finished).values()
        planned = {curve.model: [rate] for curve in curves if (rate := _beyond(curve)) is not None}
        if not planned:
            break
    return sorted(finished, key=lambda run: ([*budgets].index(run.model), run.learning_rate))


def _plan(config, budget, rate, plan_run):
    fraction = 1 if config.sweep_tokens is None else min(1, config.sweep_tokens / config.tokens)
    budget = dataclasses.replace(budget, steps=max(1, round(budget.steps * fraction)))
    # an interval longer than the run, so that it is scored once, at the end
    interval = config.train.validate_every * (budget.steps + 1)
    train = dataclasses.replace(config.train, learning_rate=rate, validate_every=interval)
    return diverging(*plan_run(f"sweep-{budget.name}-{rate:g}", budget, train))


def diverging(path, seed, train_one):
    """Return the run, whose result has no loss if it diverges."""

    def train():
        try:
            return train_one()
        except training.TrainingDiverged as error:
            result = {"val_loss_per_character": None, "diverged": str(error)}
            training.write_result(path, result)
            return result

    return path, seed, train


def _rounded(rate):
    return float(f"{rate:.6g}")


def _beyond(curve: RateCurve) -> float | None:
    """Return the next rate beyond the end where the lowest loss is, as far as the last two are apart; None inside."""
    if curve.edge is None or len(curve.tried) < 2:
        return None
    ends = curve.tried[:2] if curve.edge == "smallest" else curve.tried[:-3:-1]
    return _rounded(ends[0] * ends[0] / ends[1])


def with_best_rates(budgets: dict[str, Budget], curves: dict[str, RateCurve]) -> dict[str, Budget]:
    """Return the budgets with the best learning rate of each model."""
    return {name: dataclasses.replace(budget, learning_rate=curves[name].optimum) for name, budget in budgets.items()}


def sweep_warnings(curves: Sequence[RateCurve]) -> list[str]:
    """Return a warning for each model whose lowest loss is at the smallest or the largest learning rate of all."""
    return [
        f"{curve.model} is best at {curve.optimum:g}, the {curve.edge} learning rate tried: widen --sweep-factors."
        for curve in curves
        if curve.edge is not None
    ]
