"""What the figures of `experiments.epoch_loss` say, in a few sentences: docs/old_curve.md has those of one run.

Chance is what other draws of the same windows were worth, the cause `pipeline`: no smaller worth is told as an effect.
"""

from experiments.epoch_loss_report import level, nats, same_order, steps, worths
from experiments.epoch_loss_settings import EpochLoss


def conclusion(settings: EpochLoss, corpus: str, rows) -> str:
    """A Markdown list.

    Args:
        settings: those of the experiment.
        corpus: what the text is called.
        rows: a dict for each run, as epoch_loss.json has them.
    """
    found = worths(settings, rows)
    ladder = {cause: here["ladder"] for cause, here in found.items()}
    alone = {cause: here["alone"] for cause, here in found.items() if "alone" in here}
    by_run = {row["run"]: row for row in rows}
    old, new = (by_run[steps(rows)[place]] for place in (0, -1))
    chance = abs(ladder.get("pipeline", 0))
    down, up = (
        sorted((cause for cause in ladder if sign * ladder[cause] > chance), key=lambda cause: -abs(ladder[cause]))
        for sign in (1, -1)
    )
    within = [cause for cause in ladder if abs(ladder[cause]) <= chance]
    told = [
        f"The old recipe on {corpus}, {old['updates']:,} updates and {old['training_characters']:,} characters: it "
        f"prints {old['train_loss_per_original_character']:.3f} nats per character; {ends(settings, old)}.",
        f"The new one, {new['updates']:,} updates and as many characters, {new['recipe']['units']:,} units: it prints "
        f"{new['train_loss_per_original_character']:.3f}; {ends(settings, new)}. The whole difference is "
        f"{nats(level(old) - level(new), '+')} nats per original character, the sum of the steps.",
        f"In the order of the ladder, what lowers the loss: {listed(down, ladder)}.",
        f"What raises it: {listed(up, ladder)}.",
        f"Within chance, which is {nats(chance)} (one seed): {listed(within, ladder)}.",
        f"Each by itself, added to the old recipe at {settings.units:,} units, most first: "
        f"{listed(sorted(alone, key=alone.get, reverse=True), alone)}. Worth depends on what was mended "
        "before.",
        f"The printed loss is no validation loss: of the old recipe, on training text and under a state that another "
        f"place in the text left, it is {old['train_loss_per_original_character'] - old['val_loss_streaming']:+.3f} nats off "
        "the warm score.",
        f"Without spaces and newlines {old['original_share']:.1%} of the characters are left, so a loss per character "
        "of that text looks higher than one of the original text; what the spaces would cost is in none of it.",
        same_order(settings, rows),
    ]
    return "\n".join(f"- {sentence}" for sentence in told if sentence)


def ends(settings: EpochLoss, row) -> str:
    """Where a run ends on the validation split."""
    return (
        f"the validation split gives {row['val_loss']:.3f} cold@{settings.length}, "
        f"{row['val_loss_streaming']:.3f} warm, and cold {nats(level(row))} per character of the original text"
    )


def listed(causes, worth) -> str:
    """The causes with their worths."""
    return ", ".join(f"{cause} {nats(worth[cause], '+')}" for cause in causes) or "none"
