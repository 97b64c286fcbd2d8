"""HTML page of `experiments.inspect_model`: hover over a token to see predictions, attention weights or activations.

page.js shows what belongs to one position, from a `ModelTrace` as JSON.
"""

import pathlib

import numpy as np

from experiments.common.finished_run import describe_run, run_label
from experiments.common.pages import percent, render
from experiments.inspect_model.findings import Findings
from keras_seq.interpretability.traces import SIGNAL_NAMES, ModelTrace, most_variable_units
from keras_seq.tokenizers.text import show_whitespace


def inspect_page(trace: ModelTrace, run: pathlib.Path, findings: Findings | None = None) -> str:
    """Return the page of what the model of a run computes, and what is inside of it."""
    title = f"What {describe_run(run)} computes for a text"
    tables = _tables(trace, findings) if findings else {}
    sentences = findings.sentences() if findings else ()
    data = _data(trace) | {"lens": findings.lens if findings else {}}
    return render("inspect_model", data, title=title, run=run_label(run), tables=tables, sentences=sentences)


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
