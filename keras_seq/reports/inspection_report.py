"""Show how a model reads a text: an interactive page, and plots with layers in rows.

page.js shows what belongs to one position, from a `ModelTrace` as JSON; hover over a token to see predictions,
attention weights or activations. Plots have tokens of the text, or distances, in columns.
"""

import pathlib
from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from keras_seq.interpretability.trace_plots import DIVERGING_COLORMAP, SEQUENTIAL_COLORMAP
from keras_seq.interpretability.traces import SIGNAL_NAMES, ModelTrace, most_variable_units
from keras_seq.reports.inspection import Findings
from keras_seq.reports.pages import describe_run, percent, render, run_label
from keras_seq.tokenizers.base import show_whitespace
from keras_seq.tracking.summaries import LABEL_STYLE, label


def inspect_page(trace: ModelTrace, run: pathlib.Path, findings: Findings | None = None) -> str:
    """Return the page of what the model of a run computes, and what is inside of it."""
    title = f"What {describe_run(run)} computes for a text"
    tables = _tables(trace, findings) if findings else {}
    sentences = findings.sentences() if findings else ()
    data = _data(trace) | {"lens": findings.lens if findings else {}}
    return render("inspect", data, title=title, run=run_label(run), tables=tables, sentences=sentences)


def _tables(trace, findings):
    """Return the tables by title: column heads, and rows of a head and cells of a text and a number from -1 to 1."""
    distances = [*next(iter(findings.memory.values()))]
    memory = [(name, [(percent(row[d]), row[d]) for d in distances]) for name, row in findings.memory.items()]
    heads = [f"{d} back" if d else "itself" for d in distances]
    tables = {"Random tokens that a linear probe can read from each layer": (heads, memory)}
    if findings.effects:
        effects = [
            (name, [(f"{v:.2f}" if abs(v) >= 0.005 else "", max(-1, v)) for v in row])
            for name, row in findings.effects.items()
        ]
        title = "Effect on the last prediction of a layer's output from the source text"
        tables[title] = ([show_whitespace(token) for token in trace.tokens], effects)
    return tables


def _data(trace):
    """Return the data of the page, attention rounded to 5 decimals, activations to 3."""
    return {
        "tokens": trace.tokens,
        "top": trace.top_predictions(),
        "next": trace.next_token_ranks(),
        "attention": {
            name: [[_decimals(row[: t + 1], 5) for t, row in enumerate(head)] for head in maps]
            for name, maps in trace.attention.items()
        },
        "activations": {
            name: {letter: _decimals(signal, 3) for letter, signal in signals.items()}
            for name, signals in trace.activations.items()
        },
        "mostVariable": {
            name: int(most_variable_units(next(iter(signals.values())), 1)[0])
            for name, signals in trace.activations.items()
        },
        "signals": SIGNAL_NAMES,
    }


def _decimals(values, decimals):
    return np.round(np.asarray(values, "float64"), decimals).tolist()


MAX_COLUMNS = 60  # of the text, from its end, that a plot can show


def plot_findings(trace: ModelTrace, findings: Findings) -> Iterator[tuple[str, Figure]]:
    """Yield names and figures: lens, memory and, if there is a source text, patching."""
    tokens = [label(token) for token in trace.tokens[-MAX_COLUMNS:]]
    lens = {name: row[-MAX_COLUMNS:] for name, row in findings.lens.items()}
    title = "Likeliest next token, as the model's head reads each layer"
    values = [[p for _, p in row] for row in lens.values()]
    texts = [[label(token) for token, _ in row] for row in lens.values()]
    yield "lens", _heat_map(title, values, [*lens], tokens, texts, label="probability")
    distances = [*next(iter(findings.memory.values()))]
    values = [[row[d] for d in distances] for row in findings.memory.values()]
    texts = [[percent(value) for value in row] for row in values]
    title = f"Random tokens that a linear probe reads from each layer (chance: {percent(findings.memory_chance)})"
    columns = [f"{d} back" if d else "itself" for d in distances]
    yield "memory", _heat_map(title, values, [*findings.memory], columns, texts, width=0.9, label="accuracy")
    if findings.effects:
        values = [row[-MAX_COLUMNS:] for row in findings.effects.values()]
        title = "Effect on the last prediction of a layer's output from the source text"
        yield "patching", _heat_map(title, values, [*findings.effects], tokens, low=-1, label="effect")


def _heat_map(title, values, rows, columns, texts=None, width=0.0, low=0, label=""):
    values = np.clip(np.array(values), low, 1)
    longest = max([1, *(len(text) for row in texts or () for text in row)])
    width = max(width, 0.2, 0.075 * longest + 0.08)
    figure = Figure(figsize=(max(6.5, width * len(columns) + 2.2), 0.32 * len(rows) + 1.3), layout="constrained")
    axes = figure.subplots()
    colormap = DIVERGING_COLORMAP if low else SEQUENTIAL_COLORMAP
    image = axes.imshow(values, cmap=colormap, vmin=low, vmax=1, aspect="auto", origin="lower")
    for y, row in enumerate(texts or ()):
        for x, text in enumerate(row):
            color = "white" if values[y, x] > 0.6 else "black"
            axes.text(x, y, text, ha="center", va="center", color=color, **LABEL_STYLE)
    rotation = 90 if max(map(len, columns)) > 1 and width < 0.5 else 0
    axes.set_xticks(range(len(columns)), columns, rotation=rotation, **LABEL_STYLE)
    axes.set_yticks(range(len(rows)), rows, **LABEL_STYLE)
    axes.tick_params(length=0, pad=1)
    axes.spines[:].set_color("0.8")
    figure.colorbar(image, ax=axes, aspect=12, pad=0.01, label=label)
    figure.suptitle(title, fontsize=10)
    return figure
