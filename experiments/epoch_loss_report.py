"""What `experiments.epoch_loss` leaves beside its runs: epoch_loss.json, epoch_loss.md, epoch_loss.png, TensorBoard.

level  = nats of the validation split, cold / characters of the original text, in thousandths, a whole number
worth  = level before - level after;   sum of the ladder's worths = level of old - level of new, exactly
"""

import itertools
import pathlib

import matplotlib.pyplot as plt

from experiments import pictures, report
from experiments.epoch_loss_settings import EpochLoss, slug
from keras_seq.atomic_files import write_json, write_text
from keras_seq.tracking import Summaries, TokenTensorBoard

GOOD, BAD, TOTAL = "C2", "C3", "0.45"
NOTES = (
    "printed: the training loss of the last {updates:,}th of the characters, under whatever state was carried into it, "
    "as the old script showed it. cold@{length}: every window of {length} characters of the validation split on its "
    "own, from the zero state. warm: the split from start to end, the state carried. Without spaces and newlines the "
    "text has {share:.1%} of its characters: per original character means the nats of the split divided by the "
    "characters of the original text. For the squeezed text that leaves out what the spaces and newlines themselves "
    "would cost; where they are kept, they are paid for. worth: by how much cold nats per original character fall (a "
    "minus: rise). Worths are differences of rounded levels, so they add up to the last digit. In another order the "
    "same causes are worth something else: alone is a cause added to the old recipe by itself. pipeline changes the "
    "draws and nothing else, so it shows how much chance alone does."
)


def described(settings: EpochLoss) -> dict[str, str]:
    """Each cause in words."""
    train, parts = settings.train, settings.parts
    rate = "its default rate" if train.learning_rate is None else f"{train.learning_rate:g}"
    return {
        "size": f"LSTM of {settings.old_units:,} units → {settings.units:,}",
        "pipeline": "windows from a Python generator → from tensors (other draws)",
        "lanes": "random windows under a carried state → lanes, whose text goes on",
        "restart": f"no state reset → {settings.restart:.0%} of the rows start from the zero state",
        "initializer": "recurrent matrix glorot_normal → orthogonal",
        "clipping": f"none → gradients of norm {train.global_clipnorm:g} at most",
        "schedule": f"constant → warm-up over {train.warmup_steps / settings.updates:.0%}, "
        f"decay to {train.final_lr_fraction:.0%}",
        "learning rate": f"Adam 0.001 → {settings.learning_rate:g}",
        "optimizer": f"Adam → {train.optimizer}, {rate}",
        "updates": f"{settings.updates:,} of {settings.batch_size} rows → {settings.updates * parts:,} of "
        f"{settings.batch_size // parts}, the same characters",
        "spaces": "text without spaces and newlines → with them",
    }


def level(row) -> int:
    """Cold nats per original character, in thousandths."""
    return round(1000 * row["val_loss_per_original_character"])


def worths(settings: EpochLoss, rows) -> dict[str, dict[str, int]]:
    """What each cause was worth, in thousandths of a nat per original character, by cause: ladder, alone, full.

    They are whole numbers, so the ladder's add up to the whole difference exactly.
    """
    by_run = {row["run"]: level(row) for row in rows}
    ladder = [by_run[name] for name in steps(rows)]
    pairs = zip(settings.ladder, itertools.pairwise(ladder), strict=True)
    found = {cause: {"ladder": before - after} for cause, (before, after) in pairs}
    for cause, found_here in found.items():
        for kind, base in (("alone", ladder[1]), ("full", ladder[0])):
            if f"{kind}-{slug(cause)}" in by_run:
                found_here[kind] = base - by_run[f"{kind}-{slug(cause)}"]
    first = settings.causes[0]
    return found | {first: {"alone": found[first]["ladder"], **found[first]}}  # nothing but the size is before it


def steps(rows) -> list[str]:
    """The runs of the ladder, from old to new."""
    return [row["run"] for row in rows if row["run"][:2].isdigit()]


def nats(thousandths, sign="") -> str:
    """1234 as 1.234."""
    return f"{thousandths / 1000:{sign}.3f}"


def ladder_table(settings: EpochLoss, rows) -> str:
    """A line for each step, from the old recipe to the new one, and the sum."""
    header = ["step", "what", "printed", f"cold@{settings.length}", "warm", "cold per original", "warm per original"]
    lines = [[*header, "worth"]]
    found, what = worths(settings, rows), described(settings)
    ladder = [row for row in rows if row["run"] in steps(rows)]
    for row, cause in zip(ladder, ["old", *settings.ladder], strict=True):
        keys = ("train_loss_per_original_character", "val_loss", "val_loss_streaming")
        shown = [f"{row[key]:.3f}" for key in keys]
        shown += [nats(level(row)), f"{row['val_loss_per_original_character_streaming']:.3f}"]
        worth = "" if cause == "old" else nats(found[cause]["ladder"], "+")
        lines.append([cause, what.get(cause, "the old script"), *shown, worth])
    total = sum(found[cause]["ladder"] for cause in settings.ladder)
    lines.append(["all", "old → new", *[""] * 5, nats(total, "+")])
    return report.aligned(lines)


def alone_table(settings: EpochLoss, rows) -> str:
    """What each cause is worth in the ladder and by itself, most first."""
    lines = [["cause", "in the ladder", f"alone, {settings.units:,} units", f"alone, {settings.old_units:,} units"]]
    found = worths(settings, rows)
    for cause in sorted(found, key=lambda cause: (-found[cause].get("alone", -(10**9)), -found[cause]["ladder"])):
        here = found[cause]
        lines.append([cause, *(nats(here[k], "+") if k in here else "-" for k in ("ladder", "alone", "full"))])
    return report.aligned(lines)


def same_order(settings: EpochLoss, rows) -> str:
    """Whether the causes measured at both sizes stand in the same order."""
    both = [(cause, w) for cause, w in worths(settings, rows).items() if {"alone", "full"} <= w.keys()]
    if len(both) < 2:
        return ""
    small, large = (
        [cause for cause, _ in sorted(both, key=lambda found: found[1][kind], reverse=True)]
        for kind in ("alone", "full")
    )
    if small == large:
        return f"By themselves, at both sizes, in this order: {', '.join(small)}."
    return (
        f"By themselves, in another order at the two sizes: at {settings.units:,} units {', '.join(small)}; "
        f"at {settings.old_units:,} {', '.join(large)}."
    )


def texts(settings: EpochLoss, rows) -> list[str]:
    """The tables and what they mean."""
    squeezed = next(row for row in rows if not row["recipe"]["spaces"])
    notes = NOTES.format(
        length=settings.length,
        updates=settings.updates,
        share=squeezed["original_share"],
    )
    return [
        part
        for part in (ladder_table(settings, rows), alone_table(settings, rows), same_order(settings, rows), notes)
        if part
    ]


def samples(rows) -> str:
    """What the old recipe writes, and the new one."""
    told = (row for row in rows if "sample" in row)
    return "\n\n".join(f"{row['run']} writes:\n\n{report.indented(row['sample'])}" for row in told)


def write(folder: pathlib.Path, settings: EpochLoss, corpus: str, rows: list[dict], conclusion: str):
    """Writes all of it into `folder`."""
    found = worths(settings, rows)
    told = [{k: v for k, v in row.items() if k != "sample"} for row in rows]
    write_json(folder / "epoch_loss.json", {"runs": told, "worth_in_thousandths": found})
    parts = [conclusion, *texts(settings, rows)]
    picture = "![From the old loss to the new one, cause by cause](epoch_loss.png)"
    title = f"# The old loss curve on {corpus}"
    write_text(folder / "epoch_loss.md", "\n\n".join([title, *parts, picture, samples(rows)]) + "\n")
    pictures.save(draw(settings, corpus, rows), folder / "epoch_loss.png")
    board = TokenTensorBoard(folder)
    summary = Summaries(
        {},
        {"causes": "\n\n".join([*parts, samples(rows)])},
        {"waterfall": pictures.pixels(draw(settings, corpus, rows))},
    )
    board.write(0, summary)
    board.on_train_end()


def draw(settings: EpochLoss, corpus, rows):
    """On the left the waterfall from old to new; on the right what each cause is worth in the ladder and alone."""
    figure, (fall, bars) = plt.subplots(1, 2, figsize=(14, 6), width_ratios=(3, 2), layout="constrained")
    draw_waterfall(fall, settings, rows)
    draw_worths(bars, settings, rows)
    figure.suptitle(f"The old loss curve on {corpus}: what each cause was worth, cold@{settings.length}")
    fall.set_title("by how much the loss changed, one cause after the other", fontsize=10)
    return figure


def draw_waterfall(axes, settings: EpochLoss, rows):
    """A bar from the level before to the level after for each step, between those of old and new."""
    by_run = {row["run"]: level(row) / 1000 for row in rows}
    ladder = [by_run[name] for name in steps(rows)]
    found = worths(settings, rows)
    names = ["old", *settings.ladder, "new"]
    low, high = min(ladder), max(ladder)
    floor = max(0.0, low - 0.25 * (high - low) - 0.01)
    for x, total in ((0, ladder[0]), (len(names) - 1, ladder[-1])):
        axes.bar(x, total - floor, bottom=floor, color=TOTAL)
        axes.annotate(f"{total:.3f}", (x, total), (0, 3), textcoords="offset points", ha="center", fontsize=9)
    for x, (cause, (before, after)) in enumerate(zip(settings.ladder, itertools.pairwise(ladder), strict=True), 1):
        axes.bar(x, after - before, bottom=before, color=GOOD if after <= before else BAD)
        axes.plot([x - 1.4, x + 0.4], [before, before], color="0.6", linewidth=0.8)
        text = nats(-found[cause]["ladder"], "+")
        axes.annotate(text, (x, max(before, after)), (0, 3), textcoords="offset points", ha="center", fontsize=9)
    axes.plot([len(names) - 2.4, len(names) - 0.6], [ladder[-1]] * 2, color="0.6", linewidth=0.8)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right")
    axes.set_ylim(floor, high + 0.08 * (high - floor))
    axes.set_ylabel("nats per character of the original text")
    pictures.plain(axes)
    axes.grid(visible=False, axis="x")


def draw_worths(axes, settings: EpochLoss, rows):
    """Bars by cause: in the ladder, alone at the small size, and alone at the old size where it was measured."""
    found = worths(settings, rows)
    order = sorted(found, key=lambda cause: found[cause].get("alone", found[cause]["ladder"]))
    kinds = {
        "ladder": ("in the ladder", "C0"),
        "alone": (f"alone, {settings.units:,} units", "C1"),
        "full": (f"alone, {settings.old_units:,} units", "C4"),
    }
    kinds = {kind: style for kind, style in kinds.items() if any(kind in here for here in found.values())}
    thick = 0.8 / len(kinds)
    for n, (kind, (label, colour)) in enumerate(kinds.items()):
        places = [(y, found[cause][kind] / 1000) for y, cause in enumerate(order) if kind in found[cause]]
        ys, values = zip(*places, strict=True)
        axes.barh([y + 0.4 - thick * (n + 0.5) for y in ys], values, height=thick, color=colour, label=label)
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.set_yticks(range(len(order)), order)
    axes.set_xlabel("worth: nats per original character saved")
    axes.legend(frameon=False, loc="lower right")
    pictures.plain(axes)
    axes.grid(visible=False, axis="y")


def closing(folder: pathlib.Path, settings: EpochLoss, rows, conclusion: str) -> str:
    """What the terminal shows at the end."""
    files = f"Picture: {folder / 'epoch_loss.png'}\nReport:  {folder / 'epoch_loss.md'}\n"
    return "\n" + "\n\n".join([*texts(settings, rows), conclusion, samples(rows), files])
