"""Find what each change of `experiments.recipe_ablation` is worth.

loss         = val_loss per original character, rounded to thousandths of a nat
improvement  = loss before - loss after           cumulative improvements add up to legacy - new, to the last digit
"""

import itertools
from collections.abc import Sequence

BASES = {"individual": "size", "full-size": "legacy"}
KINDS = ("cumulative", *BASES)


def cumulative_rows(rows: Sequence[dict]) -> dict[str, dict]:
    """Return the cumulative runs by their last change, from "legacy" to the new recipe."""
    return {row["run"][3:]: row for row in rows if row["run"][:2].isdigit()}


def loss(row: dict) -> float:
    """Return the val_loss of a run in nats per original character."""
    return round(row["val_loss_per_original_character"], 3)


def improvements(rows: Sequence[dict]) -> dict[str, dict[str, float]]:
    """Return what each change is worth by kind, where it was measured; the best individual change is first."""
    cumulative = cumulative_rows(rows)
    worth = {
        change: {"cumulative": round(loss(row_before) - loss(row), 3)}
        for row_before, (change, row) in zip(cumulative.values(), [*cumulative.items()][1:], strict=False)
    }
    first = [*worth][1]  # only the size is changed before it, so it is an individual change too
    worth[first]["individual"] = worth[first]["cumulative"]
    for row, (kind, base) in itertools.product(rows, BASES.items()):
        if row["run"].startswith(f"{kind}-"):
            measured = worth.setdefault(row["run"].removeprefix(f"{kind}-"), {})
            measured[kind] = round(loss(cumulative[base]) - loss(row), 3)
    return dict(sorted(worth.items(), key=lambda item: [-item[1].get(kind, -1e9) for kind in KINDS[1::-1]]))


def verdict(rows: Sequence[dict]) -> str:
    """Say what all changes are worth together and one after the other, and which of that is noise."""
    before, *_, after = map(loss, cumulative_rows(rows).values())
    worth = {change: kinds["cumulative"] for change, kinds in improvements(rows).items() if "cumulative" in kinds}
    noise = abs(worth.get("pipeline", 0))
    by_size = sorted(worth, key=lambda change: -abs(worth[change]))
    effects = ", ".join(f"{change} {worth[change]:+.3f}" for change in by_size if abs(worth[change]) > noise) or "none"
    certainty = f"the others are within {noise:.3f}, what other random windows alone change"
    return (
        f"All changes together take val_loss from {before:.3f} to {after:.3f} nats per original character, an "
        f"improvement of {before - after:+.3f}. One after the other: {effects}; "
        f"{certainty if 'pipeline' in worth else 'the noise is not known without the change pipeline'}. One seed."
    )
