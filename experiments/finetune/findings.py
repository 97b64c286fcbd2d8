"""Compare the methods of `experiments.finetune`: few trained weights, all of them, and training from scratch."""

from collections.abc import Sequence

from experiments.frame.tables import plus_minus


def by_method(rows: Sequence[dict]) -> dict[str, list[dict]]:
    """Return the rows of each method, in the order of the first."""
    return {method: [row for row in rows if row["method"] == method] for method in {row["method"]: 0 for row in rows}}


def differences(rows: Sequence[dict], method: str, other: str) -> list[float]:
    """Return for each seed that both have by how much a method's val_loss is above the other's, in nats per token."""
    losses = {(row["method"], row["seed"]): row["val_loss"] for row in rows}
    seeds = sorted({seed for name, seed in losses if name == method and (other, seed) in losses})
    return [losses[method, seed] - losses[other, seed] for seed in seeds]


def verdict(rows: Sequence[dict]) -> str:
    """Say what each method reaches, with how many weights, and how certain that is."""
    parts = []
    for method, runs in by_method(rows).items():
        loss, share = plus_minus([run["val_loss"] for run in runs], 3), runs[0]["trainable_parameters"]
        parts.append(f"{method} ends at {loss} with {share / runs[0]['base_parameters']:.1%} of the weights")
    text = f"val_loss in nats per token: {'; '.join(parts)}."
    if gaps := differences(rows, "lora", "full"):
        text += f" lora is {plus_minus(gaps, 3)} above full."
    if gaps := differences(rows, "scratch", "lora"):
        text += f" scratch is {plus_minus(gaps, 3)} above lora."
    one_seed = len({row["seed"] for row in rows}) == 1
    return text + (" One seed: differences below 0.02 may be chance." if one_seed else "")
