"""HTML page of `experiments.inspect_model`: hover over a token to see predictions, attention weights or activations.

page.js shows what belongs to one position, from a `ModelTrace` as JSON.
"""

import pathlib

import numpy as np

from experiments.frame.finished_run import describe_run, run_label
from experiments.frame.pages import render
from keras_seq.evaluation.model_trace import SIGNAL_NAMES, ModelTrace, most_variable_units


def inspect_page(trace: ModelTrace, run: pathlib.Path) -> str:
    """Return the page of what the model of a run computes."""
    title = f"What {describe_run(run)} computes for a text"
    return render("inspect_model", _data(trace), title=title, run=run_label(run))


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
