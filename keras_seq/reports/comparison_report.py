"""Report of a comparison: tables, loss_curves.png, and compare.html, the whole comparison on one self-contained page.

The plot has on the left the losses over tokens, a color for each model; on the right the final losses. A second one,
loss_and_recall.png, has what small models of the same kinds recall beside the losses. In the page, page.js draws the
curves from its JSON; tables, samples and options need no JavaScript.
"""

import dataclasses
import json
import math
import re
import statistics
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from keras_seq.files import write_text
from keras_seq.reports import plots
from keras_seq.reports.comparison import CURVES, LEARNED, ComparisonResults
from keras_seq.reports.learning_rates import parabola, plot_rates
from keras_seq.reports.pages import render
from keras_seq.reports.tables import Report, Table, compare_sizes, perplexity, plus_minus, tera
from keras_seq.training.run_config import read_config

NOT_IN_JSON = ("sample", "run", "config", "flops_per_token")
TERMINAL = ("model", "train loss", "val_loss", "val_loss_streaming")
DIFFERENCE_NOTE = (
    "Difference in val_loss, in nats per character; negative is better than the first model. 95 % intervals: a "
    "bootstrap over blocks of adjacent windows, paired between the models, and Student's t for the seeds of each"
)
IMAGE = "![Training and validation loss over training tokens](loss_curves.png)"
RATES_IMAGE = "![Held-out loss over learning rates, with parabolas](learning_rates.png)"
RECALL_IMAGE = "![Validation loss of each model, and what a small one of its kind recalls](loss_and_recall.png)"


def compare_report(results: ComparisonResults, more: dict | None = None) -> Report:
    """Write the page and the plot of a comparison, and return its report, with `more` data in its JSON file."""
    plot(results)
    if results.rates:
        plot_rates(results.rates, results.folder / "learning_rates.png", plots.colors(results.models))
    if results.recall is not None:
        plot_recall(results)
    write_text(results.folder / "compare.html", comparison_html(results))
    first_seed = [results.for_model(model)[0] for model in results.models]
    return Report(
        title=f"{results.corpus}: {', '.join(results.models)}",
        verdict=results.verdict,
        table=results_table(results),
        columns=TERMINAL,
        data={
            "rows": [{key: value for key, value in row.items() if key not in NOT_IN_JSON} for row in results.rows],
            "differences": {
                model: {name: value if math.isfinite(value) else None for name, value in dataclasses.asdict(d).items()}
                for model, d in results.differences.items()
            },
            "baselines": {b.name: b.loss_per_character for b in results.baselines},
            **({} if results.recall is None else {"recall": dataclasses.asdict(results.recall)}),
            **(more or {}),
        },
        notes=column_notes(results.rows),
        details=details(results),
        samples={f"Sample of {row['model']}": row["sample"] for row in first_seed},
        runs=[row["run"] for row in sorted(first_seed, key=lambda row: row["val_loss_per_character"])],
    )


def details(results: ComparisonResults) -> list[str | Table]:
    """Return the tables and notes of compare.md below the table of all results; "" for what there is not."""
    parts = [IMAGE]
    if results.recall is not None:
        parts += ["Loss beside recall:", RECALL_IMAGE, recall_table(results), recall_note(results)]
    parts += ["All runs:", Table.of(results.rows, COLUMNS)]
    if len(results.models) > 1:
        scope = "; with one seed, over the text only." if results.num_seeds == 1 else "."
        parts += [differences_table(results), DIFFERENCE_NOTE + scope]
    parts += [baselines_table(results) if results.baselines else "", results.note or ""]
    for title, (table, text) in results.tables.items():
        parts += [f"{title}:", table, text]
    return [*parts, RATES_IMAGE if results.rates else ""]


COLUMNS = {
    "model": lambda row: row["model"],
    "seed": lambda row: str(row["seed"]),
    "parameters": lambda row: f"{row['parameters']:,}",
    "train tokens": lambda row: f"{row['train_tokens']:,}",
    "train TFLOP": lambda row: "-" if row["train_flops"] is None else tera(row["train_flops"]),
    "train seconds": lambda row: f"{row['train_seconds']:.0f}",
    "tokens/s": lambda row: f"{row['tokens_per_second']:,.0f}",
    "train loss": lambda row: f"{row['train_loss_per_character']:.3f}",
    "val_loss": lambda row: f"{row['val_loss_per_character']:.3f}",
    "val bits/char": lambda row: f"{row['val_bits_per_character']:.3f}",
    "val_loss_streaming": lambda row: f"{row['val_loss_per_character_streaming']:.3f}",
    "val bits/char streaming": lambda row: f"{row['val_bits_per_character_streaming']:.3f}",
    "perplexity": lambda row: f"{row['val_perplexity']:.2f}",
    "perplexity/word": lambda row: perplexity(row["val_word_perplexity"]),
}
MEANS = {  # label: key of the rows and decimals
    "train loss": ("train_loss_per_character", 3),
    "val_loss": ("val_loss_per_character", 3),
    "val_loss_streaming": ("val_loss_per_character_streaming", 3),
    "train seconds": ("train_seconds", 0),
}


def results_table(results: ComparisonResults) -> Table:
    """Return the main results of each model: means and standard deviations over its seeds."""
    rows = []
    for model in results.models:
        seeds = results.for_model(model)
        means = [plus_minus([row[key] for row in seeds], digits) for key, digits in MEANS.values()]
        rows.append([model, f"{seeds[0]['parameters']:,}", *means])
    return Table(["model", "parameters", *MEANS], rows)


def all_results_table(results: ComparisonResults) -> Table:
    """Return every result of every run, a column for each run."""
    table = Table.of(results.rows, COLUMNS)
    header, *rows = zip(table.header, *table.rows, strict=True)
    return Table(header, rows)


def differences_table(results: ComparisonResults) -> Table:
    """Return a table of the differences of each later model to the first one."""
    rows = [
        [model, f"{d.mean:+.4f}", f"{d.low:+.4f} to {d.high:+.4f}", "yes" if d.significant else "no"]
        for model, d in results.differences.items()
    ]
    return Table(["model", f"difference to {results.models[0]}", "95 % interval", "more than chance"], rows)


def baselines_table(results: ComparisonResults) -> Table:
    """Return a table of the losses of the baselines, in nats and bits per character of the validation text."""
    rows = [[b.name, f"{b.loss_per_character:.3f}", f"{b.bits_per_character:.3f}"] for b in results.baselines]
    return Table(["baseline", "loss", "bits"], rows)


def recall_table(results: ComparisonResults) -> Table:
    """Return a table of the val_loss of each model and of what a small one of its kind recalls, best losses first."""
    recall, rows = results.recall, []
    for model in results.by_loss:
        cells = ["diverged"] * 4
        if model in recall.means:
            both = (recall.accuracies(model, key) for key in ("accuracy", "twice_as_long"))
            percent = (plus_minus([100 * value for value in values], 1) for values in both)
            cells = [
                *(f"{value.replace(' ±', '% ±')}%" for value in percent),
                "yes" if recall.means[model] >= LEARNED else "no",
                f"{recall.accuracies(model, 'parameters')[0]:,}",
            ]
        rows.append([model, f"{results.mean(model, 'val_loss_per_character'):.3f}", *cells])
    header = ["model", "val_loss", f"recall of {recall.items} pairs", "twice as long", "learned"]
    return Table([*header, "parameters of the small one"], rows)


def recall_note(results: ComparisonResults) -> str:
    """Return what the columns of the table of recall mean."""
    recall = results.recall
    return (
        f"Recall is of models of the same kinds, of at most two layers, after {recall.steps:,} steps on rows of up to "
        f"{recall.items} keys with their values in {recall.length} positions, and on nothing else: the values that are "
        f"right when each key comes again. A guess among the values of a row has {recall.chance:.1%}. twice as long: "
        f"the same pairs in {2 * recall.length} positions, a length that training did not have. learned: at least "
        f"{LEARNED:.0%}."
    )


def column_notes(rows: Sequence[dict]) -> str:
    """Return the definitions and units of the columns, and a comparison of the models' sizes."""
    lengths = ", ".join(str(length) for length in sorted({row["val_sequence_length"] for row in rows}))
    return (
        "Losses are in nats per character of the whole validation split (of token ids: at most 2^20, spread over it). "
        f"val_loss: disjoint windows of {lengths} tokens, each from the zero state. "
        "val_loss_streaming: the text from start to end; recurrent models carry their state, Transformers use a "
        "sliding window that advances by half its length. "
        "perplexity, perplexity/word: exp of val_loss per token, and per word (separated by whitespace). "
        "train TFLOP: training operations, by formula. " + compare_sizes([row["parameters"] for row in rows])
    )


DIGITS = {"tokens": 0, "seconds": 2}  # of the points of a curve; losses have 4


def comparison_html(results: ComparisonResults) -> str:
    """Return the page, whose first sentence is the verdict."""
    models = results.models
    names = f"{len(models)} models" if len(models) > 3 else ", ".join(models)
    return render(
        "compare",
        _data(results),
        title=f"{names} on {results.corpus}",
        verdict=results.verdict,
        results=results,
        finals=_finals(results),
        date=_date(results.folder.name),
        main=results_table(results),
        recall=None if results.recall is None else (recall_table(results), recall_note(results), _recalled(results)),
        differences=differences_table(results) if len(models) > 1 else None,
        baselines=baselines_table(results) if results.baselines else None,
        all_results=all_results_table(results),
        notes=column_notes(results.rows),
        versions=read_config(results.rows[0]["run"])["versions"],
        options=json.dumps(results.options, indent=1, ensure_ascii=False),
    )


def _date(folder):
    """Return "2026-11-27. " for a folder that is named by its time; "" for any other."""
    match = re.match(r"(\d{4})(\d\d)(\d\d)-", folder)
    return "-".join(match.groups()) + ". " if match else ""


def _data(results):
    """Return what page.js draws."""
    models = [
        {
            "name": model,
            "flopsPerToken": results.for_model(model)[0]["flops_per_token"],
            "curves": {name: _rounded(results.curve(model, name)) for name in CURVES},
            "positions": [round(loss, 4) for loss in results.by_position(model)],
            **({"rates": _rates(results.rates[model])} if results.rates else {}),
        }
        for model in results.models
    ]
    baselines = [{"name": name, "loss": round(loss, 4)} for name, loss in results.curve_baselines]
    return {"models": models, "baselines": baselines, "num_seeds": results.num_seeds}


def _rates(curve):
    """Return the points of a model's learning rates and of its parabola: pairs of a rate and a loss."""
    pairs = {"runs": (curve.rates, curve.losses), "parabola": parabola(curve)}
    return {
        name: [(float(f"{x:.4g}"), round(y, 4)) for x, y in zip(*both, strict=True)] for name, both in pairs.items()
    }


def _finals(results):
    """Return rows of the final losses: a name, the number of its color, and each loss with its place from 0 to 100."""
    keys = ("val_loss_per_character", "val_loss_per_character_streaming")
    rows = [(model, _color(results, model), [results.mean(model, key) for key in keys]) for model in results.models]
    rows = sorted(rows, key=lambda row: row[2][0])
    rows += [(b.name, None, [None, b.loss_per_character]) for b in results.best_baselines]
    losses = [loss for *_, pair in rows for loss in pair if loss is not None]
    low, width = min(losses), max(max(losses) - min(losses), 1e-9)
    place = lambda loss: None if loss is None else (loss, 100 * (loss - low) / width)  # noqa: E731
    return [(name, color, *map(place, pair)) for name, color, pair in rows]


def _recalled(results):
    """Return rows of the losses beside recall: name, color, loss and its place, and both accuracies or None."""
    losses = {model: results.mean(model, "val_loss_per_character") for model in results.by_loss}
    low, high = min(losses.values()), max(losses.values())
    middle, width = (low + high) / 2, max(high - low, MIN_WIDTH)
    recall, rows = results.recall, []
    for model, loss in losses.items():
        longer = recall.accuracies(model, "twice_as_long")
        accuracies = (recall.means[model], statistics.mean(longer)) if longer else None
        rows.append((model, _color(results, model), loss, 50 + 100 * (loss - middle) / width, accuracies))
    return rows


def _color(results, model):
    """Return the number of a model's color on the page."""
    return results.models.index(model) % plots.NUM_COLORS


def _rounded(curve):
    return {key: [round(value, DIGITS.get(key, 4)) for value in values] for key, values in curve.items()}


STYLES = {
    "train loss": {"alpha": 0.35, "linewidth": 1.2},
    "val_loss": {"linewidth": 1.8, "marker": "o", "markersize": 3},
    "val_loss_streaming": {"linewidth": 1.6, "linestyle": (0, (1.5, 1.2))},
}
MANY = 8  # models of which three curves each are a tangle
FILLS = {"val_loss_per_character": "full", "val_loss_per_character_streaming": "none"}
BASELINES = ("unigram", "2-gram", "3-gram", "4-gram", "6-gram", "xz", "bzip2")  # lines that are far enough apart
LABEL_DISTANCE = 0.035  # fraction of the axes' height
MIN_WIDTH = 0.05  # of an axis of losses beside recall, in nats, so that equal ones look so
NOTE = {"fontsize": 7.5, "color": "0.45", "pad": 3}
DASHED = {"color": "0.55", "linewidth": 0.7, "linestyle": (0, (4, 3)), "zorder": 0}


def plot(results: ComparisonResults):
    """Write loss_curves.png into the folder of the comparison."""
    colors = plots.colors(results.models)
    height = max(5.0, 1.8 + 0.4 * len(colors))
    figure, (curves, ends) = plots.subplots(1, 2, figsize=(11, height), width_ratios=(5, 3))
    numbers = {len(results.for_model(model)) for model in results.models}
    seeds = f", {results.num_seeds} seeds each" if len(numbers) == 1 and results.num_seeds > 1 else ""
    figure.suptitle(f"{results.corpus}, {results.folder.name}{seeds}", fontsize=11)
    plot_curves(curves, results, colors)
    plot_final_losses(ends, results, colors)
    plots.save(figure, results.folder / "loss_curves.png")


def plot_curves(axes: Axes, results: ComparisonResults, colors: dict[str, str]):
    """Plot means over the seeds, with bands from the lowest to the highest seed; of many models val_loss alone."""
    styles = STYLES if len(colors) <= MANY else {"val_loss": STYLES["val_loss"]}
    highest = 0.0
    for model, color in colors.items():
        for name, style in styles.items():
            curve = results.curve(model, name)
            axes.plot(curve["tokens"], curve["mean"], color=color, **style)
            if results.num_seeds > 1:
                alpha = 0.25 * style.get("alpha", 1)
                axes.fill_between(curve["tokens"], curve["low"], curve["high"], color=color, alpha=alpha, linewidth=0)
            if CURVES[name][0] == "validation":
                highest = max(highest, curve["mean"][0])
    lowest = min(min(results.curve(model, name)["low"]) for model in colors for name in styles)
    axes.set_ylim(lowest - 0.05, max(highest + 0.1, lowest + 0.5))
    plot_baselines(axes, results.curve_baselines)
    what = "validation and baselines" if results.baselines else "validation"
    scored = f"\n{what}: {results.scored}" if results.scored else ""
    plots.token_axis(axes, f"training tokens{scored}")
    axes.set_ylabel("loss (nats per character)")
    below = -0.9 / axes.figure.get_figheight()  # of the axis and its label
    plots.legend(axes, colors, styles, loc="upper left", bbox_to_anchor=(0, below), ncols=3)


def plot_baselines(axes: Axes, baselines: Sequence[tuple[str, float]]):
    """Plot a thin line for each baseline, name and loss, within the y limits, and name the others above the axes."""
    low, high = axes.get_ylim()
    named = sorted((loss, name) for name, loss in baselines if name in BASELINES)
    visible = [(loss, name) for loss, name in named if low < loss < high]
    heights = plots.spread([loss for loss, _ in visible], LABEL_DISTANCE * (high - low))
    for (loss, name), y in zip(visible, heights, strict=True):
        axes.axhline(loss, **DASHED)
        axes.text(0.005, y, name, transform=axes.get_yaxis_transform(), fontsize=7.5, color="0.45", va="bottom")
    hidden = [f"{name} {loss:.2f}" for loss, name in named if not low < loss < high]
    if hidden:
        axes.set_title(f"off the scale: {', '.join(hidden)}", loc="right", **NOTE)


def plot_final_losses(axes: Axes, results: ComparisonResults, colors: dict[str, str]):
    """Plot the final losses, best model on top: dots for each seed, the mean val_loss; below the best baselines."""
    order = results.by_loss[::-1]
    for y, model in enumerate(order):
        for key, fill in FILLS.items():
            losses = [row[key] for row in results.for_model(model)]
            axes.plot(losses, [y] * len(losses), "o", color=colors[model], markersize=7, fillstyle=fill)
        mean = results.mean(model, "val_loss_per_character")
        axes.annotate(f"{mean:.3f}", (mean, y), (0, 8), textcoords="offset points", ha="center", fontsize=9)
    for y, baseline in enumerate(results.best_baselines, start=1):
        loss = baseline.loss_per_character
        axes.plot([loss], [-y], "o", color="0.55", markersize=7, fillstyle="none")
        axes.annotate(
            f"{loss:.3f}", (loss, -y), (0, 8), textcoords="offset points", ha="center", fontsize=9, color="0.45"
        )
    names = [*(b.name for b in reversed(results.best_baselines)), *map(plots.shortened, order)]
    axes.set_yticks(range(len(order) - len(names), len(order)), names)
    axes.axhline(-0.5, **DASHED)
    axes.set_ylim(len(order) - len(names) - 0.4, len(order) - 0.3)
    axes.margins(x=0.12)
    axes.set_xlabel("final loss (nats per character),\nwhole validation text")
    if results.baselines:
        axes.set_title("baselines have all the text before, as val_loss_streaming has", loc="right", **NOTE)
    dot = {"marker": "o", "linestyle": "", "markersize": 7}
    styles = {key.replace("_per_character", ""): {**dot, "fillstyle": fill} for key, fill in FILLS.items()}
    plots.legend(axes, {}, styles, loc="upper left", bbox_to_anchor=(-0.1, -0.18), ncols=2)


def plot_recall(results: ComparisonResults):
    """Write loss_and_recall.png: on the left the val_loss of each model, on the right what a small one recalls."""
    recall, order, colors = results.recall, results.by_loss, plots.colors(results.models)
    figure, (losses, accuracies) = plots.subplots(1, 2, figsize=(9, 1.8 + 0.5 * len(order)), width_ratios=(2, 3))
    for y, model in enumerate(order):
        values = [row["val_loss_per_character"] for row in results.for_model(model)]
        losses.plot(values, [y] * len(values), "o", color=colors[model], markersize=7)
        mean = (results.mean(model, "val_loss_per_character"), y)
        losses.annotate(f"{mean[0]:.3f}", mean, (0, 8), textcoords="offset points", ha="center", fontsize=9)
    losses.margins(x=0.2)
    low, high = losses.get_xlim()
    middle, half = (low + high) / 2, max(high - low, MIN_WIDTH) / 2
    losses.set_xlim(middle - half, middle + half)
    losses.xaxis.set_major_locator(MaxNLocator(4))
    losses.ticklabel_format(axis="x", useOffset=False)
    losses.set_xlabel("val_loss (nats per character):\nlower is better")
    series = {}
    for key, length in (("accuracy", recall.length), ("twice_as_long", 2 * recall.length)):
        values = (recall.accuracies(model, key) for model in order)
        series[f"{length} positions"] = [statistics.mean(each) if each else math.nan for each in values]
    plots.bars(accuracies, [""] * len(order), series, dict(zip(series, ("0.35", "0.7"), strict=True)))
    for y, model in enumerate(order):
        if model not in recall.means:
            accuracies.text(0.01, y, "diverged", va="center", fontsize=8)
    accuracies.axvline(recall.chance, **DASHED)
    accuracies.set_xlabel(f"recall of {recall.items} pairs by small models: higher is better\n(dashed: a guess)")
    accuracies.legend(loc="upper left", bbox_to_anchor=(0, -0.35), ncols=2)
    losses.set_yticks(range(len(order)), map(plots.shortened, order))
    losses.set_ylim(accuracies.get_ylim())
    plots.save(figure, results.folder / "loss_and_recall.png")
