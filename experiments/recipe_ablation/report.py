"""Report of `experiments.recipe_ablation`, with recipe_ablation.png."""

import pathlib
from collections.abc import Sequence

from matplotlib.axes import Axes

from experiments.frame import plots
from experiments.frame.report import Report
from experiments.frame.tables import Table
from experiments.recipe_ablation.findings import KINDS, cumulative_rows, improvements, loss, verdict
from keras_seq.generation import TextGenerator
from keras_seq.training import load_run
from keras_seq.training.resume_check import diff, leaf_name

NOTES = (
    "Losses are in nats per character. train loss: that of the last batch, with the state that was carried into it, as "
    "the legacy script printed it. val_loss@{length}: every disjoint window of {length} characters of the validation "
    "split, from the zero state. val_loss_streaming: the split from start to end with carried state. per original "
    "char: the total loss of the split divided by the characters of the original text; without whitespace the text has "
    "{ratio:.1%} of them, and the loss of the whitespace itself is included only where it is kept. improvement: "
    "decrease of the rounded val_loss per original character; it depends on the order of the changes. An individual "
    "change is applied to the legacy recipe alone. The change pipeline alters the random windows only."
)
IMAGE = "![From the legacy loss to the new one, change by change](recipe_ablation.png)"


def recipe_ablation_report(folder: pathlib.Path, corpus: str, rows: Sequence[dict]) -> Report:
    """Plot the changes and return the report."""
    legacy, small, *_, new = cumulative_rows(rows).values()
    title, length = f"Ablation of the legacy recipe on {corpus}", legacy["recipe"]["sequence_length"]
    figure, (left, right) = plots.subplots(1, 2, figsize=(14, 6), width_ratios=(3, 2))
    plot_waterfall(left, rows)
    plot_improvements(right, improvements(rows))
    figure.suptitle(f"{title}, val_loss@{length}")
    plots.save(figure, folder / "recipe_ablation.png")
    sizes = [f"individual, {row['recipe']['units']:,} units" for row in (small, legacy)]
    columns = {
        name: lambda item, kind=kind: f"{item[1][kind]:+.3f}" if kind in item[1] else "-"
        for name, kind in zip(("cumulative", *sizes), KINDS, strict=True)
    }
    return Report(
        title,
        verdict(rows),
        cumulative_table(rows, length),
        ("change", "train loss", "val_loss per original char", "improvement"),
        {"runs": rows, "improvements": improvements(rows)},
        NOTES.format(length=length, ratio=legacy["char_ratio"]),
        [Table.of([*improvements(rows).items()], {"change": lambda item: item[0], **columns}), IMAGE],
        {f"Sample of {row['run']}": sample(folder / row["run"], row["recipe"]) for row in (legacy, new)},
        runs=[folder / new["run"]],
    )


def cumulative_table(rows: Sequence[dict], length: int) -> Table:
    """Return a line for each cumulative run, from the legacy recipe to the new one, and the total."""
    header = ["change", "description", "train loss", f"val_loss@{length}", "val_loss_streaming"]
    header += ["val_loss per original char", "streaming per original char", "improvement"]
    lines, recipe, total = [], None, 0.0
    for change, row in cumulative_rows(rows).items():
        differences = diff(recipe or row["recipe"], row["recipe"]).items()
        description = ", ".join(f"{leaf_name(name)} {old} → {new}" for name, (old, new) in differences)
        losses = [row["train_loss"], row["val_loss"], row["val_loss_streaming"], loss(row)]
        cells = [f"{value:.3f}" for value in (*losses, row["val_loss_streaming"] * row["char_ratio"])]
        worth = improvements(rows).get(change, {}).get("cumulative")
        lines.append([change, description or "the legacy script", *cells, "" if worth is None else f"{worth:+.3f}"])
        recipe, total = row["recipe"], total + (worth or 0.0)
    return Table(header, [*lines, ["total", "legacy → new", *[""] * 5, f"{total:+.3f}"]])


def sample(run: pathlib.Path, recipe: dict) -> str:
    """Generate text with the model of a finished run."""
    model, tokenizer = load_run(run)
    prompt = tokenizer.characters[0]
    return TextGenerator(model, tokenizer)(prompt, recipe["train"]["sample_length"], temperature=0.8)[len(prompt) :]


def plot_waterfall(axes: Axes, rows: Sequence[dict]):
    """Draw a bar from the loss before to the loss after each change, between those of legacy and new."""
    losses = {change: loss(row) for change, row in cumulative_rows(rows).items()}
    low, high = min(losses.values()), max(losses.values())
    bottom = max(0.0, low - 0.25 * (high - low) - 0.01)
    names, ends = [*losses, "new"], [*losses.values(), [*losses.values()][-1]]
    starts = [bottom, *ends[:-2], bottom]
    for x, (name, start, end) in enumerate(zip(names, starts, ends, strict=True)):
        is_total = name in ("legacy", "new")
        axes.bar(x, end - start, bottom=start, color="0.45" if is_total else "C2" if end <= start else "C3")
        axes.plot([x - 0.4, min(x + 1, len(losses)) + 0.4], [end, end], color="0.6", linewidth=0.8)
        text = f"{end:.3f}" if is_total else f"{end - start:+.3f}"
        axes.annotate(text, (x, max(start, end)), (0, 3), textcoords="offset points", ha="center", fontsize=9)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right")
    axes.set(ylim=(bottom, high + 0.08 * (high - bottom)), ylabel="val_loss, nats per original character")
    axes.set_title("change of the loss, one change after the other", fontsize=10)
    axes.grid(visible=False, axis="x")


def plot_improvements(axes: Axes, improvement: dict[str, dict[str, int]]):
    """Draw the improvements of each change as bars, a color for each kind, the best change at the top."""
    changes = [*reversed(improvement)]
    kinds = [kind for kind in KINDS if any(kind in measured for measured in improvement.values())]
    height = 0.8 / len(kinds)
    for n, kind in enumerate(kinds):
        bars = {y: improvement[change][kind] for y, change in enumerate(changes) if kind in improvement[change]}
        axes.barh([y + 0.4 - height * (n + 0.5) for y in bars], bars.values(), height=height, label=kind)
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.set_yticks(range(len(changes)), changes)
    axes.set_xlabel("improvement, nats per original character")
    axes.legend(loc="lower right")
    axes.grid(visible=False, axis="y")
