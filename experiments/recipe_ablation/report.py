"""Write the report of `experiments.recipe_ablation`: recipe_ablation.json, .md and .png, and TensorBoard.

loss_milli   = val_loss per original character in thousandths of a nat, an integer
improvement  = loss_milli before - loss_milli after    cumulative improvements add up to legacy - new exactly
"""

import itertools
import pathlib

import matplotlib.pyplot as plt

from experiments.frame import plots, report
from experiments.recipe_ablation.settings import RecipeAblationConfig
from keras_seq.atomic_files import write_json, write_text

LOWER_COLOR, HIGHER_COLOR, TOTAL_COLOR = "C2", "C3", "0.45"
COLUMN_NOTES = (
    "Losses are in nats per character. train loss: that of the last {steps:,}th of the training characters, with the "
    "state that was carried into them, as the legacy script printed it. val_loss@{length}: every disjoint window of "
    "{length} characters of the validation split, from the zero state. val_loss_streaming: the split from start to end "
    "with carried state. per original char: the total loss of the split divided by the characters of the original "
    "text; without whitespace the text has {ratio:.1%} of them, and the loss of the whitespace itself is included only "
    "where it is kept. improvement: decrease of val_loss per original character (negative: increase). Improvements are "
    "differences of rounded losses, so they add up to the last digit. They depend on the order of the changes; an "
    "individual change is applied to the legacy recipe alone. The change pipeline alters the random windows only, so "
    "it shows the noise level."
)


def descriptions(config: RecipeAblationConfig) -> dict[str, str]:
    """Describe each change as `legacy → new`."""
    train, factor = config.train, config.split_batches
    rate = "its default rate" if train.learning_rate is None else f"{train.learning_rate:g}"
    return {
        "size": f"LSTM of {config.legacy_units:,} units → {config.units:,}",
        "pipeline": "windows from a Python generator → from tensors (other draws)",
        "stateful-windows": "random windows with carried state → stateful windows, whose text continues",
        "state-resets": f"no state resets → {config.reset_prob:.0%} of the rows start from the zero state",
        "initializer": "recurrent matrix glorot_normal → orthogonal",
        "clipping": f"no clipping → global gradient norm of at most {train.global_clipnorm:g}",
        "schedule": f"constant → warm-up over {train.warmup_steps / config.legacy_steps:.0%}, "
        f"decay to {train.final_lr_fraction:.0%}",
        "learning-rate": f"Adam 0.001 → {config.learning_rate:g}",
        "optimizer": f"Adam → {train.optimizer}, {rate}",
        "more-steps": f"{config.legacy_steps:,} batches of {config.batch_size} → {config.legacy_steps * factor:,} of "
        f"{config.batch_size // factor}, the same number of characters",
        "whitespace": "text without spaces and newlines → with them",
    }


def loss_milli(row) -> int:
    """Return the val_loss of a run per original character, rounded to thousandths of a nat."""
    return round(1000 * row["val_loss_per_original_character"])


def improvements(config: RecipeAblationConfig, rows) -> dict[str, dict[str, int]]:
    """Compute the improvement of each change, in thousandths of a nat per original character.

    Args:
        config: Options of the experiment.
        rows: One dict per run.

    Returns:
        For each change its `cumulative` improvement and, where they were measured, `individual` and `full_size`. They
        are integers, so the cumulative ones add up to the total difference exactly.
    """
    by_run = {row["run"]: loss_milli(row) for row in rows}
    losses = [by_run[name] for name in cumulative_runs(rows)]
    pairs = zip(config.cumulative, itertools.pairwise(losses), strict=True)
    improvement = {change: {"cumulative": before - after} for change, (before, after) in pairs}
    for change, kinds in improvement.items():
        for kind, base in (("individual", losses[1]), ("full_size", losses[0])):
            run = f"{kind.replace('_', '-')}-{change}"
            if run in by_run:
                kinds[kind] = base - by_run[run]
    first = config.changes[0]  # only the size is changed before it, so it is an individual change too
    return improvement | {first: {"individual": improvement[first]["cumulative"], **improvement[first]}}


def cumulative_runs(rows) -> list[str]:
    """Return the names of the cumulative runs, from legacy to new."""
    return [row["run"] for row in rows if row["run"][:2].isdigit()]


def format_milli(thousandths, sign="") -> str:
    """Format thousandths as a decimal number: 1234 as 1.234.

    Args:
        thousandths: An integer.
        sign: `"+"` to show the sign of positive numbers too.
    """
    return f"{thousandths / 1000:{sign}.3f}"


def cumulative_table(config: RecipeAblationConfig, rows) -> str:
    """Format one line for each cumulative run, from the legacy recipe to the new one, and the total.

    Args:
        config: Options of the experiment.
        rows: One dict per run.
    """
    header = ["change", "description", "train loss", f"val_loss@{config.sequence_length}", "val_loss_streaming"]
    lines = [[*header, "val_loss per original char", "streaming per original char", "improvement"]]
    improvement, description = improvements(config, rows), descriptions(config)
    cumulative = [row for row in rows if row["run"] in cumulative_runs(rows)]
    for row, change in zip(cumulative, ["legacy", *config.cumulative], strict=True):
        keys = ("train_loss_per_original_character", "val_loss", "val_loss_streaming")
        losses = [f"{row[key]:.3f}" for key in keys]
        losses += [format_milli(loss_milli(row)), f"{row['val_loss_per_original_character_streaming']:.3f}"]
        cell = "" if change == "legacy" else format_milli(improvement[change]["cumulative"], "+")
        lines.append([change, description.get(change, "the legacy script"), *losses, cell])
    total = sum(improvement[change]["cumulative"] for change in config.cumulative)
    lines.append(["total", "legacy → new", *[""] * 5, format_milli(total, "+")])
    return report.markdown_table(lines)


def individual_table(config: RecipeAblationConfig, rows) -> str:
    """Format the cumulative and individual improvements of each change, largest first.

    Args:
        config: Options of the experiment.
        rows: One dict per run.
    """
    sizes = [f"individual, {units:,} units" for units in (config.units, config.legacy_units)]
    lines = [["change", "cumulative", *sizes]]
    improvement = improvements(config, rows)

    def sort_key(change):
        kinds = improvement[change]
        return -kinds.get("individual", -(10**9)), -kinds["cumulative"]

    for change in sorted(improvement, key=sort_key):
        kinds = improvement[change]
        columns = ("cumulative", "individual", "full_size")
        lines.append([change, *(format_milli(kinds[kind], "+") if kind in kinds else "-" for kind in columns)])
    return report.markdown_table(lines)


def ranking_message(config: RecipeAblationConfig, rows) -> str:
    """Return whether the changes measured at both sizes have the same ranking; empty for fewer than two changes.

    Args:
        config: Options of the experiment.
        rows: One dict per run.
    """
    both = {
        change: kinds
        for change, kinds in improvements(config, rows).items()
        if {"individual", "full_size"} <= kinds.keys()
    }
    if len(both) < 2:
        return ""
    small, large = (
        sorted(both, key=lambda change: both[change][kind], reverse=True) for kind in ("individual", "full_size")
    )
    if small == large:
        return f"Individual improvements have the same ranking at both sizes: {', '.join(small)}."
    return (
        f"Individual improvements have different rankings at the two sizes: {', '.join(small)} at {config.units:,} "
        f"units; {', '.join(large)} at {config.legacy_units:,} units."
    )


def report_parts(config: RecipeAblationConfig, rows) -> list[str]:
    """Return the tables and the notes on their columns.

    Args:
        config: Options of the experiment.
        rows: One dict per run.
    """
    stripped = next(row for row in rows if not row["recipe"]["keep_whitespace"])
    notes = COLUMN_NOTES.format(length=config.sequence_length, steps=config.legacy_steps, ratio=stripped["char_ratio"])
    tables = (cumulative_table(config, rows), individual_table(config, rows))
    return [part for part in (*tables, ranking_message(config, rows), notes) if part]


def samples(rows) -> str:
    """Format the samples of the legacy and the new recipe."""
    sampled = (row for row in rows if "sample" in row)
    return "\n\n".join(f"Sample of {row['run']}:\n\n{report.indented(row['sample'])}" for row in sampled)


def write_report(folder: pathlib.Path, config: RecipeAblationConfig, corpus: str, rows: list[dict], conclusion: str):
    """Write recipe_ablation.json, .md and .png, and the report in TensorBoard.

    Args:
        folder: Folder of the files.
        config: Options of the experiment.
        corpus: Name of the corpus.
        rows: One dict per run.
        conclusion: Summary of the results.
    """
    runs = [{k: v for k, v in row.items() if k != "sample"} for row in rows]
    values = {"runs": runs, "improvement_millinats": improvements(config, rows)}
    write_json(folder / "recipe_ablation.json", values)
    parts = [conclusion, *report_parts(config, rows)]
    image = "![From the legacy loss to the new one, change by change](recipe_ablation.png)"
    title = f"# Ablation of the legacy recipe on {corpus}"
    write_text(folder / "recipe_ablation.md", "\n\n".join([title, *parts, image, samples(rows)]) + "\n")
    figure = plot(config, corpus, rows)
    plots.save(figure, folder / "recipe_ablation.png")


def plot(config: RecipeAblationConfig, corpus, rows):
    """Plot the waterfall from legacy to new on the left, and cumulative and individual improvements on the right.

    Args:
        config: Options of the experiment.
        corpus: Name of the corpus.
        rows: One dict per run.
    """
    figure, (waterfall, bars) = plt.subplots(1, 2, figsize=(14, 6), width_ratios=(3, 2), layout="constrained")
    plot_waterfall(waterfall, config, rows)
    plot_improvements(bars, config, rows)
    figure.suptitle(f"Ablation of the legacy recipe on {corpus}, val_loss@{config.sequence_length}")
    waterfall.set_title("change of the loss, one change after the other", fontsize=10)
    return figure


def plot_waterfall(axes, config: RecipeAblationConfig, rows):
    """Plot a bar from the loss before to the loss after each change, between those of legacy and new.

    Args:
        axes: Matplotlib axes.
        config: Options of the experiment.
        rows: One dict per run.
    """
    by_run = {row["run"]: loss_milli(row) / 1000 for row in rows}
    losses = [by_run[name] for name in cumulative_runs(rows)]
    improvement = improvements(config, rows)
    names = ["legacy", *config.cumulative, "new"]
    low, high = min(losses), max(losses)
    bottom = max(0.0, low - 0.25 * (high - low) - 0.01)
    for x, total in ((0, losses[0]), (len(names) - 1, losses[-1])):
        axes.bar(x, total - bottom, bottom=bottom, color=TOTAL_COLOR)
        axes.annotate(f"{total:.3f}", (x, total), (0, 3), textcoords="offset points", ha="center", fontsize=9)
    for x, (change, (before, after)) in enumerate(zip(config.cumulative, itertools.pairwise(losses), strict=True), 1):
        axes.bar(x, after - before, bottom=before, color=LOWER_COLOR if after <= before else HIGHER_COLOR)
        axes.plot([x - 1.4, x + 0.4], [before, before], color="0.6", linewidth=0.8)
        text = format_milli(-improvement[change]["cumulative"], "+")
        axes.annotate(text, (x, max(before, after)), (0, 3), textcoords="offset points", ha="center", fontsize=9)
    axes.plot([len(names) - 2.4, len(names) - 0.6], [losses[-1]] * 2, color="0.6", linewidth=0.8)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right")
    axes.set_ylim(bottom, high + 0.08 * (high - bottom))
    axes.set_ylabel("val_loss, nats per original character")
    plots.style_axes(axes)
    axes.grid(visible=False, axis="x")


def plot_improvements(axes, config: RecipeAblationConfig, rows):
    """Plot bars by change: the cumulative improvement, and the individual ones at both sizes where they were measured.

    Args:
        axes: Matplotlib axes.
        config: Options of the experiment.
        rows: One dict per run.
    """
    improvement = improvements(config, rows)
    order = sorted(improvement, key=lambda name: improvement[name].get("individual", improvement[name]["cumulative"]))
    styles = {
        "cumulative": ("cumulative", "C0"),
        "individual": (f"individual, {config.units:,} units", "C1"),
        "full_size": (f"individual, {config.legacy_units:,} units", "C4"),
    }
    styles = {kind: style for kind, style in styles.items() if any(kind in kinds for kinds in improvement.values())}
    height = 0.8 / len(styles)
    for n, (kind, (label, color)) in enumerate(styles.items()):
        points = [(y, improvement[name][kind] / 1000) for y, name in enumerate(order) if kind in improvement[name]]
        ys, values = zip(*points, strict=True)
        axes.barh([y + 0.4 - height * (n + 0.5) for y in ys], values, height=height, color=color, label=label)
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.set_yticks(range(len(order)), order)
    axes.set_xlabel("improvement, nats per original character")
    axes.legend(frameon=False, loc="lower right")
    plots.style_axes(axes)
    axes.grid(visible=False, axis="y")


def final_message(folder: pathlib.Path, config: RecipeAblationConfig, rows, conclusion: str) -> str:
    """Return the text that the terminal shows at the end.

    Args:
        folder: Folder of the report.
        config: Options of the experiment.
        rows: One dict per run.
        conclusion: Summary of the results.
    """
    files = f"Plot:   {folder / 'recipe_ablation.png'}\nReport: {folder / 'recipe_ablation.md'}\n"
    return "\n" + "\n\n".join([*report_parts(config, rows), conclusion, samples(rows), files])
