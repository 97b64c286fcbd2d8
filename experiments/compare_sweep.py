"""Each model at several learning rates, so that none is judged at another's: `--sweep learning-rate`.

    trained on   the training text without its last tenth
    scored on    that tenth, cold

The validation text, whose losses are reported, has no part in the choice.
"""

import dataclasses

from experiments.report import aligned
from keras_seq import training

HELD_OUT = 0.9  # the share of the training text that the sweep trains on


@dataclasses.dataclass(frozen=True)
class Tried:
    """One run of the sweep: the cold nats per character of the held-out text, None where training diverged."""

    model: str
    learning_rate: float
    nats: float | None


def held_back(corpus, train_text, context) -> tuple[str, str]:
    """What the sweep trains on, and what it scores on.

    Raises:
        CorpusError: a side is too short for one window.
    """
    return dataclasses.replace(corpus, text=train_text).split(HELD_OUT, min_length=context + 1)


def sweep(settings, budgets, texts, train_one) -> list[Tried]:
    """Trains every model at every rate, or reads what a finished run found.

    Args:
        settings: of the comparison; the runs of the sweep are not longer than its --sweep-tokens say.
        budgets: those of the comparison, with the rates that the factors multiply.
        texts: as `held_back` gives them.
        train_one: a function `(run, budget, train, train_text, scored_text) -> result`, which trains one model.
    """
    tried = []
    share = 1 if settings.sweep_tokens is None else min(1, settings.sweep_tokens / settings.tokens)
    for budget in budgets.values():
        shorter = dataclasses.replace(budget, steps=max(1, round(budget.steps * share)))
        for factor in sorted(set(settings.sweep_factors)):
            rate = float(f"{budget.learning_rate * factor:.6g}")
            # a multiple that is never reached: scored once, at the end
            never = settings.train.validate_every * (shorter.steps + 1)
            train = dataclasses.replace(settings.train, learning_rate=rate, validate_every=never)
            try:
                result = train_one(f"sweep-{budget.name}-{rate:g}", shorter, train, *texts)
                nats = result["val_loss_per_character"]
            except training.TrainingDiverged:
                nats = None
            tried.append(Tried(budget.name, rate, nats))
    return tried


def chosen(budget, tried):
    """The budget at the best of its model's rates."""
    return dataclasses.replace(budget, learning_rate=best(tried, budget.name))


def best(tried: list[Tried], model) -> float:
    """The learning rate at which a model did best.

    Raises:
        ValueError: it diverged at every rate.
    """
    mine = [t for t in tried if t.model == model and t.nats is not None]
    if not mine:
        raise ValueError(f"{model} diverged at every rate of --sweep-factors: expected smaller ones.")
    return min(mine, key=lambda t: t.nats).learning_rate


def table(tried: list[Tried]) -> str:
    """The held-out loss of each model at each rate, its best rate marked."""
    lines = [["model", "learning rate", "held-out cold nats", "chosen"]]
    for t in tried:
        chosen = "yes" if t.learning_rate == best(tried, t.model) else ""
        lines.append([t.model, f"{t.learning_rate:g}", "diverged" if t.nats is None else f"{t.nats:.4f}", chosen])
    return aligned(lines)


def warnings(tried: list[Tried]) -> list[str]:
    """A sentence for each model whose best rate has no neighbour on one side: a better one may lie beyond."""
    found = []
    for model in dict.fromkeys(t.model for t in tried):
        rates = sorted(t.learning_rate for t in tried if t.model == model)
        rate = best(tried, model)
        if rate in (rates[0], rates[-1]):
            end = "smallest" if rate == rates[0] else "largest"
            found.append(f"{model} is best at {rate:g}, the {end} rate tried: widen --sweep-factors.")
    return found
